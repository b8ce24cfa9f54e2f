"""The states that an operator sees: status, diagnostics, log and marker agree."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from visualization_msgs.msg import Marker

from kbf_localization.geometry import compose
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import Robot

DEGRADED = r"degraded: no usable image for 3\.0 s and \d\.\d m"
UNCONFIRMED = (
    r"degraded: (images are not recognized|the map shows nothing of what the camera sees)"
    r" for \d\.\d s and 0\.0 m.*"
)


def state_lines(process: NodeProcess) -> list[str]:
    """The changes of state in the node's log."""
    states = "uninitialized|localizing|tracking|degraded|lost"
    return re.findall(rf"\[localizer\]: ((?:{states}): .*)", process.log())


def test_a_dead_camera_degrades_the_state_until_images_are_back(
    lost_robot: Robot, node: NodeProcess
) -> None:
    robot, markers, statuses = lost_robot, [], []
    robot.node.create_subscription(Marker, "state", markers.append, 10)
    robot.node.create_subscription(DiagnosticStatus, "status", statuses.append, 10)
    robot.drive_until_tracking()
    assert robot.wait_for(lambda: any(m.text.startswith("tracking") for m in markers))
    started = r"tracking: .* s after start, ± \d.\d\d m(, \d+ inliers)?"
    assert re.fullmatch(started, state_lines(node)[-1])
    sigma_before = float(robot.value("sigma_m"))

    robot.move(metres=0.2, seconds=1.0)
    robot.wait_until_driven()
    assert robot.state == "tracking"
    robot.move(metres=0.4, seconds=2.0, readings=10)
    assert robot.wait_for(lambda: robot.state == "degraded"), robot.status
    status = robot.status
    assert status.level == DiagnosticStatus.WARN
    assert re.match(DEGRADED, status.message)
    assert float(robot.value("sigma_m")) > sigma_before
    diagnostics = robot.diagnostics[f"/{robot.node_name}"]
    assert robot.wait_for(
        lambda: robot.diagnostics[f"/{robot.node_name}"].message.startswith("degraded")
    ), diagnostics
    assert robot.wait_for(lambda: markers[-1].text.startswith("degraded: no usable image"))
    assert re.fullmatch(DEGRADED, state_lines(node)[-1])

    def values() -> list[dict[str, str]]:
        return [{pair.key: pair.value for pair in status.values} for status in statuses]

    def first_degraded() -> int | None:
        found = (k for k, value in enumerate(values()) if value["state"] == "degraded")
        return next(found, None)

    # The robot's own subscription may be served first.
    first = robot.wait_for(first_degraded)
    # The seconds start again with the state, in the first status that has it.
    assert float(values()[first]["state_since_s"]) < float(values()[first - 1]["state_since_s"])

    assert robot.frame() is not None
    assert robot.state_at(robot.stamp_ns) == "tracking"
    assert robot.wait_for(lambda: "images confirm the pose again" in state_lines(node)[-1])
    assert robot.status.message.startswith("tracking")


def test_a_view_that_the_map_lacks_degrades_the_state(lost_robot: Robot, node: NodeProcess) -> None:
    """The robot turns round in a room that the map shows in one direction alone."""
    robot = lost_robot
    robot.carry_to(0.0)
    robot.drive_until_tracking()
    here, states = robot.pose, [robot.state]
    for angle in np.arange(1, 37) * np.pi / 36.0:
        pose = compose(here, (0.0, 0.0, angle))
        robot.stamp_ns += 100_000_000
        robot.publish_odometry(pose)
        robot.compressed.publish(robot.image_message(pose=pose))
        assert robot.answer(robot.stamp_ns) is not None
        states.append(robot.state_at(robot.stamp_ns))
        if states[-1] != "tracking":
            break
    assert states[-1] == "degraded", states
    assert robot.status.level == DiagnosticStatus.WARN
    assert re.match(UNCONFIRMED, robot.status.message), robot.status.message
    assert float(robot.value("unconfirmed_s")) > float(robot.value("dead_reckoned_s"))
    assert re.fullmatch(UNCONFIRMED, state_lines(node)[-1])


@contextmanager
def altered(robot: Robot, name: str, value: float) -> Iterator[None]:
    """Set a parameter of a robot that tracks; with its former value it tracks again."""
    former = robot.get_parameter(name)
    assert robot.set_parameter(name, value).successful
    try:
        yield
    finally:
        assert robot.set_parameter(name, former).successful
    assert robot.frame() is not None
    assert robot.state_at(robot.stamp_ns) == "tracking"


def test_a_withheld_transform_is_no_tracking(lost_robot: Robot) -> None:
    """By a bound of the transform that is narrower than those of the state."""
    robot = lost_robot
    robot.drive_until_tracking()
    with altered(robot, "dead_reckoning_max_seconds", 0.5):
        robot.move(metres=0.2, seconds=1.0)
        robot.wait_until_driven()
        assert robot.wait_for(lambda: robot.state == "degraded")
        assert "more than dead_reckoning_max_seconds" in robot.status.message


def test_a_pose_that_is_not_precise_enough_is_no_tracking(lost_robot: Robot) -> None:
    robot = lost_robot
    robot.drive_until_tracking()
    with altered(robot, "max_tracking_sigma", 0.001):
        assert robot.frame() is not None
        assert robot.state_at(robot.stamp_ns) == "localizing"


def test_silent_odometry_is_no_tracking(lost_robot: Robot) -> None:
    """Without odometry the transform is not sent, however well the last image fitted."""
    robot = lost_robot
    robot.drive_until_tracking()
    with altered(robot, "watchdog_timeout", 0.5):
        assert robot.wait_for(lambda: robot.state == "degraded")
        assert robot.status.level == DiagnosticStatus.WARN
        assert robot.status.message.startswith("degraded: no odometry for 1 s"), robot.status
