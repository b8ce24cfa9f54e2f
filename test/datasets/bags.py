"""A drive in memory and bags of any content, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from kbf_localization.arrays import Image
from kbf_localization.datasets.bag_reader import ros2_types
from kbf_localization.datasets.bag_writer import header, new, odometry_message, pose_message
from kbf_localization.datasets.bag_writer import transforms_message as transforms
from kbf_localization.datasets.drive import OdometryLog

START_NS = 1_152_212_857_193_444_000
TYPES = ros2_types()


@dataclass(frozen=True)
class MemoryDrive:
    """A robot on a circle of 2 m: images at 5 Hz, odometry at 20 Hz in a turned frame."""

    frames: int = 12
    size: tuple[int, int] = (24, 32)
    name: str = "seq1_cloudy1"
    path: Path = Path("memory")
    condition: str | None = "cloudy"
    labels: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()
    odometry_origin: str = "measured"
    kind: str = "memory"

    @property
    def stamps_ns(self) -> np.ndarray:
        return START_NS + 200_000_000 * np.arange(self.frames, dtype=np.int64) + 1234

    @property
    def poses(self) -> np.ndarray:
        return circle(self.stamps_ns, turned=0.0)

    @property
    def odometry(self) -> OdometryLog:
        stamps = START_NS + 50_000_000 * np.arange(4 * self.frames, dtype=np.int64)
        return OdometryLog(stamps, circle(stamps, turned=0.7))

    def __len__(self) -> int:
        return self.frames

    def images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, Image | None]]:
        for index, data in self.encoded_images(indices):
            yield index, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)

    def encoded_images(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        for index in range(self.frames) if indices is None else indices:
            noise = np.random.default_rng(index).integers(0, 256, (*self.size, 3), dtype=np.uint8)
            yield index, cv2.imencode(".jpg", noise)[1].tobytes()


def circle(stamps_ns: np.ndarray, turned: float) -> np.ndarray:
    angle = (stamps_ns - START_NS) * 1e-9 * 0.3 + turned
    return np.stack((2 * np.sin(angle), 2 - 2 * np.cos(angle), angle), axis=-1)


def pose_stamped(stamp_ns: int, *pose: float) -> Any:
    return new(
        "geometry_msgs/msg/PoseStamped", header=header(stamp_ns, "map"), pose=pose_message(pose)
    )


def pose_with_covariance(stamp_ns: int, *pose: float) -> Any:
    return new(
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        header=header(stamp_ns, "map"),
        pose=odometry_message(stamp_ns, pose).pose,
    )


def odometry(stamp_ns: int, *pose: float, frame: str = "odom", child: str = "base_link") -> Any:
    message = odometry_message(stamp_ns, pose)
    message.header.frame_id, message.child_frame_id = frame, child
    return message


def compressed(stamp_ns: int, data: bytes) -> Any:
    return new(
        "sensor_msgs/msg/CompressedImage",
        header=header(stamp_ns, "camera"),
        format="jpeg",
        data=np.frombuffer(data, dtype=np.uint8),
    )


def clock(stamp_ns: int) -> Any:
    return new("rosgraph_msgs/msg/Clock", clock=header(stamp_ns, "").stamp)


Messages = Iterable[tuple[str, int, Any]]


def write_messages(path: Path, messages: Messages, storage: str = "mcap") -> Path:
    """A rosbag2 of (topic, time of recording, message), by time."""
    with Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()]) as writer:
        _write(writer, TYPES, TYPES.serialize_cdr, messages)
    return path


def write_messages_ros1(path: Path, messages: Messages) -> Path:
    """A ROS 1 bag of the same."""
    types = get_typestore(Stores.ROS1_NOETIC)
    types.register(
        get_types_from_msg("geometry_msgs/TransformStamped[] transforms", "tf2_msgs/msg/TFMessage")
    )

    def serialize(message: Any, name: str) -> bytes | memoryview:
        return types.serialize_ros1(_with_sequence_number(message, types), name)

    with Writer1(path) as writer:
        _write(writer, types, serialize, messages)
    return path


def _write(writer: Any, types: Any, serialize: Any, messages: Messages) -> None:
    connections: dict[str, Any] = {}
    for topic, recorded_ns, message in sorted(messages, key=lambda item: item[1]):
        name = message.__msgtype__
        if topic not in connections:
            connections[topic] = writer.add_connection(topic, name, typestore=types)
        writer.write(connections[topic], recorded_ns, serialize(message, name))


def _with_sequence_number(message: Any, types: Any) -> Any:
    """The same message with ROS 1's headers, which also count."""
    if message.__msgtype__ == "std_msgs/msg/Header":
        return types.types["std_msgs/msg/Header"](
            seq=7, stamp=message.stamp, frame_id=message.frame_id
        )
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, list):
            setattr(message, name, [_with_sequence_number(item, types) for item in value])
        elif hasattr(value, "__msgtype__"):
            setattr(message, name, _with_sequence_number(value, types))
    if message.__msgtype__ == "sensor_msgs/msg/CameraInfo":
        # ROS 1 names the matrices by capital letters.
        fields = {
            (key.upper() if key in "dkrp" else key): var for key, var in vars(message).items()
        }
        return types.types[message.__msgtype__](**fields)
    return message


def drive_messages(drive: MemoryDrive, poses: str = "ground_truth") -> list[tuple[str, int, Any]]:
    """What a robot would have recorded of `drive`, with its known poses in one of five forms."""
    messages: list[tuple[str, int, Any]] = []
    log = drive.odometry
    for stamp, reading in zip(log.stamps_ns.tolist(), log.poses.tolist()):
        messages.append(("/odom", stamp, odometry(stamp, *reading)))
        truth = circle(np.array(stamp), turned=0.0).tolist()
        if poses == "ground_truth":
            messages.append(("/ground_truth", stamp, pose_stamped(stamp, *truth)))
        elif poses == "amcl_pose":
            messages.append(("/amcl_pose", stamp, pose_with_covariance(stamp, *truth)))
        elif poses == "mocap":
            messages.append(("/mocap", stamp, odometry(stamp, *truth, frame="map")))
        elif poses == "tf_direct":
            messages.append(("/tf", stamp, transforms(stamp, {("map", "base_link"): truth})))
    images = drive.encoded_images()
    for stamp, (_, data) in zip(drive.stamps_ns.tolist(), images):
        messages.append(("/camera/compressed", stamp, compressed(stamp, data)))
    return messages
