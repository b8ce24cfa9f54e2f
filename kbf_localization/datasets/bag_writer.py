"""Write a drive as a rosbag2 with the topics that the node listens to."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cv2
import numpy as np
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.storage_sqlite3 import Sqlite3Writer

from kbf_localization.arrays import Array
from kbf_localization.datasets.bag_reader import CAMERA_INFO, TRANSFORMS, ros2_types
from kbf_localization.datasets.bag_topics import COMPRESSED_IMAGE, IMAGE, ODOMETRY, POSE
from kbf_localization.datasets.camera_file import calibration_of
from kbf_localization.datasets.drive import Drive, OdometryLog, camera_of, mount_of
from kbf_localization.datasets.files import new_folder
from kbf_localization.datasets.image_decoding import decode, format_of
from kbf_localization.datasets.rosbag import CONDITION_NOTE, ODOMETRY_NOTE
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import quaternion_of, spatial_numbers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.mount import Mount

STORAGES = ("mcap", "sqlite3")
TOPICS = (
    *("/odom", "/image/compressed", "/image", "/ground_truth"),
    *("/tf", "/camera_info", "/tf_static"),
)
MAP_FRAME, ODOM_FRAME, BASE_FRAME, CAMERA_FRAME = "map", "odom", "base_footprint", "camera"


def _qos(
    depth: int,
    reliability: QosReliability,
    durability: QosDurability = QosDurability.VOLATILE,
) -> Qos:
    forever = QosTime(9223372036, 854775807)
    return Qos(
        QosHistory.KEEP_LAST,
        depth,
        reliability,
        durability,
        forever,
        forever,
        QosLiveliness.AUTOMATIC,
        forever,
        False,
    )


# What a robot's drivers offer, so that `ros2 bag play` offers it again.
RELIABLE = _qos(10, QosReliability.RELIABLE)
TF_QOS = _qos(100, QosReliability.RELIABLE)
STATIC_QOS = _qos(1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL)


class _SqliteFile(Sqlite3Writer):
    """Writes the database at its path, of which `rosbags` makes a URI without escaping it."""

    def __init__(self, path: Path, compression: Any) -> None:
        super().__init__(Path(quote(os.fsencode(path.resolve()))), compression)
        self.path = path / f"{path.name}.db3"


class _BagWriter(Writer):
    """Writes a bag's folder of any name."""

    STORAGE_PLUGINS: Mapping[Any, Any] = {
        **Writer.STORAGE_PLUGINS,
        StoragePlugin.SQLITE3: _SqliteFile,
    }


_LAST_SECOND = 2**31 - 1
"""Of a builtin_interfaces/Time."""


