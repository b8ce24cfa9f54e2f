"""Planar poses and grey images from decoded ROS messages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.datasets.bag_topics import IMAGE
from kbf_localization.datasets.image_messages import grey_from_compressed, grey_from_raw

NORM_TOLERANCE = 0.1
"""A quaternion this near to unit length was only rounded; the node draws the line there too."""

PlanarPose = tuple[float, float, float]


def pose_of(position: Any, orientation: Any) -> PlanarPose | None:
    """(x, y, heading) of a position and a quaternion; None where they mean no pose."""
    heading = heading_of(orientation.x, orientation.y, orientation.z, orientation.w)
    x, y = float(position.x), float(position.y)
    if heading is None or not (math.isfinite(x) and math.isfinite(y)):
        return None
    return x, y, heading


def heading_of(x: float, y: float, z: float, w: float) -> float | None:
    """The heading (yaw) of a quaternion of about unit length; None for what is no rotation."""
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(length - 1.0) <= NORM_TOLERANCE:
        return None
    return math.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def quaternion_of(heading: float) -> tuple[float, float, float, float]:
    """(x, y, z, w) of a rotation about the vertical axis."""
    return 0.0, 0.0, math.sin(heading / 2.0), math.cos(heading / 2.0)


def pose_of_message(message: Any) -> PlanarPose | None:
    """The pose in a PoseStamped, PoseWithCovarianceStamped or Odometry."""
    pose = message.pose
    pose = getattr(pose, "pose", pose)
    return pose_of(pose.position, pose.orientation)


def grey_image(message: Any, type_name: str) -> Image | None:
    """The image of an Image or CompressedImage message; None where it cannot be decoded."""
    if type_name != IMAGE:
        return grey_from_compressed(message.data)
    try:
        return grey_from_raw(
            np.asarray(message.data, dtype=np.uint8),
            encoding=message.encoding,
            width=message.width,
            height=message.height,
            step=message.step,
            is_bigendian=bool(message.is_bigendian),
        )
    except ValueError:
        return None
