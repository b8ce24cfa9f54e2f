"""All that the node publishes between configuring and cleaning up."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Point, PoseArray, PoseWithCovarianceStamped
from nav_msgs.msg import Path
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import ColorRGBA, Header
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

from kbf_localization.arrays import Array
from kbf_localization.filters.base import Weights
from kbf_localization.localization import Localization, State
from kbf_localization.ros.conversions import (
    header,
    pose_message,
    pose_with_covariance,
    stamped_pose,
    transform_message,
)

_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_MAP_POSES_SHOWN = 5000
# The report's colours, which colour-blind people tell apart.
_POSITIVE = (0.0, 0.45, 0.7)
_NEGATIVE = (0.84, 0.37, 0.0)
_ARROW_M = 0.25
_SHOWN = 1e-3
"""Weights below this share of the largest are invisible and left out."""


class Outputs:
    """The publishers and what they need to remember."""

    def __init__(
        self,
        node: LifecycleNode,
        frame_id: str,
        odom_frame_id: str,
        map_poses: Array,
        path_length: int,
    ) -> None:
        self._node = node
        self._frame_id, self._odom_frame_id = frame_id, odom_frame_id
        self._map_poses = map_poses
        self._path: deque[tuple[int, Array]] = deque(maxlen=path_length)
        self._path_shown_ns = 0
        publisher = node.create_lifecycle_publisher
        self._pose = publisher(PoseWithCovarianceStamped, "pose", _LATCHED)
        self._belief = publisher(MarkerArray, "belief", 1)
        self._belief_poses = publisher(PoseArray, "belief_poses", 1)
        self._map_poses_publisher = publisher(PoseArray, "map_poses", _LATCHED)
        self._path_publisher = publisher(Path, "path", 1)
        self._status = publisher(DiagnosticStatus, "status", 10)
        # As tf2's broadcaster has it; tf2_ros itself is not needed for one transform.
        self._tf = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        self._all: tuple[Any, ...] = (
            self._pose,
            self._belief,
            self._belief_poses,
            self._map_poses_publisher,
            self._path_publisher,
            self._status,
        )

    def destroy(self) -> None:
        for publisher in self._all:
            self._node.destroy_lifecycle_publisher(publisher)
        self._node.destroy_publisher(self._tf)

    def send_transform(self, stamp_ns: int, map_to_odom: Array) -> None:
        """Publish the odometry's frame (3,) on the map."""
        message = transform_message(self._frame_id, self._odom_frame_id, stamp_ns, map_to_odom)
        self._tf.publish(TFMessage(transforms=[message]))

    def publish_map_poses(self, stamp_ns: int) -> None:
        """The map's poses, thinned evenly where they are too many to look at."""
        every = max(1, -(-len(self._map_poses) // _MAP_POSES_SHOWN))
        poses = self._map_poses[::every]
        self._map_poses_publisher.publish(pose_array(header(self._frame_id, stamp_ns), poses))

    def publish_pose(self, localization: Localization) -> None:
        """The pose; while lost its covariance says that it is not to be relied on."""
        message = pose_with_covariance(
            self._frame_id,
            localization.stamp_ns,
            localization.pose,
            localization.published_covariance,
        )
        self._pose.publish(message)

    def publish_status(self, status: DiagnosticStatus) -> None:
        self._status.publish(status)

    def publish_pictures(self, localization: Localization, belief_count: int) -> None:
        """Belief and path, where somebody looks."""
        top = header(self._frame_id, localization.stamp_ns)
        weights = localization.estimate.weights
        if weights is not None and self._belief.get_subscription_count():
            self._belief.publish(belief_markers(top, self._map_poses, weights))
        if weights is not None and self._belief_poses.get_subscription_count():
            self._belief_poses.publish(belief_poses(top, self._map_poses, weights, belief_count))
        if self._path.maxlen and localization.state is State.TRACKING:
            self._path.append((localization.stamp_ns, localization.pose))
            # The whole path is sent each time: once a second is often enough.
            elapsed = abs(localization.stamp_ns - self._path_shown_ns)
            if elapsed >= 1_000_000_000 and self._path_publisher.get_subscription_count():
                self._path_shown_ns = localization.stamp_ns
                self._path_publisher.publish(self._path_message(top))

    def _path_message(self, top: Header) -> Path:
        poses = [stamped_pose(self._frame_id, stamp_ns, pose) for stamp_ns, pose in self._path]
        return Path(header=top, poses=poses)

    def forget_path(self) -> None:
        self._path.clear()


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


def pose_array(header: Header, poses: Array) -> PoseArray:
    return PoseArray(header=header, poses=[pose_message(pose) for pose in poses])
