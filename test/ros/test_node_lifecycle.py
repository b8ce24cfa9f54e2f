"""Lifecycle transitions, start and stop of the node."""

import os
from pathlib import Path

import pytest
import rclpy
from lifecycle_msgs.srv import ChangeState
from rclpy.context import Context
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import Robot, robot_with_node
from test.ros.world import World


def test_missing_map_leaves_the_node_unconfigured_and_says_why(
    world: World, map_file: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "nowhere.kbfmap"
    with robot_with_node(world, {"map": str(missing)}) as (robot, process):
        assert robot.wait_for(lambda: "cannot configure" in process.log())
        line = next(line for line in process.log().splitlines() if "cannot configure" in line)
        assert str(missing) in line
        assert robot.wait_for_lifecycle_state("unconfigured")
        assert not robot.transition("configure")
        bad = tmp_path / "bad.kbfmap"
        bad.write_bytes(b"this is no map")
        assert robot.set_parameter("map", str(bad)).successful
        assert not robot.transition("configure")
        assert str(bad) in process.log()
        assert robot.set_parameter("map", "~nobody-of-that-name/office.kbfmap").successful
        assert not robot.transition("configure")
        assert "~nobody-of-that-name/office.kbfmap: there is no such user's home" in process.log()
        assert robot.set_parameter("map", str(map_file)).successful
        assert robot.set_parameter("saved_pose_file", "~nobody-of-that-name/pose.json").successful
        assert robot.transition("configure")
        assert "~nobody-of-that-name/pose.json: there is no such user's home" in process.log()
        assert robot.lifecycle_state() == "inactive"
        assert process.interrupt(60.0) == 0, process.log()


def test_a_transition_of_a_strange_name_is_refused_in_one_line_without_control_characters(
    robot: Robot, node: NodeProcess
) -> None:
    """rcl prints names that it does not know as they come."""
    request = ChangeState.Request()
    request.transition.label = "\x1b]0;title\x07" + "x" * 5000
    assert not robot.call(ChangeState, f"/{robot.node_name}/change_state", request).success
    assert robot.wait_for(lambda: "there is no such transition" in node.log())
    assert not {"\x1b", "\x07"} & set(node.log())
    assert max(map(len, node.log().splitlines())) < 2500
    request.transition.label = "deactivate"
    assert robot.call(ChangeState, f"/{robot.node_name}/change_state", request).success
    assert robot.transition("activate")


def test_deactivating_keeps_the_belief_and_cleaning_up_drops_it(
    robot: Robot, node: NodeProcess
) -> None:
    robot.drive_until_tracking()
    assert robot.transition("deactivate")
    assert robot.lifecycle_state() == "inactive"
    answers = len(robot.poses)
    robot.frame(wait=0.2)
    assert len(robot.poses) == answers
    assert robot.transition("activate")
    robot.wait_until_heard()
    assert robot.frame() is not None
    assert robot.state == "tracking"
    assert robot.error() < 0.5
    assert robot.transition("deactivate")
    assert robot.transition("cleanup")
    assert robot.lifecycle_state() == "unconfigured"
    assert robot.transition("configure")
    assert robot.transition("activate")
    robot.wait_until_heard()
    assert robot.wait_for(lambda: robot.state == "uninitialized")


def test_transition_that_the_state_does_not_allow_is_answered_no(
    robot: Robot, node: NodeProcess
) -> None:
    assert robot.wait_for_lifecycle_state("active")
    for name in ("configure", "activate", "cleanup"):
        assert not robot.transition(name)
    assert robot.lifecycle_state() == "active"
    assert node.exit_code is None


def test_a_map_that_is_no_file_is_refused_and_services_answer(world: World, tmp_path: Path) -> None:
    """A pipe that nobody writes to must not be waited for."""
    path = tmp_path / "stuck.kbfmap"
    os.mkfifo(path)
    with robot_with_node(world, {"map": str(path)}) as (robot, process):
        assert robot.wait_for(lambda: "stuck.kbfmap" in process.log())
        assert robot.wait_for_lifecycle_state("unconfigured")
        assert robot.get_parameter("map") == str(path)
        assert not robot.transition("configure")
        assert process.interrupt(60.0) == 0, process.log()


class Failing(SafeLifecycleNode):
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        raise MemoryError("no room for the map")

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        return TransitionCallbackReturn.SUCCESS


def test_an_error_in_a_transition_is_reported(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Failing("failing", context=context)
    node.trigger_configure()
    assert node.state_label == "unconfigured"
    node.destroy_node()
    rclpy.try_shutdown(context=context)
    assert "MemoryError in a transition: no room for the map" in capfd.readouterr().err
    assert "in on_configure" in caplog.text


class Obedient(SafeLifecycleNode):
    """Answers each transition as it is asked to."""

    answers: dict[str, TransitionCallbackReturn | Exception]

    def answer(self, name: str) -> TransitionCallbackReturn:
        result = self.answers.get(name, TransitionCallbackReturn.SUCCESS)
        if isinstance(result, Exception):
            raise result
        return result

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.answer("configure")

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.answer("activate")

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self.answer("error")


FAILURE = TransitionCallbackReturn.FAILURE


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"configure": FAILURE},
        {"activate": FAILURE},
        {"activate": ValueError("broken")},
        {"activate": ValueError("broken"), "error": FAILURE},
        {"configure": ValueError("broken"), "error": ValueError("broken too")},
    ],
    ids=str,
)
def test_the_state_that_is_followed_is_that_of_rclpy(
    answers: dict[str, TransitionCallbackReturn | Exception], context: Context
) -> None:
    """By the public callbacks; rclpy itself tells it by a service alone."""
    node = Obedient("obedient", context=context)
    node.answers = answers
    for transition in ("configure", "activate", "deactivate", "activate", "deactivate", "cleanup"):
        try:
            getattr(node, f"trigger_{transition}")()
        except RuntimeError:  # rclpy's, for what the state does not allow
            continue
        assert node.state_label == node._state_machine.current_state[1], transition
    node.destroy_node()
