"""The node on a map in UTM's frame: what it publishes keeps millimetres."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.geometry import compose, relative
from kbf_localization.mapping import build_map
from kbf_localization.ros.conversions import cloud_columns
from kbf_localization.training_map import save_map
from test.conftest import learning_quickly
from test.ros.robot import robot_with_node
from test.ros.world import Array, World

UTM = np.array([691_608.25, 5_334_764.5, 0.0])


class FarWorld(World):
    """The same room in Munich, zone 32."""

    def route(self, metres: float) -> Array:
        return super().route(metres) + UTM

    def image(self, pose: Array) -> NDArray[np.uint8]:
        return super().image(pose - UTM)


def test_node_in_utm_localizes_as_at_the_origin(tmp_path: Path) -> None:
    world = FarWorld()
    drives = [
        ColdDrive(world.write_cold(tmp_path / f"seq{number}_cloudy1", 70, 0.03, offset))
        for number, offset in enumerate((-0.15, 0.15))
    ]
    with learning_quickly():
        save_map(build_map(drives, poses=70, words=80, landmarks=True), tmp_path / "far.kbfmap")
    clouds: list[PointCloud2] = []
    with robot_with_node(world, {"map": str(tmp_path / "far.kbfmap")}) as (robot, process):
        robot.node.create_subscription(PointCloud2, "landmarks", clouds.append, 10)
        robot.wait_until_heard()
        robot.drive_until_tracking()
        answers = robot.drive(10)
        assert len(answers) == 10, process.log()
        assert robot.error() < 0.05
        assert robot.transform_comes()
        # Odometry begins at the origin, wherever the robot is.
        base = compose(robot.tf.lookup(robot.stamp_ns), relative(robot.origin, robot.pose))
        np.testing.assert_allclose(base[:2], robot.pose[:2], atol=0.05)
        assert robot.wait_for(lambda: any(cloud.width for cloud in clouds))
        cloud = next(item for item in reversed(clouds) if item.width)
    columns = cloud_columns(cloud, cloud.width)
    points = np.column_stack((columns["x"], columns["y"])) - UTM[:2]
    # They lie on the walls of the room, 9 m by 6 m.
    assert np.median(np.abs(np.abs(points / (4.5, 3.0)).max(axis=1) - 1.0)) < 0.02
