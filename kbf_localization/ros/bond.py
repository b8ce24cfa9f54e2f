"""The bond with Nav2's lifecycle manager."""

from __future__ import annotations

import threading
import time
import uuid
from enum import Enum
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.qos import QoSProfile

from kbf_localization.ros.lifecycle import SafeLifecycleNode

try:
    from bond.msg import Status as BondStatus
except ImportError:
    BondStatus = None

# As in the package bond; Nav2's nodes set the heartbeat timeout and never time out themselves.
_CONNECT_TIMEOUT_S = 10.0
_DISCONNECT_TIMEOUT_S = 2.0
_HEARTBEAT_TIMEOUT_S = 4.0


def make_bond(node: SafeLifecycleNode, period_s: float) -> Bond | None:
    """Make the bond with the lifecycle manager; None where it is off or not installed."""
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
        self._timer = node.create_timer(period_s, self._tick, group, clock=node.steady)

    def end(self) -> None:
        """Announce that this node stops, and repeat it with each heartbeat until answered.

        The message is handed to the transport before `publish` returns. To wait until the
        middleware acknowledges it (`wait_for_all_acked`) would be to wait for Fast DDS's next
        periodic heartbeat, of which there is one each 3 s.
        """
        with self._lock:
            if self._state is _BondState.DEAD:
                return
            alive = self._state is _BondState.ALIVE
            self._enter(_BondState.DYING if alive else _BondState.DEAD)
            self._send(active=False)

    def _tick(self) -> None:
        with self._lock:
            elapsed = time.monotonic() - self._since
            if self._state is _BondState.WAITING and elapsed > _CONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DYING and elapsed > _DISCONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DEAD:
                self._node.dispose(self._timer, self._subscription, self._publisher)
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
