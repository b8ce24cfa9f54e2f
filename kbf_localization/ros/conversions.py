"""Between ROS messages and planar poses.

rclpy does not check field types by default and then corrupts a wrong one silently (an int in a
float field arrives as 5e-324), so every number is wrapped in float() or int() here.
"""

from __future__ import annotations

import math

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import (
    Pose,
    PoseStamped,
    PoseWithCovariance,
    PoseWithCovarianceStamped,
    Quaternion,
    TransformStamped,
)
from numpy.typing import NDArray
from std_msgs.msg import Header

Array = NDArray[np.float64]

_PLANAR = np.array([0, 1, 5])
"""Rows of ROS's (x, y, z, roll, pitch, yaw) that a planar pose has."""

_NORM_TOLERANCE = 0.1
"""A quaternion this far from unit length is a rounding error; tf2 draws the line there too."""


def nanoseconds(stamp: Time) -> int:
    """A message's stamp in nanoseconds."""
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds as a message's stamp."""
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    return Time(sec=seconds, nanosec=rest)


def header(frame_id: str, stamp_ns: int) -> Header:
    return Header(stamp=time_message(stamp_ns), frame_id=frame_id)


def heading(orientation: Quaternion) -> float:
    """The yaw of a quaternion in radians; ValueError for one that is no rotation."""
    x, y, z, w = orientation.x, orientation.y, orientation.z, orientation.w
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(norm - 1.0) <= _NORM_TOLERANCE:
        raise ValueError(f"quaternion of length {norm:g}")
    return math.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def quaternion(yaw: float) -> Quaternion:
    """The rotation by `yaw` (radians) about the vertical."""
    return Quaternion(x=0.0, y=0.0, z=math.sin(0.5 * yaw), w=math.cos(0.5 * yaw))


def planar_pose(pose: Pose) -> Array:
    """(x, y, heading) of a pose; ValueError for one that is not finite or no rotation."""
    planar = np.array([pose.position.x, pose.position.y, heading(pose.orientation)])
    if not np.isfinite(planar).all():
        raise ValueError("position is not finite")
    return planar


def pose_message(pose: Array) -> Pose:
    """A planar pose (3,) as a message."""
    message = Pose(orientation=quaternion(float(pose[2])))
    message.position.x, message.position.y = float(pose[0]), float(pose[1])
    return message


def planar_covariance(values: object) -> Array:
    """The (3, 3) covariance of (x, y, heading) in ROS's 36 numbers; ValueError if it is none."""
    full = np.asarray(values, dtype=np.float64)
    if full.shape != (36,) or not np.isfinite(full).all():
        raise ValueError("covariance is not 36 finite numbers")
    planar = full.reshape(6, 6)[np.ix_(_PLANAR, _PLANAR)]
    if not np.allclose(planar, planar.T, rtol=1e-6, atol=1e-12):
        raise ValueError("covariance is not symmetric")
    smallest = np.linalg.eigvalsh(planar)[0]
    if smallest < -1e-9:
        raise ValueError("covariance has a negative eigenvalue")
    return planar


def covariance_message(covariance: Array) -> Array:
    """ROS's 36 numbers of the covariance (3, 3) of (x, y, heading)."""
    full = np.zeros((6, 6))
    full[np.ix_(_PLANAR, _PLANAR)] = covariance
    return full.reshape(36)


def pose_with_covariance(
    frame_id: str, stamp_ns: int, pose: Array, covariance: Array
) -> PoseWithCovarianceStamped:
    return PoseWithCovarianceStamped(
        header=header(frame_id, stamp_ns),
        pose=PoseWithCovariance(pose=pose_message(pose), covariance=covariance_message(covariance)),
    )


def stamped_pose(frame_id: str, stamp_ns: int, pose: Array) -> PoseStamped:
    return PoseStamped(header=header(frame_id, stamp_ns), pose=pose_message(pose))


def transform_message(parent: str, child: str, stamp_ns: int, transform: Array) -> TransformStamped:
    """The planar transform (3,) that takes coordinates in `child` to `parent`."""
    message = TransformStamped(header=header(parent, stamp_ns), child_frame_id=child)
    message.transform.translation.x = float(transform[0])
    message.transform.translation.y = float(transform[1])
    message.transform.rotation = quaternion(float(transform[2]))
    return message
