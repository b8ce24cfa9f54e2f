"""All that the node publishes between configuring and cleaning up."""

from __future__ import annotations

from collections import deque
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseArray, PoseWithCovarianceStamped
from nav_msgs.msg import Path
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Header
from visualization_msgs.msg import MarkerArray

from kbf_localization.localization import Localization, State
from kbf_localization.ros.conversions import Array, header, pose_with_covariance, stamped_pose
from kbf_localization.ros.visualization import belief_markers, belief_poses, pose_array

_LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_MAP_POSES_SHOWN = 5000


class Outputs:
    """The publishers and what they need to remember."""

    def __init__(
        self, node: LifecycleNode, frame_id: str, map_poses: Array, path_length: int
    ) -> None:
        self._node = node
        self._frame_id = frame_id
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
