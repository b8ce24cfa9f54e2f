"""A lifecycle node that Nav2's lifecycle manager can run."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.node import Node
from rclpy.qos import QoSProfile

from kbf_localization.ros.shown_logger import ShownLogger
from kbf_localization.ros.spinning import Disposal

logger = logging.getLogger(__name__)

try:
    from bond.msg import Status as BondStatus
except ImportError:
    BondStatus = None

# As in the package bond; Nav2's nodes set the heartbeat's timeout and never time out themselves.
_CONNECT_TIMEOUT_S = 10.0
_DISCONNECT_TIMEOUT_S = 2.0
_HEARTBEAT_TIMEOUT_S = 4.0
_FAREWELL_S = 0.5


class SafeLifecycleNode(LifecycleNodeMixin, Node):
    """rclpy's lifecycle node with four faults corrected.

    A transition that the state does not allow raises in rclpy's service callback and so ends
    the process: here it is answered by success = false. A transition that takes long, such as
    loading a map, does not keep `get_state` waiting. An error in one is logged. And what one puts
    away is destroyed by `disposal`, which also spins the node.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        self.disposal = Disposal()
        self._shown_logger: ShownLogger | None = None
        Node.__init__(self, name, **arguments)
        self.lifecycle_group = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self.lifecycle_group)
        for state, callback in list(self._callbacks.items()):
            self._callbacks[state] = self._explained(callback)
        self._transition_lock = threading.Lock()
        self._unguarded_change_state = self._service_change_state.callback
        self._service_change_state.callback = self._change_state

    def get_logger(self) -> ShownLogger:
        if self._shown_logger is None:
            self._shown_logger = ShownLogger(super().get_logger().name)
        return self._shown_logger

    @property
    def state_label(self) -> str:
        """The lifecycle state, such as "active"."""
        return str(self._state_machine.current_state[1])

    def finish_transitions(self, seconds: float) -> None:
        """Wait for a transition that is under way; none begins any more."""
        self._transition_lock.acquire(timeout=seconds)

    def _explained(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A transition's callback that logs its error, of which rclpy would say nothing."""

        def explained(state: Any) -> Any:
            try:
                return callback(state)
            except Exception as error:
                logger.error("in a transition", exc_info=error)
                self.get_logger().error(f"{type(error).__name__} in a transition: {error}")
                raise

        return explained

    def _change_state(self, request: Any, response: Any) -> Any:
        if not self._transition_lock.acquire(blocking=False):
            self.get_logger().warning("a transition is refused: another one is under way")
            response.success = False
            return response
        try:
            return self._unguarded_change_state(request, response)
        except (_rclpy.RCLError, TypeError, ValueError) as error:
            asked = request.transition.label or request.transition.id
            self.get_logger().warning(f"transition {asked} from {self.state_label}: {error}")
            response.success = False
            return response
        finally:
            self._transition_lock.release()


def make_bond(node: SafeLifecycleNode, period_s: float) -> Bond | None:
    """The bond with the lifecycle manager; None where it is not wanted, or cannot be."""
    if period_s <= 0.0:
        return None
    if BondStatus is None:
        node.get_logger().info(
            "the package bond is not installed: a lifecycle manager must have bond_timeout 0.0"
        )
        return None
    return Bond(node, period_s)


class _BondState(Enum):
    WAITING = "waiting for the manager"
    ALIVE = "alive"
    DYING = "waiting for the manager to know that it is broken"
    DEAD = "dead"


class Bond:
    """This node's side of the bond with Nav2's lifecycle manager, by the rules of bondcpp.

    Both sides send heartbeats on the topic `bond`, with the node's name as the bond's id. A node
    that is silent for too long, or says that it ends, makes the manager take all of Nav2 down.
    As Nav2's own nodes, this side does not mind a silent manager; it ends when the manager says so.
    """

    def __init__(self, node: SafeLifecycleNode, period_s: float) -> None:
        self._node, self._period_s = node, period_s
        self._id, self._instance = node.get_name(), str(uuid.uuid4())
        self._manager: str | None = None
        self._state, self._since = _BondState.WAITING, time.monotonic()
        self._lock = threading.RLock()
        group = MutuallyExclusiveCallbackGroup()
        self._publisher = node.create_publisher(BondStatus, "bond", QoSProfile(depth=5))
        self._subscription = node.create_subscription(
            BondStatus, "bond", self._on_status, QoSProfile(depth=100), callback_group=group
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(period_s, self._tick, group, clock=steady)

    def end(self) -> None:
        """Tell the manager that this node stops; go on telling it until it answers."""
        with self._lock:
            if self._state is _BondState.DEAD:
                return
            alive = self._state is _BondState.ALIVE
            self._enter(_BondState.DYING if alive else _BondState.DEAD)
            self._send(active=False)
            # The process may end now, and with it what has not been delivered.
            self._publisher.wait_for_all_acked(Duration(seconds=_FAREWELL_S))

    def _tick(self) -> None:
        with self._lock:
            elapsed = time.monotonic() - self._since
            if self._state is _BondState.WAITING and elapsed > _CONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DYING and elapsed > _DISCONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DEAD:
                node, destroy = self._node, self._node.disposal.destroy
                destroy(node.destroy_timer, self._timer)
                destroy(node.destroy_subscription, self._subscription)
                destroy(node.destroy_publisher, self._publisher)
            else:
                self._send(active=self._state is not _BondState.DYING)

    def _on_status(self, message: Any) -> None:
        if message.id != self._id or message.instance_id == self._instance:
            return
        with self._lock:
            if self._manager is None:
                self._manager = message.instance_id
            if message.instance_id != self._manager:
                self._node.get_logger().error(
                    f"a third party uses the bond '{self._id}': only a node and its lifecycle "
                    "manager may; are there two nodes or two managers of this name?",
                    throttle_duration_sec=5.0,
                )
            elif message.active and self._state is _BondState.WAITING:
                self._enter(_BondState.ALIVE)
                self._node.get_logger().info("bond with the lifecycle manager formed")
            elif not message.active and self._state in (_BondState.WAITING, _BondState.ALIVE):
                self._enter(_BondState.DEAD)
                self._send(active=False)
                self._node.get_logger().warning("the lifecycle manager has ended the bond")
            elif not message.active:
                self._enter(_BondState.DEAD)

    def _enter(self, state: _BondState) -> None:
        self._state, self._since = state, time.monotonic()

    def _send(self, active: bool) -> None:
        message = BondStatus(
            id=self._id,
            instance_id=self._instance,
            active=active,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT_S,
            heartbeat_period=float(self._period_s),
        )
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)
