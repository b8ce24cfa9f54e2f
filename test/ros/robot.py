"""A robot as the node sees it: its topics, and what comes back."""

from __future__ import annotations

import array
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseWithCovarianceStamped
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.context import Context
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import Empty
from tf2_msgs.msg import TFMessage

from kbf_localization.geometry import compose, relative, spatial_numbers
from kbf_localization.ros.conversions import (
    header,
    nanoseconds,
    planar_pose,
    pose_message,
    pose_with_covariance,
    transform_message,
)
from kbf_localization.ros.node_process import NodeProcess, spinning
from test.ros.tf_buffer import TransformBuffer
from test.ros.world import FRAME_SECONDS, World

RELIABLE = QoSProfile(depth=200)
BEST_EFFORT = QoSProfile(depth=200, reliability=ReliabilityPolicy.BEST_EFFORT)
PATIENCE = 60.0
"""Seconds to wait for what must come: no measure of speed, only an end to a test that fails."""
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


class Robot:
    """Drives through the world and publishes; keeps what the node publishes.

    The stamps are the robot's own clock, which goes on by `FRAME_SECONDS` for each frame however
    fast the frames are sent.
    """

    def __init__(
        self,
        world: World,
        namespace: str = "",
        odom_qos: QoSProfile = RELIABLE,
        image_qos: QoSProfile = RELIABLE,
        node_name: str = "localizer",
    ) -> None:
        self.world = world
        self.metres = 0.0
        self.stamp_ns = time.time_ns()
        self.origin = world.route(0.0)
        self.odometry_sent = 0
        self.odom_frame, self.base_frame = "odom", "base_footprint"
        self.covariance, self.variance_per_metre = np.zeros((3, 3)), 0.0
        self.poses: list[PoseWithCovarianceStamped] = []
        self.tf = TransformBuffer()
        self.status: DiagnosticStatus | None = None
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node("robot", namespace=namespace, context=self.context)
        make, take = self.node.create_publisher, self.node.create_subscription
        self.odom = make(Odometry, "odom", odom_qos)
        self.compressed = make(CompressedImage, "image/compressed", image_qos)
        self.raw = make(Image, "image", image_qos)
        self.tf_out = make(TFMessage, "tf", QoSProfile(depth=100))
        self.tf_static = make(TFMessage, "/tf_static", LATCHED)
        self.drives_by_tf = False
        self.initialpose = make(PoseWithCovarianceStamped, "initialpose", 10)
        take(PoseWithCovarianceStamped, "pose", self.poses.append, LATCHED)
        take(DiagnosticStatus, "status", self._on_status, 10)
        take(TFMessage, "tf", self._on_transforms, QoSProfile(depth=100))
        take(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self.node_name = f"{namespace}/{node_name}".replace("//", "/").lstrip("/")
        self._clients: dict[str, Any] = {}
        self._spinning = ExitStack()
        self._spinning.enter_context(spinning(self.node))

    def close(self) -> None:
        self._spinning.close()
        self.node.destroy_node()
        self.context.try_shutdown()

    @property
    def pose(self) -> np.ndarray:
        """Where the robot really is."""
        return self.world.route(self.metres)

    @property
    def state(self) -> str | None:
        """The localization's state as last published."""
        return self.value("state")

    def value(self, key: str) -> str | None:
        """A figure of the status as last published."""
        if self.status is None:
            return None
        return next((pair.value for pair in self.status.values if pair.key == key), None)

    def count(self, key: str) -> int:
        return int(self.value(key) or 0)

    def wait_for(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """The condition's value once it is true, or its last one when time is up."""
        begun = time.monotonic()
        while not (value := condition()) and (waited := time.monotonic() - begun) < seconds:
            # An image's answer comes within hundredths of a second; of the rest a look is dearer.
            time.sleep(0.005 if waited < 0.2 else 0.02)
        return value

    def wait_until_heard(self, seconds: float = PATIENCE, camera: str = "compressed") -> None:
        """Until an image that is too old has been refused: then all topics are connected."""
        image = self.compressed if camera == "compressed" else self.raw
        odometry = self.tf_out if self.drives_by_tf else self.odom
        topics = (odometry, image, self.initialpose)
        old = self.image_message(stamp_ns=1) if camera == "compressed" else Image()
        assert self.wait_for(lambda: self.status, seconds), "the node has no status"
        before = self.refused_images()

        def heard() -> bool:
            if not all(topic.get_subscription_count() > 0 for topic in topics):
                return False
            self.publish_odometry()
            image.publish(old)
            time.sleep(0.05)
            return self.refused_images() > before

        assert self.wait_for(heard, seconds), f"the node does not listen: {self.status}"

    def odometry_account(self) -> dict[str, int]:
        """Of the odometry sent: how much the node has received, used, refused and missed."""
        refused = ("wrong_frame", "invalid", "stray", "not_finite", "too_far", "late")
        return {
            "sent": self.odometry_sent,
            "received": self.count("odometry_received"),
            "used": self.count("odometry_used"),
            "refused": sum(self.count(f"odometry_{reason}") for reason in refused),
            "missing": self.count("odometry_missing"),
        }

    def refused_images(self) -> int:
        return sum(
            self.count(f"image_{reason}")
            for reason in ("late", "before_odometry", "without_odometry", "invalid", "dropped")
        )

    def publish_odometry(self, pose: np.ndarray | None = None, stamp_ns: int | None = None) -> None:
        self.odometry_sent += 1
        seen = relative(self.origin, self.pose if pose is None else pose)
        stamp_ns = self.stamp_ns if stamp_ns is None else stamp_ns
        if self.drives_by_tf:
            message = transform_message("odom", "base_footprint", stamp_ns, seen)
            self.tf_out.publish(TFMessage(transforms=[message]))
        else:
            self.odom.publish(self.odometry_message(seen, stamp_ns))

    def odometry_message(self, pose: np.ndarray, stamp_ns: int) -> Odometry:
        message = Odometry(header=header(self.odom_frame, stamp_ns))
        message.child_frame_id = self.base_frame
        message.pose.pose = pose_message(pose)
        message.pose.covariance = spatial_numbers(self.covariance)
        return message

    def image_message(self, stamp_ns: int | None = None, pose: Any = None) -> CompressedImage:
        stamp_ns = self.stamp_ns if stamp_ns is None else stamp_ns
        message = CompressedImage(header=header("camera", stamp_ns), format="jpeg")
        data = self.world.jpeg(self.pose if pose is None else pose)
        message.data = array.array("B", data)
        return message

    def move(self, metres: float = 0.1, seconds: float = FRAME_SECONDS, readings: int = 2) -> None:
        """Drive on, publishing odometry meanwhile."""
        for _ in range(readings):
            before = relative(self.origin, self.pose)
            self.metres += metres / readings
            self._grow(relative(self.origin, self.pose)[:2] - before[:2])
            self.stamp_ns += int(1e9 * seconds / readings)
            self.publish_odometry()

    def _grow(self, step: np.ndarray) -> None:
        """The odometry's own covariance after a step, where it has one."""
        if self.variance_per_metre:
            lever = np.eye(3)
            lever[:2, 2] = -step[1], step[0]
            grown = self.variance_per_metre * np.hypot(*step) * np.eye(3)
            self.covariance = lever @ self.covariance @ lever.T + grown

    def wait_until_driven(self) -> None:
        """Until the node has taken the newest odometry, which best effort may lose."""

        def taken() -> bool:
            if self.value("odometry_stamp_ns") == str(self.stamp_ns):
                return True
            self.publish_odometry()
            time.sleep(0.05)
            return False

        assert self.wait_for(taken), self.status

    def carry_to(self, metres: float) -> None:
        """Put the robot elsewhere on its route; its wheels do not notice, the node gets a pose."""
        odometry = relative(self.origin, self.pose)
        self.metres = metres
        self.origin = compose(self.pose, relative(odometry, np.zeros(3)))
        self.call_empty("reinitialize_global_localization")

    def frame(
        self, metres: float = 0.1, wait: float = PATIENCE
    ) -> PoseWithCovarianceStamped | None:
        """Drive on by one frame, publish it, and give the node's answer (None: there was none)."""
        self.move(metres)
        self.compressed.publish(self.image_message())
        return self.answer(self.stamp_ns, wait)

    def answer(self, stamp_ns: int, wait: float = PATIENCE) -> PoseWithCovarianceStamped | None:
        """The node's pose for the image of this stamp."""

        def find() -> PoseWithCovarianceStamped | None:
            for pose in reversed(self.poses):
                if nanoseconds(pose.header.stamp) == stamp_ns:
                    return pose
            return None

        return self.wait_for(find, wait)

    def state_at(self, stamp_ns: int, wait: float = PATIENCE) -> str | None:
        """The state that the node published for the image of this stamp."""
        self.wait_for(lambda: self.value("stamp_ns") == str(stamp_ns), wait)
        return self.state

    def transform_comes(self, stamp_ns: int | None = None) -> bool:
        """Whether map→odom can be looked up at a time (None: now), or soon can."""
        at_ns = self.stamp_ns if stamp_ns is None else stamp_ns
        return bool(self.wait_for(lambda: self.tf.knows(at_ns)))

    def drive(self, frames: int, metres: float = 0.1) -> list[PoseWithCovarianceStamped]:
        """Several frames; the answers that came."""
        answers = [self.frame(metres) for _ in range(frames)]
        return [answer for answer in answers if answer is not None]

    def drive_until_tracking(self, frames: int = 60) -> int:
        """Drive until the node says that it tracks; the number of frames it took."""
        for number in range(1, frames + 1):
            answered = self.frame() is not None
            if answered and self.state_at(self.stamp_ns) == "tracking":
                return number
        raise AssertionError(f"not tracking after {frames} frames but {self.state}")

    def error(self, answer: PoseWithCovarianceStamped | None = None) -> float:
        """Distance in metres from where the robot is to where the node says it is."""
        answer = self.poses[-1] if answer is None else answer
        return float(np.hypot(*(planar_pose(answer.pose.pose)[:2] - self.pose[:2])))

    def give_pose(self, pose: np.ndarray, frame_id: str = "map", sigma: float = 0.3) -> None:
        covariance = np.diag([sigma**2, sigma**2, 0.1**2])
        self.initialpose.publish(pose_with_covariance(frame_id, self.stamp_ns, pose, covariance))

    def call(self, kind: Any, name: str, request: Any = None, seconds: float = PATIENCE) -> Any:
        """A service's answer; AssertionError when none comes.

        A service that this side has found may not have found this side yet, and its answer is then
        lost: a question is asked again after a while. A transition is no question.
        """
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self.node.create_client(kind, name)
        assert client.wait_for_service(seconds), f"no service {name}"
        question = kind.Request() if request is None else request
        asked = [client.call_async(question)]

        def answered() -> Any:
            return next((future for future in asked if future.done()), None)

        end = time.monotonic() + seconds
        while not (future := self.wait_for(answered, 0.5)):
            assert time.monotonic() < end, f"no answer from {name}"
            if kind is not ChangeState:
                asked.append(client.call_async(question))
        return future.result()

    def call_empty(self, name: str) -> None:
        self.call(Empty, name)

    def transition(self, name: str, seconds: float = PATIENCE) -> bool:
        self.lifecycle_state()
        request = ChangeState.Request()
        request.transition.id = TRANSITIONS[name]
        return bool(
            self.call(ChangeState, f"/{self.node_name}/change_state", request, seconds).success
        )

    def lifecycle_state(self) -> str:
        return str(self.call(GetState, f"/{self.node_name}/get_state").current_state.label)

    def wait_for_lifecycle_state(self, label: str, seconds: float = PATIENCE) -> bool:
        return bool(self.wait_for(lambda: self.lifecycle_state() == label, seconds))

    def set_parameter(self, name: str, value: Any) -> Any:
        """The result with `successful` and `reason`."""
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg()]
        )
        return self.call(SetParameters, f"/{self.node_name}/set_parameters", request).results[0]

    def get_parameter(self, name: str) -> Any:
        request = GetParameters.Request(names=[name])
        answer = self.call(GetParameters, f"/{self.node_name}/get_parameters", request)
        return Parameter.from_parameter_msg(
            rclpy.parameter.ParameterMsg(name=name, value=answer.values[0])
        ).value

    def _on_status(self, status: DiagnosticStatus) -> None:
        self.status = status

    def _on_transforms(self, message: TFMessage) -> None:
        for transform in message.transforms:
            if (transform.header.frame_id, transform.child_frame_id) == ("map", "odom"):
                self.tf.insert(transform)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.diagnostics.update({status.name: status for status in message.status})


_names = (f"robot{number}" for number in itertools.count(1))


@contextmanager
def robot_with_node(
    world: World, parameters: Mapping[str, Any], **arguments: Any
) -> Iterator[tuple[Robot, NodeProcess]]:
    """A robot and a node that meet no others: they have their own namespace, tf included."""
    name = next(_names)
    with NodeProcess(parameters, namespace=f"/{name}", remap={"/tf": "tf"}) as process:
        robot = Robot(world, f"/{name}", **arguments)
        try:
            yield robot, process
        finally:
            robot.close()
        assert "Traceback" not in process.log(), process.log()
