"""Camera, odometry or both stop, and come back."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.geometry import compose, invert, relative
from test.faults.survival import Survival


@pytest.fixture(scope="module")
def map_file(landmark_map_file: Path) -> Path:
    return landmark_map_file


def test_camera_stops_and_returns(survival: Survival) -> None:
    """The transform goes on, the robot drives a metre blind; tracking again within 15 frames."""
    robot = survival.robot
    # A pose that has only just been found is less certain, and cannot be carried on as far.
    robot.drive(20)
    for _ in range(10):
        robot.move()
        assert robot.transform_comes(), robot.status
    survival.check(frames=15)


def test_odometry_stops_and_returns(survival: Survival) -> None:
    """Images without odometry are dropped and counted; tracking again within 15 frames."""
    robot = survival.robot
    dropped = robot.count("image_without_odometry")
    for _ in range(5):
        robot.stamp_ns += 2_000_000_000
        robot.compressed.publish(robot.image_message())
    assert robot.wait_for(lambda: robot.count("image_without_odometry") > dropped)
    for _ in range(4):
        robot.move()
    survival.check(frames=15)


def test_camera_and_odometry_stop_and_return(survival: Survival) -> None:
    """As after a lost network: an hour passes on the clock; tracking again within 15 frames."""
    survival.robot.stamp_ns += 3_600_000_000_000
    for _ in range(4):
        survival.robot.move()
    survival.check(frames=15)


def test_robot_is_switched_off_and_its_odometry_starts_from_zero(survival: Survival) -> None:
    """Odometry's origin changes: a jump, not a motion; tracking again within 30 frames."""
    robot = survival.robot
    robot.stamp_ns += 20_000_000_000
    robot.origin = robot.pose
    for _ in range(4):
        robot.move()
    survival.check(frames=30)


def test_robot_is_kidnapped(survival: Survival) -> None:
    """It says that it is lost, publishes no confident pose then, and finds itself in 40 frames."""
    robot = survival.robot
    seen_by_odometry = relative(robot.origin, robot.pose)
    robot.metres += 0.5 * np.pi * (0.5 * robot.world.width + 0.5 * robot.world.length - 3.0)
    robot.origin = compose(robot.pose, invert(seen_by_odometry))
    lost = []
    for _ in range(40):
        answer = robot.frame()
        assert answer is not None
        state = robot.state_at(robot.stamp_ns)
        if state == "lost":
            if not lost:
                known_to_ns = robot.tf.newest_ns
            # tf, which Nav2 drives by, does not go on either.
            assert robot.tf.newest_ns == known_to_ns
            lost.append(np.sqrt(np.reshape(answer.pose.covariance, (6, 6))[0, 0]))
        elif lost:
            break
    assert lost, "it never said that it is lost"
    assert min(lost) >= 2.0
    assert "localizer]: lost: the images do not fit" in survival.node.log()
    survival.check(frames=40)
