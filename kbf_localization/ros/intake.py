"""Reads topics on a thread of its own, beside rclpy's executor, and their messages' fields.

rclpy's executors build a new wait set of all entities for every message: at 1,000 odometry
messages a second that alone took 76–89 % of a core (multi-threaded) and lost a third of them. A
wait set of these few subscriptions took 25 % and lost none.

And rclpy makes every nested message several times over: an Odometry costs it several times what is
needed of it, a hundred times a second. Of an image that will not be used only the stamp is needed.
So fields are read from serialized messages; their layout is OMG's plain CDR (XCDR1), in which rmw
implementations give them.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.callback_groups import CallbackGroup
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from kbf_localization.arrays import Array
from kbf_localization.geometry import planar_block
from kbf_localization.ros.conversions import nanoseconds, seven_numbers
from kbf_localization.ros.diagnostics import TopicWatch
from kbf_localization.ros.lifecycle import SafeLifecycleNode

_PAUSE_S = 0.1
"""After an error of the middleware."""
_WAIT_NS, _STANDING_WAIT_NS = 200_000_000, 30_000_000
_BATCH = 200
"""Messages taken from one topic before the others get their turn."""


@dataclass(frozen=True)
class Topic:
    """A topic to read and what to do with its messages; a `steady` one must not fall silent.

    The callback gets the message, or of a `serialized` topic its bytes. Messages of a `patient`
    topic are read together with those of others while the robot stands.
    """

    name: str
    type: type
    qos: QoSProfile
    callback: Callable[[Any], None]
    steady: bool = True
    serialized: bool = False
    patient: bool = False


class _NotForTheExecutor(CallbackGroup):
    """Keeps a subscription out of the executor's wait sets."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


class Intake:
    """Subscribes to topics, earlier ones first, until it is closed; `watches` by topic name.

    `stands` says whether the robot does: then nobody waits for its odometry, and each wake-up of a
    Python thread costs several times what a message does that is read with the one before it.
    """

    def __init__(
        self,
        node: SafeLifecycleNode,
        topics: tuple[Topic, ...],
        failed: Callable[[Exception], None],
        stands: Callable[[], bool],
    ) -> None:
        self._node = node
        self._failed, self._stands = failed, stands
        self._topics = topics
        self.watches = {topic.name: TopicWatch(node, topic.name, topic.qos) for topic in topics}
        group = _NotForTheExecutor()
        self._subscriptions: tuple[Subscription, ...] = tuple(
            node.create_subscription(
                topic.type, topic.name, topic.callback, topic.qos, callback_group=group
            )
            for topic in topics
        )
        self._wake = GuardCondition(None, None, context=node.context)
        self._closing = False
        with node.context.handle:
            self._waiting = _rclpy.WaitSet(len(topics), 1, 0, 0, 0, 0, node.context.handle)
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._thread.start()

    def silent(self, timeout: float) -> dict[str, str]:
        """A line for each steady topic without a message for more than `timeout` seconds."""
        steady = (topic.name for topic in self._topics if topic.steady)
        explained = {name: self.watches[name].explain(timeout) for name in steady}
        return {name: line for name, line in explained.items() if line is not None}

    def close(self) -> None:
        """End the thread and the subscriptions."""
        self._closing = True
        self._wake.trigger()
        self._thread.join()
        self._node.dispose(*self._subscriptions)
        self._wake.destroy()

    def _run(self) -> None:
        context = self._node.context
        while not self._closing and context.ok():
            try:
                self._wait(context)
                for topic, subscription in zip(self._topics, self._subscriptions, strict=True):
                    self._take(topic, subscription)
            except Exception as error:  # without this thread the node would be deaf
                if not context.ok():
                    return
                self._failed(error)
                time.sleep(_PAUSE_S)

    def _wait(self, context: Any) -> None:
        with context.handle:
            waiting, stands = self._waiting, self._stands()
            waiting.clear_entities()
            for topic, subscription in zip(self._topics, self._subscriptions, strict=True):
                if not (stands and topic.patient):
                    waiting.add_subscription(subscription.handle)
            waiting.add_guard_condition(self._wake.handle)
            waiting.wait(_STANDING_WAIT_NS if stands else _WAIT_NS)

    def _take(self, topic: Topic, subscription: Subscription) -> None:
        watch = self.watches[topic.name]
        for _ in range(_BATCH):
            if self._closing:
                return
            taken = subscription.handle.take_message(topic.type, topic.serialized)
            if taken is None:
                return
            watch.arrived(taken[1].get("publication_sequence_number"))
            try:
                topic.callback(taken[0])
            except Exception as error:  # the thread must outlive one bad message
                self._failed(error)


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
