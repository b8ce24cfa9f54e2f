"""Stamps in the future, in the past, equal, zero; clocks that jump."""

import pytest

from test.faults.survival import Survival

HOUR = 3_600_000_000_000
WRONG = {"future": HOUR, "past": -HOUR, "equal": 0, "near future": 2_000_000_000}


@pytest.mark.parametrize("offset", WRONG.values(), ids=WRONG.keys())
def test_odometry_with_a_wrong_stamp_now_and_then(survival: Survival, offset: int) -> None:
    """Every third message is wrong; none of it is used, tracking does not stop."""
    robot = survival.robot
    resets = robot.count("resets")
    for _ in range(6):
        robot.publish_odometry(stamp_ns=robot.stamp_ns + offset)
        robot.frame()
    assert robot.count("resets") == resets
    survival.check(frames=3)


def test_odometry_with_stamps_of_zero(survival: Survival) -> None:
    robot = survival.robot
    for _ in range(10):
        robot.publish_odometry(stamp_ns=0)
    survival.check(frames=3)


@pytest.mark.parametrize("offset", [HOUR, -HOUR, 0], ids=["future", "past", "equal"])
def test_image_with_a_wrong_stamp(survival: Survival, offset: int) -> None:
    """It is dropped and counted; the next one is used."""
    robot = survival.robot
    refused = robot.refused_images()
    robot.compressed.publish(robot.image_message(robot.stamp_ns + offset))
    assert robot.frame() is not None
    assert robot.wait_for(lambda: robot.refused_images() > refused)
    survival.check(frames=3)


def test_image_with_a_stamp_of_zero(survival: Survival) -> None:
    robot = survival.robot
    refused = robot.refused_images()
    robot.compressed.publish(robot.image_message(0))
    assert robot.wait_for(lambda: robot.refused_images() > refused)
    survival.check(frames=3)


def test_clock_jumps_forward(survival: Survival) -> None:
    """Nothing is reset: the robot may have stood for an hour."""
    robot = survival.robot
    resets = robot.count("resets")
    robot.stamp_ns += HOUR
    for _ in range(4):
        robot.move(0.0)
    survival.check(frames=15)
    assert robot.count("resets") == resets


def test_clock_jumps_back(survival: Survival) -> None:
    """The belief is dropped; tracking again within 15 frames."""
    robot = survival.robot
    resets = robot.count("resets")
    robot.stamp_ns -= HOUR
    for _ in range(4):
        robot.move(0.0)
    assert robot.wait_for(lambda: robot.count("resets") == resets + 1)
    robot.tf.clear()
    survival.check(frames=15)