def write_bag(
    drive: Drive,
    path: Path,
    progress: Progress = no_progress,
    *,
    storage: str = "mcap",
    raw: bool = False,
    names: Mapping[str, str] | None = None,
) -> None:
    """Write `drive` as the rosbag2 folder `path`, which must not exist yet.

    Topics: /odom, /image/compressed with the bytes as they are (or /image, decoded, with `raw`),
    /ground_truth where poses are known, /tf with odom→base, and where the drive knows them
    /camera_info and /tf_static with the camera's mount; `names` has other names for some of them.
    The folder appears whole at the end, or not at all.
    """
    _check_names(names or {})
    if storage not in STORAGES:
        raise DatasetError(f"--storage {storage}: choose one of {', '.join(STORAGES)}")
    _check_stamps(drive)
    plugin = StoragePlugin[storage.upper()]
    with (
        new_folder(path) as folder,
        _explained(path),
        _BagWriter(folder, version=Writer.VERSION_LATEST, storage_plugin=plugin) as writer,
    ):
        if drive.condition is not None:
            writer.set_custom_data(CONDITION_NOTE, drive.condition)
        writer.set_custom_data(ODOMETRY_NOTE, drive.odometry_origin)
        _Messages(writer, raw, names or {}).write(drive, progress)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says of a full disk, which is no OSError, into a line."""
    try:
        yield
    except sqlite3.Error as error:
        raise DatasetError(f"{path}: cannot be written ({error})") from error


def _check_stamps(drive: Drive) -> None:
    newest_s = max(int(drive.stamps_ns[-1]), int(drive.odometry.stamps_ns[-1])) // 1_000_000_000
    if newest_s > _LAST_SECOND:
        raise DatasetError(
            f"{drive.name}: its stamps reach {newest_s} s, and ROS's messages hold {_LAST_SECOND}, "
            "which is in 2038: are they in seconds since 1970?"
        )


def _check_names(names: Mapping[str, str]) -> None:
    for topic, name in names.items():
        if topic not in TOPICS:
            raise DatasetError(f"{topic}: no topic of the bag, which has {', '.join(TOPICS)}")
        if re.fullmatch(r"(/[A-Za-z_]\w*)+", name, re.ASCII) is None:
            raise DatasetError(f"{name}: no name of a topic; give one such as /robot/odom")
    written = [names.get(topic, topic) for topic in TOPICS]
    if len(set(written)) < len(written):
        raise DatasetError(f"two topics would be called {max(written, key=written.count)}")


class _Messages:
    """Writes a drive's messages in the order of their stamps."""

    def __init__(self, writer: Writer, raw: bool, names: Mapping[str, str]) -> None:
        self._writer, self._raw, self._names = writer, raw, names
        self._connections: dict[str, Any] = {}

    def write(self, drive: Drive, progress: Progress) -> None:
        odometry, poses = drive.odometry, drive.poses
        camera, mount = camera_of(drive), mount_of(drive)
        if mount is not None:
            start = min(int(drive.stamps_ns[0]), int(odometry.stamps_ns[0]))
            self._put("/tf_static", start, mount_message(start, mount), STATIC_QOS)
        fed = 0
        for index, image in drive.encoded_images():
            stamp = int(drive.stamps_ns[index])
            # The reading that covers an image comes before it, as on a robot whose odometry is
            # faster than its camera.
            until = int(np.searchsorted(odometry.stamps_ns, stamp, side="right"))
            self._odometry(odometry, range(fed, until))
            fed = until
            if poses is not None and np.isfinite(poses[index]).all():
                truth = new(POSE, header=header(stamp, MAP_FRAME), pose=pose_message(poses[index]))
                self._put("/ground_truth", stamp, truth)
            if image:
                self._image(stamp, image)
                if camera is not None:
                    self._put("/camera_info", stamp, camera_info_message(stamp, camera))
            progress(index + 1, len(drive), f"writing {drive.name}")
        self._odometry(odometry, range(fed, len(odometry.stamps_ns)))

    def _odometry(self, odometry: OdometryLog, readings: range) -> None:
        for reading in readings:
            stamp, pose = int(odometry.stamps_ns[reading]), odometry.poses[reading]
            message = odometry_message(stamp, pose, odometry.covariance(reading))
            self._put("/odom", stamp, message)
            transforms = transforms_message(stamp, {(ODOM_FRAME, BASE_FRAME): pose})
            self._put("/tf", stamp, transforms, TF_QOS)

    def _image(self, stamp: int, encoded: bytes) -> None:
        head = header(stamp, CAMERA_FRAME)
        if not self._raw:
            kind, data = format_of(encoded).lower(), np.frombuffer(encoded, dtype=np.uint8)
            message = new(COMPRESSED_IMAGE, header=head, format=kind, data=data)
            self._put("/image/compressed", stamp, message)
            return
        pixels = decode(encoded, cv2.IMREAD_COLOR)
        if pixels is None:
            return
        height, width = pixels.shape[:2]
        message = new(
            IMAGE,
            header=head,
            height=height,
            width=width,
            encoding="bgr8",
            is_bigendian=0,
            step=3 * width,
            data=np.ascontiguousarray(pixels).reshape(-1),
        )
        self._put("/image", stamp, message)

    def _put(self, topic: str, stamp: int, message: Any, qos: Qos = RELIABLE) -> None:
        types, type_name = ros2_types(), message.__msgtype__
        if topic not in self._connections:
            name = self._names.get(topic, topic)
            self._connections[topic] = self._writer.add_connection(
                name, type_name, typestore=types, offered_qos_profiles=[qos]
            )
        self._writer.write(self._connections[topic], stamp, types.serialize_cdr(message, type_name))


