"""The node's publishers and the messages that they send."""

from __future__ import annotations

import array
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Point, PoseArray, PoseWithCovarianceStamped, Vector3
from nav_msgs.msg import OccupancyGrid, Path
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, PointCloud2
from std_msgs.msg import ColorRGBA, Header
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

from kbf_localization.arrays import Array
from kbf_localization.datasets.floor_plan_image import FREE, UNKNOWN, FloorPlanImage
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.geometry import position_sigma
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.localization import Localization, State
from kbf_localization.ros.conversions import (
    header,
    point_cloud,
    pose_message,
    pose_with_covariance,
    stamped_pose,
    transform_message,
)
from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.training_map import TrainingMap

try:
    from nav2_msgs.msg import Particle, ParticleCloud
except ImportError:
    ParticleCloud = None

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_MAX_MAP_POSES = 5000
"""Map poses in the topic map_poses."""
# The report's colours, which colour-blind people can distinguish.
_POSITIVE_COLOUR = (0.0, 0.45, 0.7)
_NEGATIVE_COLOUR = (0.84, 0.37, 0.0)
_HYPOTHESIS_COLOUR = (0.0, 0.62, 0.45)
_STATE_COLOURS = {
    State.UNINITIALIZED: (0.5, 0.5, 0.5),
    State.LOCALIZING: (0.34, 0.71, 0.91),
    State.TRACKING: (0.0, 0.62, 0.45),
    State.DEGRADED: (0.9, 0.62, 0.0),
    State.LOST: (0.84, 0.37, 0.0),
}
_ARROW_LENGTH_M = 0.25
_FREE_GREY_LEVEL = (FREE + UNKNOWN) // 2
_MIN_VISIBLE_FRACTION = 1e-3
"""Weights below this fraction of the largest are invisible and left out."""


