"""What RViz is shown."""

import numpy as np
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import Path
from rclpy.qos import QoSProfile
from visualization_msgs.msg import Marker, MarkerArray

from kbf_localization.filters.base import Weights
from kbf_localization.ros.conversions import header, planar_pose
from kbf_localization.ros.outputs import belief_markers, belief_poses
from test.ros.robot import LATCHED, Robot
from test.ros.world import MAP_POSES

POSES = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0], [3.0, 4.0, -1.0], [5.0, 6.0, 2.0]])
WEIGHTS = Weights(np.array([0, 1, 3]), np.array([0.8, 0.4, -0.2]))


def test_positive_weights_are_blue_and_negative_ones_orange() -> None:
    markers = belief_markers(header("map", 7), POSES, WEIGHTS).markers
    assert markers[0].action == Marker.DELETEALL
    dots = {marker.ns: marker for marker in markers[1:] if marker.type == Marker.SPHERE_LIST}
    assert [point.x for point in dots["positive"].points] == [0.0, 1.0]
    assert [point.x for point in dots["negative"].points] == [5.0]
    assert all(colour.b > colour.r for colour in dots["positive"].colors)
    assert all(colour.r > colour.b for colour in dots["negative"].colors)
    first, second = dots["positive"].colors
    assert first.a > second.a


def test_heaviest_poses_come_first() -> None:
    poses = belief_poses(header("map", 7), POSES, WEIGHTS, count=2).poses
    np.testing.assert_allclose([planar_pose(pose) for pose in poses], POSES[[0, 1]])


def test_belief_path_and_map_poses_are_published_to_whoever_looks(robot: Robot) -> None:
    seen: dict[str, list] = {"belief": [], "belief_poses": [], "path": [], "map_poses": []}
    for name, kind, qos in (
        ("belief", MarkerArray, QoSProfile(depth=5)),
        ("belief_poses", PoseArray, QoSProfile(depth=5)),
        ("path", Path, QoSProfile(depth=5)),
        ("map_poses", PoseArray, LATCHED),
    ):
        robot.node.create_subscription(kind, name, seen[name].append, qos)
    assert robot.wait_for(lambda: seen["map_poses"])
    assert len(seen["map_poses"][0].poses) == MAP_POSES
    for _ in range(25):
        robot.frame()
    assert robot.wait_for(lambda: all(seen.values())), {key: len(seen[key]) for key in seen}
    markers = seen["belief"][-1].markers
    assert markers[0].header.frame_id == "map"
    assert sum(len(marker.points) for marker in markers) > 0
    assert len(seen["path"][-1].poses) > 1
