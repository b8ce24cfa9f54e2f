"""The table of the node's parameters, from which the YAML file and the reference are made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.validate_topic_name import validate_topic_name

from kbf_localization.errors import ParameterError
from kbf_localization.filters.methods import method_names
from kbf_localization.limits import MAX_COORDINATE_M, MAX_PATH_BYTES, shortened
from kbf_localization.ros.diagnostics import MAX_TIME_CORRECTION_S
from kbf_localization.ros.transforms import MAX_NAME_LENGTH

Value = bool | int | float | str


@dataclass(frozen=True)
class NodeParameter:
    """A parameter; a `live` one may change at any time, the others while unconfigured alone."""

    name: str
    default: Value
    description: str
    within: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    live: bool = False
    text_problem: Callable[[str], str | None] = lambda _: None
    """Why a text is not allowed, such as "must not be empty"; None when it is."""

    @property
    def limits(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return " | ".join(self.choices)
        if self.within is not None:
            return "{:g} to {:g}".format(*self.within)
        return {bool: "true or false", str: "text"}.get(type(self.default), "any number")

    def problem(self, value: object) -> str | None:
        """Return why the value is not allowed; None when it is."""
        if type(value) is not type(self.default):
            kind = type(self.default).__name__
            return f"{self.name} must be of type {kind}, as 'ros2 param' says"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{self.name} must be a finite number, not {value}"
        if isinstance(value, (int, float)) and not self._in_range(value):
            return f"{self.name} must be {self.limits}, not {value}"
        if self.choices and value not in self.choices:
            return f"{self.name} must be one of {', '.join(self.choices)}, not {shortened(value)}"
        if isinstance(value, str):
            reason = self.text_problem(value)
            return None if reason is None else f"{self.name} {reason}"
        return None

    def _in_range(self, value: float) -> bool:
        return self.within is None or self.within[0] <= value <= self.within[1]

    def descriptor(self) -> ParameterDescriptor:
        """Return the description and range that `ros2 param describe` shows."""
        when = "" if self.live else "; can change only while the node is unconfigured"
        descriptor = ParameterDescriptor(
            description=self.description, additional_constraints=self.limits + when
        )
        if self.within is not None and isinstance(self.default, float):
            low, high = map(float, self.within)
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        elif self.within is not None:
            first, last = map(int, self.within)
            descriptor.integer_range = [IntegerRange(from_value=first, to_value=last, step=1)]
        return descriptor


_FULL_TURN_RAD = 2.0 * math.pi
_MAX_TOPIC_LENGTH = 247
"""As rmw has it, whose prefix takes the rest of DDS's 255."""


def _path_problem(path: str) -> str | None:
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"has more than the {MAX_PATH_BYTES} bytes of a path"
    return "must not contain a null character" if "\0" in path else None


def _frame_problem(frame: str) -> str | None:
    name = frame.lstrip("/")
    if not name:
        return "must not be empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has more than {MAX_NAME_LENGTH} characters"
    return None if name.isprintable() else "must not contain control characters"


def _topic_problem(topic: str) -> str | None:
    if len(topic) > _MAX_TOPIC_LENGTH:
        return f"has more than the {_MAX_TOPIC_LENGTH} characters of a topic's name"
    if "//" in topic:
        return "must not contain '//'"
    try:
        if topic:
            validate_topic_name(topic)
    except InvalidTopicNameException as error:
        return f"is no topic name: {' '.join(str(error).split())}"
    return None


