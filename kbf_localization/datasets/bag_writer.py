"""Write a drive as a rosbag2 with the topics that the node listens to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

from kbf_localization.datasets.bag_messages import PlanarPose
from kbf_localization.datasets.bag_reader import TRANSFORMS, ros2_types
from kbf_localization.datasets.bag_topics import COMPRESSED_IMAGE, IMAGE, ODOMETRY, POSE
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.datasets.files import new_folder
from kbf_localization.datasets.image_headers import format_of
from kbf_localization.datasets.image_messages import decode
from kbf_localization.datasets.rosbag import CONDITION_NOTE, ODOMETRY_NOTE
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import quaternion_of, spatial_numbers
from kbf_localization.progress import Progress, no_progress

STORAGES = ("mcap", "sqlite3")
MAP_FRAME, ODOM_FRAME, BASE_FRAME, CAMERA_FRAME = "map", "odom", "base_footprint", "camera"


def _qos(depth: int, reliability: QosReliability) -> Qos:
    forever = QosTime(9223372036, 854775807)
    return Qos(
        QosHistory.KEEP_LAST,
        depth,
        reliability,
        QosDurability.VOLATILE,
        forever,
        forever,
        QosLiveliness.AUTOMATIC,
        forever,
        False,
    )


# What a robot's drivers offer, so that `ros2 bag play` offers it again.
RELIABLE = _qos(10, QosReliability.RELIABLE)
TF_QOS = _qos(100, QosReliability.RELIABLE)


def write_bag(
    drive: Drive,
    path: Path,
    progress: Progress = no_progress,
    *,
    storage: str = "mcap",
    raw: bool = False,
) -> None:
    """Write `drive` as the rosbag2 folder `path`, which must not exist yet.

    Topics: /odom, /image/compressed with the bytes as they are (or /image, decoded, with `raw`),
    /ground_truth where poses are known, and /tf with odom→base. The folder appears whole at the
    end, or not at all.
    """
    if storage not in STORAGES:
        raise DatasetError(f"--storage {storage}: choose one of {', '.join(STORAGES)}")
    with new_folder(path) as folder:
        plugin = StoragePlugin[storage.upper()]
        with Writer(folder, version=Writer.VERSION_LATEST, storage_plugin=plugin) as writer:
            if drive.condition is not None:
                writer.set_custom_data(CONDITION_NOTE, drive.condition)
            writer.set_custom_data(ODOMETRY_NOTE, drive.odometry_origin)
            _Messages(writer, raw).write(drive, progress)


class _Messages:
    """Makes a drive's messages and writes them in the order of their stamps."""

    def __init__(self, writer: Writer, raw: bool) -> None:
        self._writer, self._raw = writer, raw
        self._types = ros2_types()
        self._connections: dict[str, Any] = {}

    def write(self, drive: Drive, progress: Progress) -> None:
        odometry, poses = drive.odometry, drive.poses
        fed = 0
        for index, image in drive.encoded_images():
            stamp = int(drive.stamps_ns[index])
            # The reading that covers an image comes before it, as on a robot whose odometry is
            # faster than its camera.
            until = int(np.searchsorted(odometry.stamps_ns, stamp, side="right"))
            for reading in range(fed, until):
                self._odometry(odometry, reading)
            fed = until
            if poses is not None and np.isfinite(poses[index]).all():
                self._ground_truth(stamp, poses[index])
            if image:
                self._image(stamp, image)
            progress(index + 1, len(drive), f"writing {drive.name}")
        for reading in range(fed, len(odometry.stamps_ns)):
            self._odometry(odometry, reading)

    def _odometry(self, odometry: OdometryLog, reading: int) -> None:
        stamp, pose = int(odometry.stamps_ns[reading]), odometry.poses[reading]
        covariance = odometry.covariance(reading)
        self._put(
            "/odom",
            ODOMETRY,
            stamp,
            header=self._header(stamp, ODOM_FRAME),
            child_frame_id=BASE_FRAME,
            pose=self._new(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=self._pose(pose),
                covariance=np.zeros(36) if covariance is None else spatial_numbers(covariance),
            ),
            twist=self._new(
                "geometry_msgs/msg/TwistWithCovariance",
                twist=self._new(
                    "geometry_msgs/msg/Twist", linear=self._vector(), angular=self._vector()
                ),
                covariance=np.zeros(36),
            ),
        )
        x, y, heading = (float(value) for value in pose)
        transform = self._new(
            "geometry_msgs/msg/TransformStamped",
            header=self._header(stamp, ODOM_FRAME),
            child_frame_id=BASE_FRAME,
            transform=self._new(
                "geometry_msgs/msg/Transform",
                translation=self._vector(x, y),
                rotation=self._quaternion(heading),
            ),
        )
        self._put("/tf", TRANSFORMS, stamp, qos=TF_QOS, transforms=[transform])

    def _ground_truth(self, stamp: int, pose: Any) -> None:
        header = self._header(stamp, MAP_FRAME)
        self._put("/ground_truth", POSE, stamp, header=header, pose=self._pose(pose))

    def _image(self, stamp: int, encoded: bytes) -> None:
        header = self._header(stamp, CAMERA_FRAME)
        data = np.frombuffer(encoded, dtype=np.uint8)
        if not self._raw:
            kind = format_of(encoded).lower()
            self._put(
                "/image/compressed", COMPRESSED_IMAGE, stamp, header=header, format=kind, data=data
            )
            return
        pixels = decode(encoded, cv2.IMREAD_COLOR)
        if pixels is None:
            return
        height, width = pixels.shape[:2]
        self._put(
            "/image",
            IMAGE,
            stamp,
            header=header,
            height=height,
            width=width,
            encoding="bgr8",
            is_bigendian=0,
            step=3 * width,
            data=np.ascontiguousarray(pixels).reshape(-1),
        )

    def _put(
        self, topic: str, type_name: str, stamp: int, qos: Qos = RELIABLE, **fields: Any
    ) -> None:
        if topic not in self._connections:
            self._connections[topic] = self._writer.add_connection(
                topic, type_name, typestore=self._types, offered_qos_profiles=[qos]
            )
        cdr = self._types.serialize_cdr(self._new(type_name, **fields), type_name)
        self._writer.write(self._connections[topic], stamp, cdr)

    def _new(self, type_name: str, **fields: Any) -> Any:
        return self._types.types[type_name](**fields)

    def _header(self, stamp: int, frame: str) -> Any:
        seconds, nanoseconds = divmod(stamp, 1_000_000_000)
        time = self._new("builtin_interfaces/msg/Time", sec=seconds, nanosec=nanoseconds)
        return self._new("std_msgs/msg/Header", stamp=time, frame_id=frame)

    def _vector(self, x: float = 0.0, y: float = 0.0) -> Any:
        return self._new("geometry_msgs/msg/Vector3", x=x, y=y, z=0.0)

    def _quaternion(self, heading: float) -> Any:
        x, y, z, w = quaternion_of(heading)
        return self._new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)

    def _pose(self, pose: PlanarPose) -> Any:
        x, y, heading = (float(value) for value in pose)
        position = self._new("geometry_msgs/msg/Point", x=x, y=y, z=0.0)
        return self._new(
            "geometry_msgs/msg/Pose", position=position, orientation=self._quaternion(heading)
        )