def new(type_name: str, **fields: Any) -> Any:
    """Return a message, such as a "geometry_msgs/msg/Pose"."""
    return ros2_types().types[type_name](**fields)


def header(stamp_ns: int, frame: str) -> Any:
    seconds, nanoseconds = divmod(stamp_ns, 1_000_000_000)
    time = new("builtin_interfaces/msg/Time", sec=seconds, nanosec=nanoseconds)
    return new("std_msgs/msg/Header", stamp=time, frame_id=frame)


def pose_message(pose: Sequence[float] | Array) -> Any:
    """Return a geometry_msgs/Pose of x, y and heading."""
    place, turn = _vector("Point", *pose[:2]), _quaternion(pose[2])
    return new("geometry_msgs/msg/Pose", position=place, orientation=turn)


def odometry_message(
    stamp_ns: int, pose: Sequence[float] | Array, covariance: Array | None = None
) -> Any:
    """Return a nav_msgs/Odometry without velocities; an unknown covariance (3, 3) is of zeros."""
    numbers = np.zeros(36) if covariance is None else spatial_numbers(covariance)
    still = new("geometry_msgs/msg/Twist", linear=_vector("Vector3"), angular=_vector("Vector3"))
    return new(
        ODOMETRY,
        header=header(stamp_ns, ODOM_FRAME),
        child_frame_id=BASE_FRAME,
        pose=new(
            "geometry_msgs/msg/PoseWithCovariance", pose=pose_message(pose), covariance=numbers
        ),
        twist=new("geometry_msgs/msg/TwistWithCovariance", twist=still, covariance=np.zeros(36)),
    )


def camera_info_message(stamp_ns: int, camera: Camera) -> Any:
    """Return a sensor_msgs/CameraInfo."""
    model, matrix, coefficients = calibration_of(camera)
    k = np.array(matrix)
    return new(
        CAMERA_INFO,
        header=header(stamp_ns, CAMERA_FRAME),
        height=camera.height,
        width=camera.width,
        distortion_model=model,
        d=np.array(coefficients, dtype=np.float64),
        k=k,
        r=np.eye(3).reshape(9),
        p=np.column_stack([k.reshape(3, 3), np.zeros(3)]).reshape(12),
        binning_x=0,
        binning_y=0,
        roi=new(
            "sensor_msgs/msg/RegionOfInterest",
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        ),
    )


def mount_message(stamp_ns: int, mount: Mount) -> Any:
    """Return a tf2_msgs/TFMessage of the camera's optical frame in the base's."""
    x, y, z = (float(value) for value in mount.translation)
    qx, qy, qz, qw = mount.quaternion
    place = new("geometry_msgs/msg/Vector3", x=x, y=y, z=z)
    turn = new("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw)
    transform = new(
        "geometry_msgs/msg/TransformStamped",
        header=header(stamp_ns, BASE_FRAME),
        child_frame_id=CAMERA_FRAME,
        transform=new("geometry_msgs/msg/Transform", translation=place, rotation=turn),
    )
    return new(TRANSFORMS, transforms=[transform])


def transforms_message(
    stamp_ns: int, edges: Mapping[tuple[str, str], Sequence[float] | Array]
) -> Any:
    """Return a TFMessage of planar transforms (3,), by the frames of parent and child."""
    transforms = []
    for (parent, child), (x, y, heading) in edges.items():
        move, turn = _vector("Vector3", x, y), _quaternion(heading)
        transforms.append(
            new(
                "geometry_msgs/msg/TransformStamped",
                header=header(stamp_ns, parent),
                child_frame_id=child,
                transform=new("geometry_msgs/msg/Transform", translation=move, rotation=turn),
            )
        )
    return new(TRANSFORMS, transforms=transforms)


def _vector(kind: str, x: float = 0.0, y: float = 0.0) -> Any:
    return new(f"geometry_msgs/msg/{kind}", x=float(x), y=float(y), z=0.0)


def _quaternion(heading: float) -> Any:
    x, y, z, w = quaternion_of(heading)
    return new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)