PARAMETERS: tuple[NodeParameter, ...] = (
    NodeParameter(
        "map", "", "Path of the map file (*.kbfmap) to localize in.", text_problem=_path_problem
    ),
    NodeParameter(
        "descriptor_model",
        "",
        "Path of the network (*.onnx) that the map was made with; empty for a map without one.",
        text_problem=_path_problem,
    ),
    NodeParameter(
        "autostart", True, "Configure and activate at start, without a lifecycle manager."
    ),
    NodeParameter(
        "method", "kbf", "Pose filter; all but kbf are for comparison.", choices=method_names()
    ),
    NodeParameter(
        "estimate",
        "mode_mean",
        "Published pose. mode_mean: the method's own estimate (kbf: mean of its best hypothesis; "
        "others: mean around the belief's mode). highest_weight: the map pose of highest weight. "
        "preimage: the maximum of the kernel mean, where the method has one (kbf has none).",
        choices=("mode_mean", "highest_weight", "preimage"),
        live=True,
    ),
    NodeParameter(
        "global_frame_id",
        "map",
        "Frame of the map and of the published poses.",
        text_problem=_frame_problem,
    ),
    NodeParameter(
        "odom_frame_id",
        "odom",
        "Frame of the odometry; odometry in another frame is refused.",
        text_problem=_frame_problem,
    ),
    NodeParameter(
        "base_frame_id",
        "base_footprint",
        "Frame of the robot whose pose is estimated; a warning says when odometry is of another.",
        text_problem=_frame_problem,
    ),
    NodeParameter(
        "odom_source",
        "topic",
        "Where odometry comes from: the topic odom, or tf (odom_frame_id to base_frame_id).",
        choices=("topic", "tf"),
    ),
    NodeParameter(
        "tf_broadcast",
        True,
        "Publish the transform from global_frame_id to odom_frame_id.",
        live=True,
    ),
    NodeParameter(
        "transform_tolerance",
        1.0,
        "Seconds beyond the newest odometry for which the transform can be looked up already.",
        (0.0, 10.0),
        live=True,
    ),
    NodeParameter(
        "transform_rate",
        30.0,
        "How often the transform is published, in Hz, where odometry comes as often.",
        (1.0, 200.0),
    ),
    NodeParameter(
        "dead_reckoning_max_sigma",
        1.0,
        "Standard deviation in metres to which odometry without images may carry the transform; "
        "beyond it the transform stops, and comes back with an image that can be trusted.",
        (0.01, 1000.0),
        live=True,
    ),
    NodeParameter(
        "dead_reckoning_max_seconds",
        5.0,
        "Seconds for which odometry without images may carry the transform.",
        (0.1, 1e6),
        live=True,
    ),
    NodeParameter(
        "max_tracking_sigma",
        0.5,
        "Standard deviation of the position in metres above which the state is not tracking, "
        "beside the map's own bound, which grows with its scale.",
        (0.001, 1000.0),
        live=True,
    ),
    NodeParameter(
        "degraded_after_seconds",
        2.0,
        "Seconds without an image that confirms the pose after which the state is degraded instead "
        "of tracking.",
        (0.1, 3600.0),
        live=True,
    ),
    NodeParameter(
        "degraded_after_travel",
        2.0,
        "Travel without an image that confirms the pose after which the state is degraded instead "
        "of tracking, as d/d0 + angle/phi0 in the map's own scales (kbf map info): over 2 of them "
        "images lose all likeness.",
        (0.01, 1000.0),
        live=True,
    ),
    NodeParameter(
        "update_min_d",
        0.0,
        "Metres to drive before another image is used; 0 uses every image.",
        (0.0, 100.0),
        live=True,
    ),
    NodeParameter(
        "update_min_a",
        0.0,
        "Radians to turn before another image is used; 0 uses every image.",
        (0.0, _FULL_TURN_RAD),
        live=True,
    ),
    NodeParameter(
        "standing_update_period",
        1.0,
        "Seconds between two used images while the robot stands still and they leave the state as "
        "it is; 0 uses every image.",
        (0.0, 60.0),
        live=True,
    ),
    NodeParameter(
        "set_initial_pose", False, "Start from initial_pose.* instead of from anywhere on the map."
    ),
    NodeParameter(
        "initial_pose.x",
        0.0,
        "Initial x in the map, in metres.",
        (-MAX_COORDINATE_M, MAX_COORDINATE_M),
    ),
    NodeParameter(
        "initial_pose.y",
        0.0,
        "Initial y in the map, in metres.",
        (-MAX_COORDINATE_M, MAX_COORDINATE_M),
    ),
    NodeParameter(
        "initial_pose.z",
        0.0,
        "Not used; here because AMCL has it.",
        (-MAX_COORDINATE_M, MAX_COORDINATE_M),
    ),
    NodeParameter(
        "initial_pose.yaw",
        0.0,
        "Initial heading in the map, in radians.",
        (-_FULL_TURN_RAD, _FULL_TURN_RAD),
    ),
    NodeParameter("initial_pose.sigma_xy", 0.5, "Its uncertainty in metres.", (0.001, 100.0)),
    NodeParameter("initial_pose.sigma_yaw", 0.26, "And in radians.", (0.001, 10.0)),
    NodeParameter(
        "always_reset_initial_pose",
        False,
        "Never start from the saved pose: only from initial_pose.*, or from anywhere on the map.",
    ),
    NodeParameter(
        "saved_pose_file",
        "",
        "File that keeps the pose over a restart; empty: the pose is not kept.",
        text_problem=_path_problem,
    ),
    NodeParameter(
        "save_pose_rate",
        0.5,
        "How often the pose is saved, in Hz; 0 saves at deactivation alone, -1 never.",
        (-1.0, 10.0),
    ),
    NodeParameter(
        "saved_pose_max_age",
        3600.0,
        "A saved pose older than these seconds is not used.",
        (0.0, 1e9),
    ),
    NodeParameter(
        "image_transport",
        "compressed",
        "Subscribe to image/compressed (JPEG, PNG) or to image (raw).",
        choices=("compressed", "raw"),
    ),
    NodeParameter(
        "camera_info_topic",
        "",
        "Topic of the camera's calibration; empty: by convention, camera_info beside the images' "
        "topic.",
        text_problem=_topic_problem,
    ),
    NodeParameter(
        "camera_time_offset",
        0.0,
        "Seconds added to the stamps of images, where the camera's clock or latency puts them "
        "wrong; 'kbf check time' estimates it.",
        (-MAX_TIME_CORRECTION_S, MAX_TIME_CORRECTION_S),
        live=True,
    ),
    NodeParameter(
        "max_image_rate",
        0.0,
        "Images used in a second at most, for a slow computer; the others are not decoded and "
        "get no pose. 0: no limit.",
        (0.0, 1000.0),
        live=True,
    ),
    *(
        NodeParameter(
            name,
            "best_effort",
            "QoS reliability asked for; best_effort receives from every publisher.",
            choices=("best_effort", "reliable"),
        )
        for name in ("image_reliability", "odom_reliability")
    ),
    NodeParameter(
        "image_queue_depth",
        1,
        "Images that may wait for the filter; 1 keeps the newest alone, as a robot wants it.",
        (1, 10000),
    ),
    NodeParameter(
        "odom_queue_depth", 500, "Odometry messages that may wait to be read.", (1, 100000)
    ),
    NodeParameter(
        "odometry_patience",
        1.0,
        "Seconds that an image waits for odometry of its time before it is dropped.",
        (0.01, 60.0),
        live=True,
    ),
    NodeParameter(
        "watchdog_timeout",
        5.0,
        "Seconds without odometry, images or a usable image until a warning names the reason.",
        (0.1, 3600.0),
        live=True,
    ),
    NodeParameter(
        "bond_heartbeat_period",
        0.1,
        "Seconds between heartbeats to Nav2's lifecycle manager, on the topic bond; 0: no bond.",
        (0.0, 1.0),
    ),
    NodeParameter("path_length", 2000, "Poses kept for the topic path; 0 for none.", (0, 100000)),
    NodeParameter(
        "belief_poses_count",
        500,
        "Map poses of highest weight in belief_poses.",
        (1, 100000),
        live=True,
    ),
)
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}


