"""Clocks of camera and odometry that disagree; a camera that drops images; a robot that stands."""

import time
from pathlib import Path

import numpy as np
import pytest
from geometry_msgs.msg import PoseArray
from tf2_msgs.msg import TFMessage

from kbf_localization.ros.conversions import transform_message
from test.faults.survival import Survival
from test.ros.robot import Robot, robot_with_node
from test.ros.world import World


def show(robot: Robot, offset_s: float, metres: float = 0.1) -> None:
    """Drive on by one frame, whose image is stamped `offset_s` wrong."""
    robot.move(metres)
    stamp_ns = robot.stamp_ns + round(offset_s * 1e9)
    robot.compressed.publish(robot.image_message(stamp_ns))


@pytest.mark.parametrize(("offset_s", "where"), [(20.0, "ahead of"), (-50.0, "behind")])
def test_images_that_cannot_be_used_are_explained_and_the_offset_mends_it(
    world: World, map_file: Path, offset_s: float, where: str
) -> None:
    parameters = {"map": str(map_file), "watchdog_timeout": 0.5, "odometry_patience": 0.2}
    with robot_with_node(world, parameters) as (robot, process):
        robot.wait_until_heard()
        line = f"they are stamped {abs(offset_s):.2f} s {where} the odometry"

        def explained() -> bool:
            show(robot, offset_s)
            # Not faster: once odometry is 50 s long, images that are so far behind can be used.
            time.sleep(0.05)
            return line in process.log()

        assert robot.wait_for(explained), process.log()
        assert f"set camera_time_offset to {-offset_s:.2f}" in process.log()
        assert "no image could be used" in process.log()
        assert robot.wait_for(lambda: line in robot.status.message)
        assert float(robot.value("image_offset_s") or 0.0) == pytest.approx(offset_s, abs=0.05)
        assert robot.set_parameter("camera_time_offset", -offset_s).successful

        def tracks() -> bool:
            show(robot, offset_s)
            answer = robot.answer(robot.stamp_ns)
            return answer is not None and robot.state_at(robot.stamp_ns) == "tracking"

        assert robot.wait_for(tracks), robot.status
        assert robot.transform_comes()
        assert robot.error() < 0.5


def test_images_half_a_second_late_are_named_in_the_status(survival: Survival) -> None:
    robot = survival.robot

    def named() -> bool:
        show(robot, -0.5)
        return "images are stamped 0.5" in robot.status.message

    assert robot.wait_for(named)
    assert robot.set_parameter("camera_time_offset", 0.5).successful
    try:
        for _ in range(20):
            show(robot, -0.5)
            assert robot.answer(robot.stamp_ns) is not None
        assert robot.error() < 0.5
    finally:
        assert robot.set_parameter("camera_time_offset", 0.0).successful


def test_offset_out_of_range_is_refused_with_the_range(survival: Survival) -> None:
    for value in (61.0, -1e9, float("nan")):
        result = survival.robot.set_parameter("camera_time_offset", value)
        assert not result.successful
        assert "camera_time_offset" in result.reason
    survival.check(frames=3)


def test_images_that_the_camera_drops_are_counted(survival: Survival) -> None:
    robot = survival.robot
    for _ in range(15):
        assert robot.frame() is not None
    missing = robot.count("images_missing")
    robot.move()
    robot.move()
    assert robot.frame() is not None
    robot.state_at(robot.stamp_ns)
    assert robot.count("images_missing") == missing + 2
    survival.check(frames=3)


def test_a_corrected_camera_clock_is_no_missing_image(survival: Survival) -> None:
    robot = survival.robot
    for _ in range(12):
        assert robot.frame() is not None
    missing, late = robot.count("images_missing"), robot.count("image_late")
    assert robot.set_parameter("camera_time_offset", -0.3).successful
    robot.frame(wait=0.0)
    assert robot.wait_for(lambda: robot.count("image_late") > late)
    assert robot.set_parameter("camera_time_offset", 0.0).successful
    assert robot.frame() is not None
    robot.state_at(robot.stamp_ns)
    assert robot.count("images_missing") == missing
    survival.check(frames=3)


def test_standing_robot_uses_few_images_and_answers_all(survival: Survival) -> None:
    """Three seconds at 10 Hz: of 30 images about 3 are used, at the default of one a second."""
    robot = survival.robot
    beliefs: list[PoseArray] = []
    robot.node.create_subscription(PoseArray, "belief_poses", beliefs.append, 50)
    assert robot.wait_for(lambda: robot.frame() and beliefs)
    beliefs.clear()
    for _ in range(30):
        assert robot.frame(metres=0.0) is not None
    assert robot.wait_for(lambda: len(beliefs) >= 2)
    assert len(beliefs) <= 4
    used = len(beliefs)
    robot.call_empty("request_nomotion_update")
    robot.frame(metres=0.0)
    assert robot.wait_for(lambda: len(beliefs) > used)
    survival.check(frames=3)


def test_odometry_from_tf_alone_and_a_loop_in_it(world: World, map_file: Path) -> None:
    parameters = {"map": str(map_file), "odom_source": "tf", "base_frame_id": "base_link"}
    with robot_with_node(world, parameters) as (robot, process):
        fixed = transform_message("base_footprint", "base_link", 0, np.zeros(3))
        robot.tf_static.publish(TFMessage(transforms=[fixed]))
        robot.drives_by_tf = True
        robot.wait_until_heard()
        robot.drive_until_tracking()
        assert robot.error() < 0.5
        assert robot.transform_comes()
        loop = transform_message("base_link", "base_footprint", robot.stamp_ns, np.zeros(3))
        robot.tf_out.publish(TFMessage(transforms=[loop]))
        said = "tf loops: base_link → base_footprint → base_link"
        assert robot.wait_for(lambda: said in process.log())
        Survival(robot, process).check(frames=5)
