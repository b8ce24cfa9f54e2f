"""map→odom as a listener of tf sees it: right, at hand now, gone when it cannot be trusted."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.geometry import compose, relative
from kbf_localization.ros.conversions import nanoseconds, planar_pose
from test.ros.robot import Robot, robot_with_node
from test.ros.world import World


def stand(robot: Robot, seconds: float) -> None:
    """Odometry of a robot that stands for so long, and no images."""
    for _ in range(round(10 * seconds)):
        robot.move(0.0)
    robot.wait_until_driven()


def drive_blind_until(robot: Robot, said: str) -> None:
    """Drive without images until the node says so; on a closed route errors grow and shrink."""
    for _ in range(20):
        for _ in range(5):
            robot.move(0.4, seconds=0.4)
        robot.wait_until_driven()
        if said in robot.status.message:
            return


def test_transform_at_an_images_stamp_is_what_its_pose_says(robot: Robot) -> None:
    robot.drive_until_tracking()
    robot.tf.clear()
    robot.poses.clear()
    odometry = {}
    for _ in range(12):
        assert robot.frame() is not None
        odometry[robot.stamp_ns] = relative(robot.origin, robot.pose)
        assert robot.transform_comes()
    for message in robot.poses:
        stamp_ns, pose = nanoseconds(message.header.stamp), planar_pose(message.pose.pose)

        def off(stamp_ns: int = stamp_ns, pose: np.ndarray = pose) -> float:
            return float(
                np.abs(compose(robot.tf.lookup(stamp_ns), odometry[stamp_ns]) - pose).max()
            )

        # An image's transform follows its pose, and may not have arrived.
        assert robot.wait_for(lambda off=off: off() < 1e-9), off()


def test_transform_is_there_now_and_a_little_ahead(robot: Robot) -> None:
    """By default for a second after the newest odometry; refreshed when half of it has passed."""
    robot.drive_until_tracking()
    for _ in range(5):
        robot.move()
        assert robot.transform_comes(robot.stamp_ns + 500_000_000)
        assert robot.tf.newest_ns is not None
        assert robot.tf.newest_ns <= robot.stamp_ns + 1_000_000_000


def test_transform_between_images_is_near_the_newest_estimate(robot: Robot) -> None:
    """What was sent ahead, a second ago, does not hide what is known now."""
    robot.drive_until_tracking()
    for _ in range(15):
        robot.frame()
        robot.transform_comes()
    known = robot.tf.lookup(robot.stamp_ns)
    robot.move(0.01, seconds=0.02)
    assert robot.transform_comes()
    np.testing.assert_allclose(robot.tf.lookup(robot.stamp_ns - 5_000_000), known, atol=0.02)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("dead_reckoning_max_seconds", 5.0, "more than dead_reckoning_max_seconds"),
        ("dead_reckoning_max_sigma", 0.2, "more than dead_reckoning_max_sigma"),
    ],
)
def test_transform_stops_when_the_camera_does_and_comes_back_with_it(
    robot: Robot, name: str, value: float, said: str
) -> None:
    robot.drive_until_tracking()
    default = robot.get_parameter(name)
    assert robot.set_parameter(name, value).successful
    try:
        if name.endswith("seconds"):
            stand(robot, value + 0.5)
        else:
            assert robot.set_parameter("dead_reckoning_max_seconds", 1000.0).successful
            drive_blind_until(robot, said)
        assert robot.wait_for(lambda: said in robot.status.message), robot.status
        assert robot.status.level == b"\x01"
        stand(robot, 1.5)
        robot.status = None
        assert robot.wait_for(lambda: robot.status and said in robot.status.message)
        assert not robot.tf.knows(robot.stamp_ns)
    finally:
        assert robot.set_parameter(name, default).successful
        assert robot.set_parameter("dead_reckoning_max_seconds", 5.0).successful
    robot.drive_until_tracking()
    assert robot.transform_comes()
    assert "not sent" not in robot.status.message


def test_transform_stops_with_the_odometry(robot: Robot) -> None:
    """Its stamps are the odometry's: nothing can be looked up that the wheels have not seen."""
    robot.drive_until_tracking()
    robot.move()
    robot.wait_until_driven()
    seen = []
    for _ in range(2):
        robot.status = None
        assert robot.wait_for(lambda: robot.status)
        seen.append(robot.tf.newest_ns)
    assert seen[0] == seen[1]
    assert not robot.tf.knows(robot.stamp_ns + 1_000_000_001)


def test_transform_has_the_robots_time_where_its_clock_is_not_the_nodes(
    world: World, map_file: Path
) -> None:
    """An hour apart, as in a bag without use_sim_time: found by the robot's stamps; said once."""
    with robot_with_node(world, {"map": str(map_file)}) as (robot, process):
        robot.stamp_ns -= 3_600_000_000_000
        robot.wait_until_heard()
        robot.drive_until_tracking()
        assert robot.transform_comes()
        assert robot.wait_for(lambda: "behind this computer's clock" in process.log())
        robot.drive(3)
        for _ in range(2):
            robot.status = None
            assert robot.wait_for(lambda: robot.status)
        assert process.log().count("behind this computer's clock") == 1