def declare(node: Node) -> None:
    """Declare all parameters; rclpy raises where an initial value is not allowed."""
    for parameter in PARAMETERS:
        node.declare_parameter(parameter.name, parameter.default, parameter.descriptor())


def check(parameters: Iterable[Parameter], configured: bool) -> SetParametersResult:
    """Return whether these changes are allowed, with the reason when not."""
    for change in parameters:
        parameter = BY_NAME.get(change.name)
        if parameter is None:
            continue
        reason = parameter.problem(change.value)
        if reason is None and configured and not parameter.live:
            reason = f"{change.name} can change only while the node is unconfigured: clean it up"
        if reason is not None:
            return SetParametersResult(successful=False, reason=reason)
    return SetParametersResult(successful=True)


def read(node: Node) -> dict[str, Any]:
    """Return the values by name; frames as in tf, without a leading slash."""
    values = {parameter.name: node.get_parameter(parameter.name).value for parameter in PARAMETERS}
    frames = (name for name in values if name.endswith("_frame_id"))
    return {**values, **{name: values[name].lstrip("/") for name in frames}}


def check_frames(values: Mapping[str, Any]) -> None:
    """Refuse a transform from a frame to itself, which tf2 does not take."""
    for name in ("global_frame_id", "base_frame_id"):
        if values[name] == values["odom_frame_id"]:
            raise ParameterError(f"{name} and odom_frame_id are both '{values[name]}'")
