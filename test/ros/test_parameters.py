"""Every parameter: description, range, a valid and an invalid value on the running node."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rcl_interfaces.srv import DescribeParameters

from kbf_localization.errors import ParameterError
from kbf_localization.ros.node_process import NodeProcess
from kbf_localization.ros.parameters import BY_NAME, PARAMETERS, NodeParameter, check_frames
from test.ros.robot import Robot

PROJECT = Path(__file__).resolve().parents[2]
each = pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter.name)


def valid_value(parameter: NodeParameter) -> Any:
    if parameter.choices:
        return parameter.choices[-1]
    if parameter.within is not None:
        return type(parameter.default)(0.5 * sum(parameter.within))
    return {bool: not parameter.default, str: "something"}[type(parameter.default)]


def invalid_values(parameter: NodeParameter) -> list[Any]:
    wrong: list[Any] = [1.5 if isinstance(parameter.default, str) else "nonsense"]
    if parameter.choices:
        wrong.append("nonsense")
    if parameter.within is not None:
        kind, (low, high) = type(parameter.default), parameter.within
        wrong += [kind(high + 1), kind(low - 1)]
        wrong += [float("nan"), float("inf")] if kind is float else []
    return wrong


@each
def test_valid_value_is_accepted_when_it_may_change_and_refused_with_a_reason_when_not(
    robot: Robot, node: NodeProcess, parameter: NodeParameter
) -> None:
    robot.wait_for_lifecycle_state("active")
    before = robot.get_parameter(parameter.name)
    result = robot.set_parameter(parameter.name, valid_value(parameter))
    assert result.successful == parameter.live
    if parameter.live:
        assert robot.get_parameter(parameter.name) == valid_value(parameter)
        assert robot.set_parameter(parameter.name, before).successful
    else:
        assert "only while the node is unconfigured" in result.reason
        assert robot.get_parameter(parameter.name) == before


@each
def test_invalid_value_is_refused_with_a_reason(
    robot: Robot, node: NodeProcess, parameter: NodeParameter
) -> None:
    before = robot.get_parameter(parameter.name)
    for value in invalid_values(parameter):
        result = robot.set_parameter(parameter.name, value)
        assert not result.successful
        # rclpy itself refuses another type, and does not name the parameter.
        assert parameter.name in result.reason or "Wrong parameter type" in result.reason
    assert robot.get_parameter(parameter.name) == before


PATHS = "map", "descriptor_model", "saved_pose_file"
FRAMES = "global_frame_id", "odom_frame_id", "base_frame_id"


@pytest.mark.parametrize(
    ("names", "good", "bad"),
    [
        (PATHS, ("", "~/büro/карта 地図.kbfmap", "é" * 2047), ("é" * 2048, "a\0b", "a" * 10**7)),
        (FRAMES, ("map", "/map", "wörld", "x" * 1000), ("", "///", "x" * 1001, "a\nb", "a\x1b[2J")),
        (("camera_info_topic",), ("", "~/info", "/a/b"), ("a b", "/a//b", "ß", "{", "a" * 10**6)),
        (("image_transport",), ("raw",), ("", "Raw", "raw ", "rаw", "x" * 10**6)),
    ],
    ids=["paths", "frames", "topics", "choices"],
)
def test_texts_of_any_kind_are_taken_or_refused_in_a_short_line(
    names: tuple[str, ...], good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for name in names:
        assert [BY_NAME[name].problem(text) for text in good] == [None] * len(good)
        for text in bad:
            reason = BY_NAME[name].problem(text)
            assert reason is not None and reason.startswith(f"{name} ")
            assert len(reason) < 300 and "\n" not in reason


def test_frames_that_are_the_same_are_named() -> None:
    values = {parameter.name: parameter.default for parameter in PARAMETERS}
    check_frames(values)
    for name in ("global_frame_id", "base_frame_id"):
        with pytest.raises(ParameterError, match=f"{name} and odom_frame_id"):
            check_frames({**values, name: "odom"})


def test_coordinates_to_10_000_km_may_be_given() -> None:
    """As UTM's northings; a map may have them."""
    assert BY_NAME["initial_pose.y"].problem(5_334_000.5) is None
    assert BY_NAME["initial_pose.y"].problem(1.1e7) is not None


def test_live_changes_do_not_lose_the_belief(robot: Robot, node: NodeProcess) -> None:
    robot.drive_until_tracking()
    for parameter in PARAMETERS:
        if parameter.live:
            assert robot.set_parameter(parameter.name, valid_value(parameter)).successful
    for parameter in PARAMETERS:
        if parameter.live:
            default = {"watchdog_timeout": 2.0}.get(parameter.name, parameter.default)
            assert robot.set_parameter(parameter.name, default).successful
    assert robot.frame() is not None
    assert robot.state == "tracking"
    assert robot.error() < 0.5


def test_every_parameter_is_described(robot: Robot, node: NodeProcess) -> None:
    request = DescribeParameters.Request(names=[parameter.name for parameter in PARAMETERS])
    answer = robot.call(DescribeParameters, "/localizer/describe_parameters", request)
    assert all(descriptor.description for descriptor in answer.descriptors)
    for descriptor, parameter in zip(answer.descriptors, PARAMETERS, strict=True):
        ranges = [*descriptor.floating_point_range, *descriptor.integer_range]
        assert bool(ranges) == (parameter.within is not None)


def test_the_yaml_file_has_every_default() -> None:
    text = (PROJECT / "config" / "localization.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)["/**"]["ros__parameters"]
    assert content == {parameter.name: parameter.default for parameter in PARAMETERS}


@pytest.mark.parametrize(
    "given", [{"transform_rate": 30}, {"method": "guess"}, {"odom_frame_id": ""}]
)
def test_wrong_value_at_the_start_is_one_clear_line_and_exit_code_2(given: dict[str, Any]) -> None:
    with NodeProcess({"map": "any.kbfmap", **given}) as process:
        process.wait(60.0)
        assert process.exit_code == 2
        (line,) = [line for line in process.log().splitlines() if "cannot start" in line]
        assert next(iter(given)) in line
        assert "Traceback" not in process.log()
