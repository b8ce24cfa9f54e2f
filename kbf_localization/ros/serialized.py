"""The fields that the node needs of serialized messages, read without making the messages.

rclpy makes every nested message several times over: an Odometry costs it several times what is
needed of it, a hundred times a second. And of an image that will not be used only
the stamp is needed. The layout is OMG's plain CDR (XCDR1), in which rmw implementations give
serialized messages.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.serialization import deserialize_message

from kbf_localization.arrays import Array
from kbf_localization.geometry import planar_block
from kbf_localization.ros.conversions import nanoseconds, seven_numbers

UNREADABLE = (ValueError, _rclpy.RMWError)
"""What is raised for bytes that are no message of the type."""
_BYTE_ORDERS = {b"\x00\x00": ">", b"\x00\x01": "<"}
_ENCAPSULATION = 4
"""Bytes before the content, from which alignment counts."""


@dataclass(frozen=True)
class OdometryFields:
    """Of a nav_msgs/Odometry: stamp, frames, `pose` (7,) as x, y, z and quaternion x, y, z, w.

    `covariance` (3, 3) is that of (x, y, heading), as it came.
    """

    stamp_ns: int
    frame_id: str
    child_frame_id: str
    pose: Array
    covariance: Array


def stamp_of(cdr: bytes, kind: type) -> int:
    """The stamp in nanoseconds of a message of this type, which begins with a header."""
    if cdr[:2] not in _BYTE_ORDERS:
        return nanoseconds(deserialize_message(cdr, kind).header.stamp)
    return _Content(cdr).stamp_ns()


def read_odometry(cdr: bytes) -> OdometryFields:
    """A serialized nav_msgs/Odometry; ValueError for one that is cut short."""
    if cdr[:2] not in _BYTE_ORDERS:
        # Another representation, which only the middleware itself can read.
        message = deserialize_message(cdr, Odometry)
        return OdometryFields(
            nanoseconds(message.header.stamp),
            message.header.frame_id,
            message.child_frame_id,
            np.array(seven_numbers(message.pose.pose)),
            planar_block(message.pose.covariance),
        )
    content = _Content(cdr)
    return OdometryFields(
        content.stamp_ns(),
        content.string(),
        content.string(),
        content.doubles(7),
        planar_block(content.doubles(36)),
    )


class _Content:
    """Reads one field after the other."""

    def __init__(self, cdr: bytes) -> None:
        self._cdr, self._order = cdr, _BYTE_ORDERS[cdr[:2]]
        self._at = _ENCAPSULATION

    def stamp_ns(self) -> int:
        seconds, nanoseconds = self._unpack("iI", 8)
        return int(seconds) * 1_000_000_000 + int(nanoseconds)

    def string(self) -> str:
        self._align(4)
        size = int(self._unpack("I", 4)[0])
        end = self._at + size
        if not 0 < size <= len(self._cdr) - self._at:
            raise ValueError("message is cut short")
        text, self._at = self._cdr[self._at : end - 1], end
        return text.decode("utf-8", errors="replace")

    def doubles(self, count: int) -> Array:
        self._align(8)
        return np.array(self._unpack(f"{count}d", 8 * count))

    def _align(self, size: int) -> None:
        self._at += -(self._at - _ENCAPSULATION) % size

    def _unpack(self, layout: str, size: int) -> tuple[float, ...]:
        if len(self._cdr) < self._at + size:
            raise ValueError("message is cut short")
        values = struct.unpack_from(self._order + layout, self._cdr, self._at)
        self._at += size
        return values
