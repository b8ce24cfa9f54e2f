"""Changed bytes of every message that the node reads: an answer, or the documented error."""

from __future__ import annotations

import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import pytest
from geometry_msgs.msg import PoseWithCovarianceStamped, TransformStamped
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage, Image
from tf2_msgs.msg import TFMessage

from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.ros.camera import CameraMonitor
from kbf_localization.ros.conversions import (
    ImageError,
    decode,
    header,
    planar_covariance,
    planar_pose,
)
from kbf_localization.ros.rclpy_internals import RMWError
from kbf_localization.ros.transforms import TransformChain
from test.fuzzing import edited, edits, fuzzed, token_edits

IMAGE = np.random.default_rng(0).integers(0, 256, (24, 32), dtype=np.uint8)
STAMP_NS = 1_700_000_000_123_456_789


@dataclass(frozen=True)
class Kind:
    """A good message, and what the node does with its bytes."""

    good: Callable[[], Any]
    read: Callable[[bytes], None]


def good_odometry() -> Odometry:
    message = Odometry(header=header("odom", STAMP_NS), child_frame_id="base_footprint")
    message.pose.covariance = np.eye(6).ravel()
    return message


def odometry(cdr: bytes) -> None:
    message = deserialize_message(cdr, Odometry)
    pose = planar_pose(message.pose.pose)
    assert np.isfinite(pose).all() and np.abs(pose).max() <= MAX_COORDINATE_M


def good_compressed() -> CompressedImage:
    encoded = cv2.imencode(".jpg", IMAGE)[1].tobytes()
    return CompressedImage(
        header=header("camera", STAMP_NS), format="jpeg", data=array.array("B", encoded)
    )


def good_raw() -> Image:
    return Image(
        header=header("camera", STAMP_NS),
        height=24,
        width=32,
        encoding="mono8",
        step=32,
        data=array.array("B", IMAGE.tobytes()),
    )


def image_of(kind: type) -> Callable[[bytes], None]:
    def read(cdr: bytes) -> None:
        assert decode(deserialize_message(cdr, kind)).ndim == 2

    return read


def good_info() -> CameraInfo:
    message = CameraInfo(header=header("camera", STAMP_NS), width=640, height=480)
    message.distortion_model, message.d = "plumb_bob", [0.1, -0.05, 0.001, 0.001, 0.0]
    message.k = np.array([500.0, 0.0, 319.5, 0.0, 500.0, 239.5, 0.0, 0.0, 1.0])
    return message


def monitor() -> CameraMonitor:
    watched = CameraMonitor("base_footprint", lambda *_: None, lambda *_: None)
    watched.on_image("camera", 640, 480)
    return watched


def info(cdr: bytes) -> None:
    watched = monitor()
    watched.on_info(deserialize_message(cdr, CameraInfo))
    assert (watched.info is None) == bool(watched.problems.get("camera_info"))


def good_transforms() -> TFMessage:
    links = []
    for parent, child in (("odom", "base_footprint"), ("base_footprint", "camera")):
        link = TransformStamped(header=header(parent, STAMP_NS), child_frame_id=child)
        link.transform.translation.x = 0.25
        links.append(link)
    return TFMessage(transforms=links)


def transforms(cdr: bytes) -> None:
    message = deserialize_message(cdr, TFMessage)
    watched, chain = monitor(), TransformChain("odom", "base_footprint")
    watched.on_transforms(message.transforms)
    assert watched.mount is None or np.isfinite(watched.mount.translation).all()
    for link in message.transforms:
        pose = chain.add(link)
        assert pose is None or np.isfinite(pose).all()


def good_pose() -> PoseWithCovarianceStamped:
    message = PoseWithCovarianceStamped(header=header("map", STAMP_NS))
    message.pose.covariance = np.eye(6).ravel()
    return message


def given_pose(cdr: bytes) -> None:
    message = deserialize_message(cdr, PoseWithCovarianceStamped)
    assert np.isfinite(planar_pose(message.pose.pose)).all()
    assert np.isfinite(planar_covariance(message.pose.covariance)).all()


KINDS = {
    "Odometry": Kind(good_odometry, odometry),
    "CompressedImage": Kind(good_compressed, image_of(CompressedImage)),
    "Image": Kind(good_raw, image_of(Image)),
    "CameraInfo": Kind(good_info, info),
    "TFMessage": Kind(good_transforms, transforms),
    "PoseWithCovarianceStamped": Kind(good_pose, given_pose),
}
numbers = token_edits(
    b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\x00\x00\x00\x00\x00\x00\xf0\x7f", b"\x00\x07\x00\x00",
    b"\x00" * 6 + b"\xf8\x7f", b"\xff" * 7 + b"\x7f", b"odom\0", b"bayer_rggb16\0", b"yuv422\0",
)  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_good_message_is_read(name: str) -> None:
    KINDS[name].read(bytes(serialize_message(KINDS[name].good())))


@pytest.mark.parametrize("name", KINDS)
@fuzzed("message to the node", changes=edits | numbers)
def test_a_changed_message_is_read_or_refused(
    name: str, changes: list[tuple[float, int, bytes]]
) -> None:
    cdr = edited(bytes(serialize_message(KINDS[name].good())), changes)
    try:
        KINDS[name].read(cdr)
    except (ImageError, ValueError, RMWError) as error:
        assert str(error)
