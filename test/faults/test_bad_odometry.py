"""Odometry that is not a pose, or not the robot's."""

import time

import numpy as np
import pytest

from kbf_localization.geometry import relative
from test.faults.survival import Survival


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("field", ["x", "y"])
def test_position_that_is_not_finite_or_absurd(
    survival: Survival, field: str, value: float
) -> None:
    robot = survival.robot
    robot.stamp_ns += 1_000_000
    message = robot.odometry_message(np.zeros(3), robot.stamp_ns)
    setattr(message.pose.pose.position, field, value)
    robot.odom.publish(message)
    survival.check(frames=15)


@pytest.mark.parametrize(
    "quaternion",
    [(0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 3.0), (np.nan, 0.0, 0.0, 1.0), (np.inf,) * 4],
)
def test_quaternion_that_is_no_rotation(survival: Survival, quaternion: tuple[float, ...]) -> None:
    robot = survival.robot
    refused = robot.count("odometry_invalid")
    message = robot.odometry_message(np.zeros(3), robot.stamp_ns + 1_000_000)
    rotation = message.pose.pose.orientation
    rotation.x, rotation.y, rotation.z, rotation.w = quaternion
    robot.odom.publish(message)
    survival.check(frames=3)
    assert robot.wait_for(lambda: robot.count("odometry_invalid") == refused + 1)


def test_quaternion_that_is_slightly_off_unit_length_is_used(survival: Survival) -> None:
    robot = survival.robot
    refused = robot.count("odometry_invalid")
    for _ in range(5):
        robot.move(0.05)
        robot.stamp_ns += 10_000_000
        message = robot.odometry_message(relative(robot.origin, robot.pose), robot.stamp_ns)
        rotation = message.pose.pose.orientation
        rotation.z, rotation.w = 1.03 * rotation.z, 1.03 * rotation.w
        robot.odom.publish(message)
    survival.check(frames=3)
    assert robot.count("odometry_invalid") == refused


COVARIANCES = {
    "not a number": (np.full(36, np.nan),) * 2,
    "beyond all": (np.full(36, 1e308),) * 2,
    "negative": (-np.eye(6).ravel(),) * 2,
    "of standing and of driving": (
        np.diag([1e-9] * 6).ravel(),
        np.diag([1e-3] * 5 + [1e3]).ravel(),
    ),
    "falling": (np.eye(6).ravel(), 1e-3 * np.eye(6).ravel()),
}


@pytest.mark.parametrize("covariances", COVARIANCES.values(), ids=COVARIANCES.keys())
def test_covariance_that_is_made_up(
    survival: Survival, covariances: tuple[np.ndarray, np.ndarray]
) -> None:
    """It is passed over: the motion's noise stays the map's."""
    robot = survival.robot
    for number in range(6):
        robot.metres += 0.1
        robot.stamp_ns += 100_000_000
        message = robot.odometry_message(relative(robot.origin, robot.pose), robot.stamp_ns)
        message.pose.covariance = covariances[number % 2]
        robot.odom.publish(message)
        robot.compressed.publish(robot.image_message())
        assert robot.answer(robot.stamp_ns) is not None
        robot.state_at(robot.stamp_ns)
        assert robot.value("motion_noise") == "map"
    survival.check(frames=3)


def test_frame_id_that_changes(survival: Survival) -> None:
    """Odometry of another frame is refused, named in the log, and counted."""
    robot = survival.robot
    message = robot.odometry_message(np.array([50.0, 50.0, 1.0]), robot.stamp_ns + 1_000_000)
    message.header.frame_id = "other_odom"

    def is_said() -> bool:
        robot.odom.publish(message)
        time.sleep(0.05)
        return "'other_odom'" in survival.node.log()

    assert robot.wait_for(is_said)
    survival.check(frames=3)
    assert robot.count("odometry_wrong_frame") >= 1


def test_odometry_that_teleports_and_comes_back(survival: Survival) -> None:
    robot = survival.robot
    robot.stamp_ns += 20_000_000
    robot.odom.publish(robot.odometry_message(np.array([1000.0, -1000.0, 2.0]), robot.stamp_ns))
    survival.check(frames=30)


def test_control_characters_in_a_frames_name_are_shown_not_sent(survival: Survival) -> None:
    robot = survival.robot
    message = robot.odometry_message(robot.pose, robot.stamp_ns)
    message.header.frame_id = "wheels\x1b]52;c;ZWNobyBoaQ==\x07"

    def is_said() -> bool:
        robot.odom.publish(message)
        time.sleep(0.05)
        return r"wheels\x1b]52" in survival.node.log()

    assert robot.wait_for(is_said)
    assert not set(survival.node.log()) & set("\x1b\x07")
    survival.check()
