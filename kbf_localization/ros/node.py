"""The lifecycle node `localizer`: convert, call, publish."""

from __future__ import annotations

import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import PoseWithCovarianceStamped
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from std_srvs.srv import Empty

from kbf_localization.errors import KbfError
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.localization import Localization
from kbf_localization.ros import diagnostics, parameters
from kbf_localization.ros.conversions import header
from kbf_localization.ros.lifecycle import Bond, SafeLifecycleNode, make_bond
from kbf_localization.ros.localizer_server import LocalizerServer
from kbf_localization.ros.outputs import Outputs
from kbf_localization.ros.startup import (
    first_pose,
    load_localizer,
    save_pose,
    user_path,
)

try:
    from nav2_msgs.srv import SetInitialPose
except ImportError:
    SetInitialPose = None

_DUPLICATE_SEARCH_PERIOD_S = 5.0
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class LocalizerNode(SafeLifecycleNode):
    """The ROS interface of the localizer.

    `_server` exists between configure and clean-up and reads topics while active. Timers run on
    other threads than transitions: they hold `_in_use` while they use the server, and a transition
    takes it to remove the server, so that nothing in use is destroyed. `shutdown` is set when the
    process shuts down, so that it does not wait for a map.
    """

    def __init__(self, shutdown: threading.Event | None = None, **arguments: Any) -> None:
        self._server: LocalizerServer | None = None
        self._bond: Bond | None = None
        self._shutdown_asked = shutdown or threading.Event()
        self._in_use = threading.RLock()
        super().__init__("localizer", **arguments)
        self.add_on_set_parameters_callback(self._check_parameters)
        parameters.declare(self)
        self.add_post_set_parameters_callback(self._apply_parameters)
        self._clocks_compared = False
        self._duplicates_searched_at = -_DUPLICATE_SEARCH_PERIOD_S
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._group = MutuallyExclusiveCallbackGroup()
        self.create_timer(1.0, self._diagnose, callback_group=self._group, clock=self.steady)
        back = JumpThreshold(
            min_forward=None, min_backward=Duration(seconds=-0.1), on_clock_change=False
        )
        clock = self.get_clock()
        self._jumps = clock.create_jump_callback(back, post_callback=self._clock_jumped)
        if self.get_parameter("autostart").value:
            self.start_by_itself()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        values = parameters.read(self)
        self._values = values
        try:
            parameters.check_frames(values)
            localizer = load_localizer(values, lambda: not self._shutdown_asked.is_set())
        except KbfError as error:
            self.log.error(f"cannot configure: {error}")
            return FAILURE
        if localizer is None:
            return FAILURE
        training_map: Any = localizer.training_map
        self._map_identity = str(training_map.identity)
        self._outputs = Outputs(self, values, training_map)
        self._server = LocalizerServer(
            localizer, values, self._publish, self._broadcast, self.log, self.warn
        )
        prior, origin = first_pose(values, self._map_identity)
        if prior is not None:
            localizer.set_pose(prior)
            self._server.warn_off_map(prior.pose)
        self._listen_while_configured(self._server)
        count, method = len(training_map.poses), values["method"]
        self.log.info(f"map {values['map']}: {count} poses; method {method}; {origin}")
        return super().on_configure(state)

    def _listen_while_configured(self, server: LocalizerServer) -> None:
        """Offer services and take given poses, also before the node is active."""
        services = [
            (Empty, "reinitialize_global_localization", self._on_reinitialize),
            (Empty, "request_nomotion_update", self._on_no_motion_update),
        ]
        if SetInitialPose is None:
            self.log.info(
                "nav2_msgs is not installed: no service set_initial_pose, no topic particle_cloud"
            )
        else:
            services.append((SetInitialPose, "set_initial_pose", self._on_set_initial_pose))
        # As deep as the parameters' services: rclpy's 10 lose calls when many come at once.
        deep = QoSProfile(depth=1000)
        self._made_at_configure = [
            self.create_subscription(
                PoseWithCovarianceStamped, "initialpose", server.on_initial_pose, 5
            ),
            *(self.create_service(*service, qos_profile=deep) for service in services),
        ]

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        result = super().on_activate(state)
        server, values = self._server, self._values
        if server is None:
            return FAILURE
        server.start_reading(self)
        self._active_timers = []
        if values["save_pose_rate"] > 0.0:
            period_s = 1.0 / values["save_pose_rate"]
            self._active_timers.append(
                self.create_timer(period_s, self._save_pose, self._group, clock=self.steady)
            )
        self._outputs.publish_map(self.get_clock().now().nanoseconds)
        self._bond = make_bond(self, values["bond_heartbeat_period"])
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
        self.log.error("a transition has failed: back to unconfigured")
        self._release()
        return SUCCESS

    def close(self) -> Bond | None:
        """Stop the threads and save the pose, whatever the state; return the bond that it ends."""
        bond = self._bond
        self._release()
        self._jumps.unregister()
        return bond

    def _stop_active(self) -> None:
        bond, self._bond = self._bond, None
        if bond is not None:
            bond.end()
        self._save_pose()
        server = self._server
        if server is not None and server.is_reading:
            server.stop_reading()
            self.dispose(*self._active_timers)

    def _release(self) -> None:
        self._stop_active()
        with self._in_use:
            server, self._server = self._server, None
        if server is not None:
            server.stop()
            self.dispose(*self._made_at_configure)
            self._outputs.destroy()

    def _publish(self, localization: Localization) -> None:
        """Publish a localization; the worker calls it, which ends before the publishers."""
        server = self._server
        if server is None or not server.is_reading:
            return
        self._outputs.publish_pose(localization)
        if self._outputs.status_is_read:
            self._outputs.publish_status(self._status())
        self._outputs.publish_visualization(localization, self._values["belief_poses_count"])
        self._show_state(server)
        with self._in_use:
            # So that tf agrees with the pose at the image's stamp. An image that was not used
            # leaves the transform as it is, which is sent with the odometry.
            wanted = self._values["tf_broadcast"] and localization.used
            if wanted and self._server is not None and server.report.transform_veto() is None:
                transform = server.localizer.map_to_odom()
                if transform is not None:
                    self._outputs.send_transform(transform, localization.stamp_ns)

    def _broadcast(self) -> None:
        """Publish map→odom for new odometry and given poses.

        Not interleaved with that of an image: of two transforms with the same stamp tf takes the
        last.
        """
        with self._in_use:
            server, wanted = self._server, self._values["tf_broadcast"]
            if server is None or not server.is_reading or not wanted:
                return
            newest_ns = server.localizer.newest_odometry_ns
            tolerance_ns = int(self._values["transform_tolerance"] * 1e9)
            if newest_ns is None or not self._outputs.transform_is_due(newest_ns, tolerance_ns):
                return
            transform = server.localizer.map_to_odom()
            if transform is not None and server.report.transform_veto() is None:
                self._outputs.keep_transform(transform, newest_ns, tolerance_ns)

    def _status(self) -> DiagnosticStatus:
        """Return the state with its metrics."""
        name, server = self.get_fully_qualified_name(), self._server
        if server is None or not server.is_reading:
            return diagnostics.inactive(name, self.get_name(), self.state_label)
        lines = server.diagnostics().values()
        return diagnostics.status(
            name, self.get_name(), server.report.state, server.report.text, lines, server.metrics()
        )

    def _diagnose(self) -> None:
        with self._in_use:
            server = self._server
            if server is not None and server.is_reading:
                # First, so that the status counts the seconds of the state that it tells.
                server.report.log_change()
            status = self._status()
            now = self.get_clock().now().nanoseconds
            self._diagnostics.publish(DiagnosticArray(header=header("", now), status=[status]))
            self._search_duplicate_nodes()
            if server is None or not server.is_reading:
                return
            self._outputs.publish_status(status)
            self._show_state(server)
            for kind, line in server.diagnostics().items():
                self.warn(kind, line)
            self._compare_clocks(server, now)

    def _show_state(self, server: LocalizerServer) -> None:
        """Publish the state as a marker at the newest pose, where RViz shows it."""
        if not self._outputs.state_is_shown:
            return
        known, stamp_ns = server.localizer.pose_at(), server.localizer.newest_odometry_ns
        if known is not None and stamp_ns is not None:
            self._outputs.publish_state(stamp_ns, *known, server.report.state, server.report.text)

    def _search_duplicate_nodes(self) -> None:
        """Warn of nodes of the same name: both send map→odom and answer half the calls."""
        if time.monotonic() < self._duplicates_searched_at + _DUPLICATE_SEARCH_PERIOD_S:
            return
        self._duplicates_searched_at = time.monotonic()
        me = self.get_name(), self.get_namespace()
        count = self.get_node_names_and_namespaces().count(me)
        if count > 1:
            self.warn(
                "duplicate_nodes",
                f"{count} nodes are called {self.get_fully_qualified_name()}, and each may send "
                "map→odom: end all but one, or give each a namespace",
            )

    def _compare_clocks(self, server: LocalizerServer, now_ns: int) -> None:
        """Warn once that the transform, stamped as odometry is, does not exist "now"."""
        newest_ns = server.localizer.newest_odometry_ns
        if newest_ns is None or self._clocks_compared:
            return
        ahead_s = (newest_ns - now_ns) * 1e-9
        if abs(ahead_s) > max(1.0, self._values["transform_tolerance"]):
            self._clocks_compared = True
            self.log.warning(
                f"odometry, and so the transform, is {diagnostics.ahead(ahead_s)} this computer's "
                "clock: set use_sim_time for a bag, or synchronize the clocks"
            )

    def _save_pose(self) -> None:
        """Save the pose; without `_in_use`, for the transform must not wait for a slow disk."""
        server = self._server
        if server is None or not self._values["saved_pose_file"]:
            return
        known = server.localizer.pose_at()
        off = self._values["save_pose_rate"] < 0.0
        if off or known is None or server.report.transform_veto() is not None:
            return
        try:
            path = user_path(self._values["saved_pose_file"])
            save_pose(path, GaussianPrior(*known), self._map_identity)
        except KbfError as error:
            server.refuse(Event.POSE_NOT_SAVED, str(error))

    def _on_reinitialize(self, request: Any, response: Any) -> Any:
        server = self._server
        if server is not None:
            self.log.info("localizing from anywhere on the map")
            server.reinitialize()
            self._outputs.forget_path()
        return response

    def _on_set_initial_pose(self, request: Any, response: Any) -> Any:
        server = self._server
        if server is not None:
            server.on_initial_pose(request.pose)
        return response

    def _on_no_motion_update(self, request: Any, response: Any) -> Any:
        server = self._server
        if server is not None:
            server.localizer.force_next_update()
        return response

    def _clock_jumped(self, _: TimeJump) -> None:
        server = self._server
        if server is not None:
            server.time_jumped_back("the clock has jumped back")
            self._outputs.forget_path()

    def _check_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        return parameters.check(changes, configured=self._server is not None)

    def _apply_parameters(self, changes: list[Parameter]) -> None:
        """Apply changes of live parameters; the belief stays."""
        server = self._server
        if server is None:
            return
        self._values = parameters.read(self)
        server.apply(self._values)

    def failed(self, error: Exception) -> None:
        """Count and log a callback's error; the node goes on."""
        server = self._server
        if server is not None:
            server.failed(error)
        else:
            self.warn(type(error).__name__, f"unexpected {type(error).__name__}: {error}")
