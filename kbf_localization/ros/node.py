"""The lifecycle node `localizer`: convert, call, publish."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import Empty

from kbf_localization.errors import KbfError
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.localization import Localization
from kbf_localization.ros import diagnostics, parameters
from kbf_localization.ros.conversions import header
from kbf_localization.ros.health import figures
from kbf_localization.ros.intake import Intake, Topic
from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.loading import load_localizer
from kbf_localization.ros.outputs import Outputs
from kbf_localization.ros.running_localizer import Frames, RunningLocalizer
from kbf_localization.ros.saved_pose import SavedPoseError, save_pose, usable_pose
from kbf_localization.ros.transform_broadcaster import TransformBroadcaster
from kbf_localization.ros.watchdog import TopicWatch

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
_RELIABILITY = {
    "best_effort": ReliabilityPolicy.BEST_EFFORT,
    "reliable": ReliabilityPolicy.RELIABLE,
}


class LocalizerNode(SafeLifecycleNode):
    """A shell round the Localizer; what it holds between configure and clean-up is `running`."""

    def __init__(self, **arguments: Any) -> None:
        self._running: RunningLocalizer | None = None
        super().__init__("localizer", **arguments)
        self.add_on_set_parameters_callback(self._check_parameters)
        parameters.declare(self)
        self.add_post_set_parameters_callback(self._apply_parameters)
        self._intake: Intake | None = None
        self._watches: tuple[TopicWatch, ...] = ()
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._warned: dict[str, float] = {}
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._group = MutuallyExclusiveCallbackGroup()
        self.create_timer(1.0, self._diagnose, callback_group=self._group, clock=self._steady)
        self._jumps = self.get_clock().create_jump_callback(
            JumpThreshold(
                min_forward=None, min_backward=Duration(seconds=-0.1), on_clock_change=False
            ),
            post_callback=self._clock_jumped,
        )
        if self.get_parameter("autostart").value:
            self._autostart_timer = self.create_timer(
                0.0, self._autostart, callback_group=self.lifecycle_group, clock=self._steady
            )

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        values = parameters.read(self)
        self._values = values
        try:
            localizer = load_localizer(values, self.context.ok)
        except KbfError as error:
            self.get_logger().error(f"cannot configure: {error}")
            return FAILURE
        if localizer is None:
            return FAILURE
        training_map: Any = localizer.training_map
        self._map_identity = str(training_map.identity)
        frames = Frames(values["global_frame_id"], values["odom_frame_id"], values["base_frame_id"])
        self._outputs = Outputs(self, frames.map, training_map.poses, values["path_length"])
        self._broadcaster = TransformBroadcaster(self, frames.map, frames.odom)
        self._running = RunningLocalizer(
            localizer,
            frames,
            self._publish,
            self._warn,
            values["image_queue_depth"],
            values["odometry_patience"],
        )
        self._set_first_pose(values)
        # As deep as the parameters' services: rclpy's 10 lose calls when many come at once.
        deep = QoSProfile(depth=1000)
        self._services_made = tuple(
            self.create_service(Empty, name, callback, qos_profile=deep)
            for name, callback in (
                ("reinitialize_global_localization", self._on_reinitialize),
                ("request_nomotion_update", self._on_no_motion_update),
            )
        )
        self.get_logger().info(
            f"map {values['map']}: {len(training_map.poses)} poses; method {values['method']}"
        )
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        result = super().on_activate(state)
        running, values = self._running, self._values
        if running is None:
            return FAILURE
        odom_qos = QoSProfile(
            depth=values["odom_queue_depth"], reliability=_RELIABILITY[values["odom_reliability"]]
        )
        image_qos = QoSProfile(
            depth=max(5, values["image_queue_depth"]),
            reliability=_RELIABILITY[values["image_reliability"]],
        )
        compressed = values["image_transport"] == "compressed"
        image_topic = "image/compressed" if compressed else "image"
        odom_watch = TopicWatch(self, "odom", odom_qos)
        image_watch = TopicWatch(self, image_topic, image_qos)
        self._watches = (odom_watch, image_watch)

        def on_odometry(message: Odometry) -> None:
            odom_watch.arrived()
            running.odometry_rate.happened()
            running.odometry(message)

        def on_image(message: Any) -> None:
            image_watch.arrived()
            running.image_rate.happened()
            running.image(message)

        image_type = CompressedImage if compressed else Image
        self._intake = Intake(
            self,
            (
                Topic("odom", Odometry, odom_qos, on_odometry),
                Topic(
                    "initialpose",
                    PoseWithCovarianceStamped,
                    QoSProfile(depth=5),
                    running.initial_pose,
                ),
                Topic(image_topic, image_type, image_qos, on_image),
            ),
            running.failed,
        )
        self._active_timers = [
            self.create_timer(
                1.0 / values["transform_rate"],
                self._broadcast,
                callback_group=MutuallyExclusiveCallbackGroup(),
            )
        ]
        if values["save_pose_rate"] > 0.0:
            self._active_timers.append(
                self.create_timer(
                    1.0 / values["save_pose_rate"],
                    self._save_pose,
                    callback_group=self._group,
                    clock=self._steady,
                )
            )
        self._outputs.publish_map_poses(self.get_clock().now().nanoseconds)
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._stop_active()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._release()
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.get_logger().error("a transition has failed: back to unconfigured")
        self._release()
        return SUCCESS

    def close(self) -> None:
        """Stop the threads and save the pose, whatever the state."""
        self._release()
        self._jumps.unregister()

    def _stop_active(self) -> None:
        if self._intake is None:
            return
        self._intake.close()
        self._intake = None
        for timer in self._active_timers:
            self.destroy_timer(timer)
        self._watches = ()
        if self._running is not None:
            self._running.worker.clear()
        self._save_pose()

    def _release(self) -> None:
        self._stop_active()
        running, self._running = self._running, None
        if running is None:
            return
        running.stop()
        for service in self._services_made:
            self.destroy_service(service)
        self._outputs.destroy()
        self._broadcaster.destroy(self)

    def _set_first_pose(self, values: dict[str, Any]) -> None:
        """Start from the saved pose, from initial_pose.*, or from anywhere on the map."""
        running = self._running
        assert running is not None
        if values["saved_pose_file"] and not values["always_reset_initial_pose"]:
            path = Path(values["saved_pose_file"]).expanduser()
            try:
                prior = usable_pose(path, self._map_identity, values["saved_pose_max_age"])
            except SavedPoseError as error:
                self.get_logger().info(str(error))
            else:
                self.get_logger().info(f"starting from the pose saved in {path}")
                running.start_from(prior)
                return
        if values["set_initial_pose"]:
            pose = np.array([values[f"initial_pose.{name}"] for name in ("x", "y", "yaw")])
            sigma_xy, sigma_yaw = values["initial_pose.sigma_xy"], values["initial_pose.sigma_yaw"]
            covariance = np.diag(np.square([sigma_xy, sigma_xy, sigma_yaw]))
            running.start_from(GaussianPrior(pose, covariance))

    def _publish(self, localization: Localization) -> None:
        """Called by the worker for every processed image."""
        if self._intake is None:
            return
        self._outputs.publish_pose(localization)
        self._outputs.publish_status(self._status())
        count = self.get_parameter("belief_poses_count").value
        self._outputs.publish_pictures(localization, count)

    def _broadcast(self) -> None:
        running = self._running
        if running is None or not self._values["tf_broadcast"]:
            return
        transform, now = running.map_to_odom, self.get_clock().now().nanoseconds
        if transform is not None and now > 0:
            tolerance = int(self._values["transform_tolerance"] * 1e9)
            self._broadcaster.send(now + tolerance, transform)

    def _status(self) -> Any:
        """The state with its figures."""
        name, running = self.get_fully_qualified_name(), self._running
        if running is None or self._intake is None:
            return diagnostics.inactive(name, self.get_name(), self.state_label)
        complaints = tuple(filter(None, map(self._complaint, self._watches)))
        values = figures(running, *self._watches)
        state = running.localizer.state
        return diagnostics.status(name, self.get_name(), state, complaints, values)

    def _complaint(self, watch: TopicWatch) -> str | None:
        return watch.explain(self._values["watchdog_timeout"])

    def _diagnose(self) -> None:
        status = self._status()
        now = self.get_clock().now().nanoseconds
        self._diagnostics.publish(DiagnosticArray(header=header("", now), status=[status]))
        if self._intake is not None:
            self._outputs.publish_status(status)
            for watch in self._watches:
                complaint = self._complaint(watch)
                if complaint is not None:
                    self._warn(complaint.split(" for ")[0], complaint)

    def _save_pose(self) -> None:
        running, path = self._running, self._values["saved_pose_file"]
        if running is None or not path or running.map_to_odom is None:
            return
        known = running.localizer.pose_at()
        if known is None:
            return
        try:
            save_pose(Path(path).expanduser(), GaussianPrior(*known), self._map_identity)
        except SavedPoseError as error:
            running.counts["pose_not_saved"] += 1
            self._warn("pose_not_saved", str(error))

    def _on_reinitialize(self, request: Any, response: Any) -> Any:
        if self._running is not None:
            self.get_logger().info("localizing anew, from anywhere on the map")
            self._running.reinitialize()
            self._outputs.forget_path()
        return response

    def _on_no_motion_update(self, request: Any, response: Any) -> Any:
        if self._running is not None:
            self._running.force_update()
        return response

    def _clock_jumped(self, jump: TimeJump) -> None:
        if self._running is not None:
            self._warn("clock", "the clock has jumped back: starting over")
            self._running.time_jumped_back()
            self._outputs.forget_path()

    def _check_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        return parameters.check(changes, configured=self._running is not None)

    def _apply_parameters(self, changes: list[Parameter]) -> None:
        """Make live changes take effect; the belief stays."""
        running = self._running
        if running is None:
            return
        self._values = parameters.read(self)
        running.worker.patience = self._values["odometry_patience"]
        names = ("update_min_d", "update_min_a", "estimate")
        running.set_settings(**{name: self._values[name] for name in names})

    def _warn(self, about: str, said: str) -> None:
        """Log a warning, the same kind at most every 5 seconds."""
        now = time.monotonic()
        if now - self._warned.get(about, -1e9) >= 5.0:
            self._warned[about] = now
            self.get_logger().warning(said)

    def _autostart(self) -> None:
        self.destroy_timer(self._autostart_timer)
        with self._transition_lock:
            if self.state_label == "unconfigured" and self.trigger_configure() == SUCCESS:
                self.trigger_activate()
