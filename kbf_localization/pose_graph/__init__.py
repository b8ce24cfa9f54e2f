"""The poses of drives from wheel odometry and one camera: keyframes, closures, graph on SE(2)."""

from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.pose_graph.result import PoseEstimates

__all__ = ["Anchor", "PoseEstimates", "estimate_poses"]
