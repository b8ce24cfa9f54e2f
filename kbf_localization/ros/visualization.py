"""The belief and the map as messages that RViz shows."""

from __future__ import annotations

import numpy as np
from geometry_msgs.msg import Point, PoseArray
from numpy.typing import NDArray
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from kbf_localization.filters.base import Weights
from kbf_localization.ros.conversions import Array, pose_message

# The report's colours, which colour-blind people tell apart.
_POSITIVE = (0.0, 0.45, 0.7)
_NEGATIVE = (0.84, 0.37, 0.0)
_ARROW_M = 0.25
_SHOWN = 1e-3
"""Weights below this share of the largest are invisible and left out."""


def belief_markers(header: Header, poses: Array, weights: Weights) -> MarkerArray:
    """Map poses (n, 3) by weight, as in the paper: blue positive, orange negative.

    The opacity is the weight's size against the largest; each pose has a dot and its heading.
    """
    clear = Marker(header=header, action=Marker.DELETEALL)
    largest = float(np.max(np.abs(weights.values), initial=0.0))
    markers = [clear]
    if largest > 0.0:
        share = weights.values / largest
        for name, colour, shown in (
            ("positive", _POSITIVE, share >= _SHOWN),
            ("negative", _NEGATIVE, share <= -_SHOWN),
        ):
            markers += _marker_pair(
                header, name, poses[weights.rows[shown]], np.abs(share[shown]), colour
            )
    return MarkerArray(markers=markers)


def _marker_pair(
    header: Header, name: str, poses: Array, opacity: Array, colour: tuple[float, float, float]
) -> list[Marker]:
    if not len(poses):
        return []
    red, green, blue = colour
    dots = Marker(header=header, ns=name, id=0, type=Marker.SPHERE_LIST)
    dots.scale.x = dots.scale.y = dots.scale.z = 0.12
    lines = Marker(header=header, ns=name, id=1, type=Marker.LINE_LIST)
    lines.scale.x = 0.03
    for marker in (dots, lines):
        marker.color.a = 1.0
        marker.pose.orientation.w = 1.0
    tips = poses[:, :2] + _ARROW_M * np.stack((np.cos(poses[:, 2]), np.sin(poses[:, 2])), axis=-1)
    for start, tip, alpha in zip(
        poses[:, :2].tolist(), tips.tolist(), opacity.tolist(), strict=True
    ):
        tint = ColorRGBA(r=red, g=green, b=blue, a=0.15 + 0.85 * alpha)
        origin = Point(x=start[0], y=start[1], z=0.0)
        dots.points.append(origin)
        dots.colors.append(tint)
        lines.points.extend((origin, Point(x=tip[0], y=tip[1], z=0.0)))
        lines.colors.extend((tint, tint))
    return [dots, lines]


def belief_poses(header: Header, poses: Array, weights: Weights, count: int) -> PoseArray:
    """The `count` map poses of highest positive weight, heaviest first."""
    order = np.argsort(-weights.values)[:count]
    rows = weights.rows[order[weights.values[order] > 0.0]]
    return pose_array(header, poses[rows])


def pose_array(header: Header, poses: NDArray[np.float64]) -> PoseArray:
    return PoseArray(header=header, poses=[pose_message(pose) for pose in poses])
