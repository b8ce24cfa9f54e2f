"""The node on a simulated drive, over DDS, in its own process."""

import math
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.mapping import load_map
from test.ros.robot import Robot


@pytest.fixture(scope="module")
def map_file(landmark_map_file: Path) -> Path:
    return landmark_map_file


def test_no_pose_and_no_transform_before_the_first_image(lost_robot: Robot) -> None:
    for _ in range(5):
        lost_robot.move()
    lost_robot.status = None
    assert lost_robot.wait_for(lambda: lost_robot.state == "uninitialized")
    assert lost_robot.poses == []
    assert lost_robot.tf.newest_ns is None


def test_global_start_converges(lost_robot: Robot) -> None:
    assert lost_robot.drive_until_tracking() <= 15
    answers = lost_robot.drive(10)
    assert len(answers) == 10
    assert lost_robot.error() < 0.5
    assert lost_robot.poses[-1].header.frame_id == "map"
    covariance = np.reshape(lost_robot.poses[-1].pose.covariance, (6, 6))
    np.testing.assert_allclose(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance[:2, :2])[0] > 0.0


def test_diagnostics_have_the_status(robot: Robot) -> None:
    robot.drive_until_tracking()

    def reported() -> bool:
        assert robot.status is not None
        found = robot.diagnostics.get(robot.status.name)
        return found is not None and "tracking" in {value.value for value in found.values}

    assert robot.wait_for(reported), robot.diagnostics


def test_initial_pose_from_rviz_is_used_at_once(lost_robot: Robot) -> None:
    lost_robot.move()
    lost_robot.give_pose(lost_robot.pose)
    lost_robot.move()
    assert lost_robot.transform_comes()
    answer = lost_robot.frame()
    assert lost_robot.error(answer) < 0.5


def test_wrong_initial_pose_is_not_published_as_certain(lost_robot: Robot) -> None:
    """Until the images have shown where the robot is, the covariance covers the error.

    Where the first image says as little as a blank wall, a given pose stands as it was given; the
    robot is where it says more, wherever other tests left it.
    """
    lost_robot.carry_to(1.0)
    lost_robot.move()
    wrong = lost_robot.world.route(lost_robot.metres + 3.0)
    lost_robot.give_pose(wrong)
    assert lost_robot.wait_for(lambda: lost_robot.tf.knows(lost_robot.stamp_ns))
    for _ in range(40):
        answer = lost_robot.frame()
        assert answer is not None
        state, error = lost_robot.state_at(lost_robot.stamp_ns), lost_robot.error(answer)
        covariance = np.reshape(answer.pose.covariance, (6, 6))[:2, :2]
        sigma = math.sqrt(np.linalg.eigvalsh(covariance)[-1])
        assert error < max(0.5, 3.0 * sigma), (state, error, sigma)
        if state == "tracking":
            break
    assert state == "tracking"
    assert error < 0.5


def test_initial_pose_in_the_wrong_frame_is_refused(robot: Robot) -> None:
    robot.drive_until_tracking()
    refused = robot.count("initial_pose_wrong_frame")
    robot.give_pose(np.array([-3.0, 2.0, 1.0]), frame_id="odom")
    assert robot.wait_for(lambda: robot.count("initial_pose_wrong_frame") > refused)
    assert robot.state == "tracking"
    robot.drive(2)
    assert robot.error() < 0.5


def test_initial_pose_that_is_not_finite_is_refused(robot: Robot) -> None:
    robot.drive_until_tracking()
    refused = robot.count("initial_pose_invalid")
    robot.give_pose(np.array([np.nan, 0.0, 0.0]))
    assert robot.wait_for(lambda: robot.count("initial_pose_invalid") > refused)
    assert robot.state == "tracking"


def test_initial_pose_off_the_map_is_used_and_warned_of(robot: Robot) -> None:
    robot.drive_until_tracking()
    warned = robot.count("initial_pose_off_map")
    robot.give_pose(robot.pose)
    robot.give_pose(np.array([1e4, 0.0, 0.0]))
    assert robot.wait_for(lambda: robot.count("initial_pose_off_map") == warned + 1)
    assert robot.state != "tracking"
    robot.call_empty("reinitialize_global_localization")
    robot.drive_until_tracking()


def test_reinitialization_starts_from_anywhere(robot: Robot) -> None:
    robot.drive_until_tracking()
    robot.call_empty("reinitialize_global_localization")
    assert robot.wait_for(lambda: robot.state == "uninitialized")
    robot.tf.clear()
    robot.move()
    robot.status = None
    assert robot.wait_for(lambda: robot.state == "uninitialized")
    assert robot.tf.newest_ns is None
    assert robot.drive_until_tracking() > 1


def test_odometry_that_knows_its_noise_is_believed_and_a_constant_is_not(
    robot: Robot, map_file: Path
) -> None:
    def noise_of(frames: int) -> str | None:
        assert len(robot.drive(frames)) == frames
        robot.state_at(robot.stamp_ns)
        return robot.value("motion_noise")

    calibration = load_map(map_file).calibration.motion_noise
    robot.drive_until_tracking()
    assert noise_of(1) == "map"
    try:
        robot.covariance = 1e-3 * np.eye(3)
        assert noise_of(3) == "map"
        robot.variance_per_metre = 3.0 * min(calibration.per_metre)
        assert noise_of(3) == "odometry"
        assert robot.error() < 0.5
    finally:
        robot.covariance, robot.variance_per_metre = np.zeros((3, 3)), 0.0
    assert noise_of(3) == "map"


def test_image_older_than_all_odometry_is_dropped_and_counted(lost_robot: Robot) -> None:
    lost_robot.move()
    before = lost_robot.count("image_before_odometry") + lost_robot.count("image_late")
    lost_robot.compressed.publish(lost_robot.image_message(stamp_ns=1_000_000_000))
    assert lost_robot.wait_for(
        lambda: lost_robot.count("image_before_odometry") + lost_robot.count("image_late") > before
    )
    assert lost_robot.poses == []


def test_repeated_image_is_used_once(robot: Robot) -> None:
    assert robot.frame() is not None
    late, answers = robot.count("image_late"), len(robot.poses)
    robot.compressed.publish(robot.image_message())
    assert robot.wait_for(lambda: robot.count("image_late") == late + 1)
    assert len(robot.poses) == answers


def test_standing_still_uses_no_image_unless_an_update_is_asked_for(robot: Robot) -> None:
    robot.drive_until_tracking()
    assert robot.set_parameter("update_min_d", 0.5).successful
    assert robot.set_parameter("update_min_a", 0.5).successful
    try:
        # The camera shows the same image again, which a filter that uses it notices.
        noticed = robot.count("frozen_image")
        robot.frame(metres=0.0)
        answer = robot.frame(metres=0.0)
        assert answer is not None
        assert robot.count("frozen_image") == noticed
        assert robot.state == "tracking"
        robot.call_empty("request_nomotion_update")
        assert robot.frame(metres=0.0) is not None
        assert robot.wait_for(lambda: robot.count("frozen_image") > noticed)
    finally:
        assert robot.set_parameter("update_min_d", 0.0).successful
        assert robot.set_parameter("update_min_a", 0.0).successful
