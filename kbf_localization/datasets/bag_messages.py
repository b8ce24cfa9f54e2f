"""Planar poses and grey images from decoded ROS messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.bag_topics import IMAGE
from kbf_localization.datasets.image_messages import grey_from_compressed, grey_from_raw
from kbf_localization.geometry import heading_of, planar_block
from kbf_localization.limits import FARTHEST_M

PlanarPose = tuple[float, float, float]


def pose_of(position: Any, orientation: Any) -> PlanarPose | None:
    """(x, y, heading) of a position and a quaternion; None where they mean no pose."""
    heading = heading_of(orientation.x, orientation.y, orientation.z, orientation.w)
    x, y = float(position.x), float(position.y)
    # A comparison with NaN is false.
    if heading is None or not (abs(x) <= FARTHEST_M and abs(y) <= FARTHEST_M):
        return None
    return x, y, heading


def pose_of_message(message: Any) -> PlanarPose | None:
    """The pose in a PoseStamped, PoseWithCovarianceStamped or Odometry."""
    pose = message.pose
    pose = getattr(pose, "pose", pose)
    return pose_of(pose.position, pose.orientation)


def covariance_of_message(message: Any) -> Array:
    """The covariance (3, 3) of (x, y, heading) in an Odometry, as it is."""
    return planar_block(message.pose.covariance)


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