class Outputs:
    """The publishers and their memory."""

    def __init__(
        self, node: SafeLifecycleNode, values: Mapping[str, Any], training_map: TrainingMap
    ) -> None:
        """`values` are the node's parameters by name."""
        self._node = node
        self._frame_id, self._odom_frame_id = values["global_frame_id"], values["odom_frame_id"]
        self._map, self._map_poses = training_map, training_map.poses
        self._path: deque[tuple[int, Array]] = deque(maxlen=values["path_length"])
        self._path_shown_ns = 0
        self._tf_period_s = 1.0 / values["transform_rate"]
        self._tf_newest_ns = self._tf_ahead_ns = 0
        self._tf_due_at = 0.0
        self._made: list[Any] = []

        def publisher(*arguments: Any) -> Any:
            self._made.append(node.create_lifecycle_publisher(*arguments))
            return self._made[-1]

        self._pose = publisher(PoseWithCovarianceStamped, "pose", LATCHED)
        self._belief = publisher(MarkerArray, "belief", 1)
        self._belief_poses = publisher(PoseArray, "belief_poses", 1)
        self._hypotheses = publisher(MarkerArray, "hypotheses", 1)
        self._best_match = publisher(CompressedImage, "best_match/compressed", 1)
        self._landmarks = publisher(PointCloud2, "landmarks", 1)
        self._map_poses_publisher = publisher(PoseArray, "map_poses", LATCHED)
        self._floor_plan = publisher(OccupancyGrid, "floor_plan", LATCHED)
        self._path_publisher = publisher(Path, "path", 1)
        self._status = publisher(DiagnosticStatus, "status", 10)
        self._state = publisher(Marker, "state", 1)
        self._particles = None
        if ParticleCloud is not None:
            best_effort = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
            self._particles = publisher(ParticleCloud, "particle_cloud", best_effort)
        # As tf2's broadcaster has it; tf2_ros itself is not needed for one transform.
        self._tf = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))

    def destroy(self) -> None:
        self._node.dispose(*self._made, self._tf)

    def send_transform(self, map_to_odom: Array, *stamps_ns: int) -> None:
        """Publish the pose (3,) of the odometry's frame on the map, at these stamps."""
        frames = self._frame_id, self._odom_frame_id
        messages = [transform_message(*frames, stamp_ns, map_to_odom) for stamp_ns in stamps_ns]
        self._tf.publish(TFMessage(transforms=messages))

    def transform_is_due(self, newest_ns: int, tolerance_ns: int) -> bool:
        """Return whether to publish it: each period, or when little is left ahead."""
        if newest_ns == self._tf_newest_ns:
            return False  # tf2 has no use for a second transform of the same time
        if time.monotonic() >= self._tf_due_at:
            return True
        return tolerance_ns > 0 and self._tf_ahead_ns - newest_ns < tolerance_ns // 2

    def keep_transform(self, map_to_odom: Array, newest_ns: int, tolerance_ns: int) -> None:
        """Publish the transform for the newest odometry, and ahead so that it exists "now".

        Ahead only when the last stamp ahead has nearly been reached: a transform sent ahead stays
        in tf's buffers between newer transforms.
        """
        if newest_ns < self._tf_newest_ns:
            self._tf_ahead_ns = 0
        # The average rate is kept, whatever the odometry's rate.
        now, period_s = time.monotonic(), self._tf_period_s
        self._tf_newest_ns, self._tf_due_at = newest_ns, max(self._tf_due_at + period_s, now)
        stamps = [newest_ns]
        if self._tf_ahead_ns - newest_ns < tolerance_ns // 2:
            self._tf_ahead_ns = newest_ns + tolerance_ns
            stamps.append(self._tf_ahead_ns)
        self.send_transform(map_to_odom, *stamps)

    def publish_map(self, stamp_ns: int) -> None:
        """Publish the map's poses, thinned evenly to a number that RViz can draw, and its plan."""
        every = max(1, -(-len(self._map_poses) // _MAX_MAP_POSES))
        poses = self._map_poses[::every]
        top = header(self._frame_id, stamp_ns)
        self._map_poses_publisher.publish(pose_array(top, poses))
        if self._map.floor_plan is not None:
            self._floor_plan.publish(occupancy_grid(top, self._map.floor_plan))

    def publish_pose(self, localization: Localization) -> None:
        """Publish the pose; while lost its covariance is inflated."""
        pose, covariance = localization.pose, localization.published_covariance
        stamp_ns = localization.stamp_ns
        self._pose.publish(pose_with_covariance(self._frame_id, stamp_ns, pose, covariance))

    @property
    def status_is_read(self) -> bool:
        """Whether the status has subscribers."""
        return bool(self._status.get_subscription_count())

    def publish_status(self, status: DiagnosticStatus) -> None:
        self._status.publish(status)

    @property
    def state_is_shown(self) -> bool:
        """Whether the state's marker has subscribers."""
        return bool(self._state.get_subscription_count())

    def publish_state(
        self, stamp_ns: int, pose: Array, covariance: Array, state: State, text: str
    ) -> None:
        """Publish the state as a marker at the pose (3,) with this covariance (3, 3)."""
        top = header(self._frame_id, stamp_ns)
        self._state.publish(state_marker(top, pose, position_sigma(covariance), state, text))

    def publish_visualization(self, localization: Localization, belief_count: int) -> None:
        """Publish belief, hypotheses, best match and path where there are subscribers."""
        if localization.used:
            self._publish_estimate(localization, belief_count)
        if self._path.maxlen and localization.state in (State.TRACKING, State.DEGRADED):
            self._path.append((localization.stamp_ns, localization.pose))
            # A message holds the whole path: once a second is enough.
            elapsed = abs(localization.stamp_ns - self._path_shown_ns)
            if elapsed >= 1_000_000_000 and self._path_publisher.get_subscription_count():
                self._path_shown_ns = localization.stamp_ns
                self._path_publisher.publish(self._path_message(localization.stamp_ns))

    def _publish_estimate(self, localization: Localization, belief_count: int) -> None:
        """Publish what a new estimate says beside the pose."""
        estimate, top = localization.estimate, header(self._frame_id, localization.stamp_ns)
        if self._hypotheses.get_subscription_count():
            self._hypotheses.publish(hypothesis_markers(top, estimate.hypotheses))
        if estimate.weights is not None:
            self._publish_belief(top, estimate.weights, belief_count, estimate.landmark_fix)
        if self._landmarks.get_subscription_count():
            self._landmarks.publish(self._matches(localization.stamp_ns, estimate.landmark_fix))

    def _matches(self, stamp_ns: int, fix: LandmarkFix | None) -> PointCloud2:
        """Return the inlier landmarks, with where they are seen; none without a fix.

        `u` and `v` are fractions of the camera image's width and height, `map_u` and `map_v` those
        in the map image `map_image`; -1 where a landmark is not seen, or was matched with another.
        """
        landmarks = self._map.landmarks
        if landmarks is None or fix is None:
            return point_cloud(self._frame_id, stamp_ns, np.empty((0, 3)))
        here = landmarks.image_places(fix.state, fix.points)
        there = landmarks.map_image_places(fix.best_row, fix.points)
        there[fix.landmarks[:, 0] != fix.best_row] = np.nan
        places = np.nan_to_num(np.column_stack((here, there)), nan=-1.0)
        fields = dict(zip(("u", "v", "map_u", "map_v"), places.T, strict=True))
        return point_cloud(
            self._frame_id,
            stamp_ns,
            fix.points,
            **fields,
            map_image=fix.landmarks[:, 0].astype(np.float64),
        )

    def _publish_belief(
        self, top: Header, weights: Weights, count: int, fix: LandmarkFix | None
    ) -> None:
        poses = self._map_poses
        if self._belief.get_subscription_count():
            self._belief.publish(belief_markers(top, poses, weights))
        if self._belief_poses.get_subscription_count():
            self._belief_poses.publish(belief_poses(top, poses, weights, count))
        if len(weights.rows) and self._best_match.get_subscription_count():
            heaviest = int(weights.rows[np.argmax(weights.values)])
            thumbnail = self._map.thumbnails[heaviest if fix is None else fix.best_row]
            message = CompressedImage(header=top, format="jpeg")
            message.data = array.array("B", bytes(thumbnail))
            self._best_match.publish(message)
        if self._particles is not None and self._particles.get_subscription_count():
            self._particles.publish(particle_cloud(top, poses, weights, count))

    def _path_message(self, stamp_ns: int) -> Path:
        poses = [stamped_pose(self._frame_id, at_ns, pose) for at_ns, pose in self._path]
        return Path(header=header(self._frame_id, stamp_ns), poses=poses)

    def forget_path(self) -> None:
        self._path.clear()


def state_marker(header: Header, pose: Array, sigma_m: float, state: State, text: str) -> Marker:
    """Mark the pose (3,) with the state's text and the standard deviation, in its colour."""
    red, green, blue = _STATE_COLOURS[state]
    marker = Marker(header=header, ns="state", id=0, type=Marker.TEXT_VIEW_FACING)
    marker.pose = pose_message(pose)
    marker.pose.position.z = 1.0
    marker.scale.z = 0.4
    marker.color = ColorRGBA(r=red, g=green, b=blue, a=1.0)
    marker.text = f"{text}\n± {sigma_m:.2f} m"
    return marker


def belief_markers(header: Header, poses: Array, weights: Weights) -> MarkerArray:
    """Mark map poses (n, 3) by weight, as in the paper: blue positive, orange negative.

    The opacity is the weight's size against the largest; each pose has a dot and its heading.
    """
    clear = Marker(header=header, action=Marker.DELETEALL)
    largest = float(np.max(np.abs(weights.values), initial=0.0))
    markers = [clear]
    if largest > 0.0:
        fraction = weights.values / largest
        for name, colour, visible in (
            ("positive", _POSITIVE_COLOUR, fraction >= _MIN_VISIBLE_FRACTION),
            ("negative", _NEGATIVE_COLOUR, fraction <= -_MIN_VISIBLE_FRACTION),
        ):
            markers += _marker_pair(
                header, name, poses[weights.rows[visible]], np.abs(fraction[visible]), colour
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
    tips = poses[:, :2] + _ARROW_LENGTH_M * np.stack(
        (np.cos(poses[:, 2]), np.sin(poses[:, 2])), axis=-1
    )
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


def hypothesis_markers(header: Header, hypotheses: Sequence[HypothesisEstimate]) -> MarkerArray:
    """Mark each hypothesis: an ellipse of two standard deviations, an arrow, its probability.

    The arrow's opacity is the probability; the ellipse lies along its longer axis.
    """
    markers = [Marker(header=header, action=Marker.DELETEALL)]
    red, green, blue = _HYPOTHESIS_COLOUR
    for hypothesis in hypotheses:
        number = hypothesis.number
        probability = min(max(float(hypothesis.probability), 0.0), 1.0)
        tint = ColorRGBA(r=red, g=green, b=blue, a=probability)
        x, y, _ = hypothesis.pose
        variances, axes = np.linalg.eigh(hypothesis.covariance[:2, :2])
        lengths = 4.0 * np.sqrt(np.maximum(variances, 0.0))
        along = float(np.arctan2(axes[1, 1], axes[0, 1]))
        ellipse = Marker(header=header, ns="ellipse", id=number, type=Marker.CYLINDER)
        ellipse.pose = pose_message(np.array([x, y, along]))
        ellipse.scale = Vector3(x=float(lengths[1]), y=float(lengths[0]), z=0.01)
        ellipse.color = ColorRGBA(r=tint.r, g=tint.g, b=tint.b, a=0.4 * probability)
        arrow = Marker(header=header, ns="heading", id=number, type=Marker.ARROW, color=tint)
        arrow.pose = pose_message(hypothesis.pose)
        arrow.scale = Vector3(x=0.5, y=0.08, z=0.08)
        label = Marker(header=header, ns="probability", id=number, type=Marker.TEXT_VIEW_FACING)
        label.pose = pose_message(hypothesis.pose)
        label.pose.position.z = 0.5
        label.scale.z, label.color, label.text = 0.3, tint, f"{100 * probability:.0f} %"
        markers += [ellipse, arrow, label]
    return MarkerArray(markers=markers)


def occupancy_grid(header: Header, plan: FloorPlanImage) -> OccupancyGrid:
    """Convert the plan to map_server's values: 100 is occupied, 0 free, -1 unknown."""
    cells = np.where(plan.image < _FREE_GREY_LEVEL, 100, 0).astype(np.int8)
    cells[np.abs(plan.image.astype(np.int16) - UNKNOWN) < 3] = -1
    grid = OccupancyGrid(header=header)
    grid.info.resolution = float(plan.resolution)
    grid.info.height, grid.info.width = plan.image.shape
    grid.info.origin = pose_message(np.array(plan.origin))
    # The grid's rows go up, the image's down.
    grid.data = array.array("b", np.ascontiguousarray(cells[::-1]).tobytes())
    return grid


def belief_poses(header: Header, poses: Array, weights: Weights, count: int) -> PoseArray:
    """Return the `count` map poses of highest positive weight, in descending order."""
    return pose_array(header, poses[weights.heaviest(count).rows])


def particle_cloud(header: Header, poses: Array, weights: Weights, count: int) -> Any:
    """Return the same as AMCL's particles, whose weights add up to 1."""
    heaviest = weights.heaviest(count)
    fractions = heaviest.values / max(float(heaviest.values.sum()), 1e-300)
    particles = [
        Particle(pose=pose_message(pose), weight=float(fraction))
        for pose, fraction in zip(poses[heaviest.rows], fractions, strict=True)
    ]
    return ParticleCloud(header=header, particles=particles)


def pose_array(header: Header, poses: Array) -> PoseArray:
    return PoseArray(header=header, poses=[pose_message(pose) for pose in poses])
