"""The calls of Nav2's lifecycle manager for one node, with its side of the bond."""

from __future__ import annotations

import uuid

from bond.msg import Status
from rclpy.qos import QoSProfile

from test.ros.robot import Robot

# nav2_lifecycle_manager's defaults.
BOND_TIMEOUT_S = 4.0
HEARTBEAT_PERIOD_S = 0.25


class LifecycleManager:
    """Configures, activates and forms the bond, as nav2_lifecycle_manager does.

    It answers the end of a bond at once, as bondcpp does, unless it is not to (`answers`).
    """

    def __init__(self, robot: Robot, *, answers: bool = True) -> None:
        self._robot = robot
        self._id = robot.node_name.rpartition("/")[2]
        self._instance: str | None = None
        self._silent = False
        self._answers = answers
        self.statuses: list[Status] = []
        self._publisher = robot.node.create_publisher(Status, "bond", QoSProfile(depth=5))
        robot.node.create_subscription(Status, "bond", self._on_status, QoSProfile(depth=100))
        robot.node.create_timer(HEARTBEAT_PERIOD_S, self._beat)

    @property
    def is_formed(self) -> bool:
        return any(status.active for status in self.statuses)

    def start_up(self) -> bool:
        """Configure and activate; whether both did, and the bond was formed."""
        for name, state in (("configure", "inactive"), ("activate", "active")):
            if not self._robot.transition(name) or self._robot.lifecycle_state() != state:
                return False
        self.bind()
        return bool(self._robot.wait_for(lambda: self.is_formed))

    def bind(self) -> None:
        """Begin this side of the bond."""
        self.statuses.clear()
        self._instance = str(uuid.uuid4())

    def break_bond(self) -> None:
        """Say that the bond is over, as when the manager ends."""
        self._send(active=False)
        self._instance = None

    def fall_silent(self) -> None:
        """Send no heartbeat, as when the manager hangs."""
        self._silent = True

    def resume(self) -> None:
        self._silent = False

    def _beat(self) -> None:
        if self._instance is not None and not self._silent:
            self._send(active=True)

    def _send(self, active: bool) -> None:
        status = Status(id=self._id, instance_id=self._instance or "", active=active)
        status.heartbeat_timeout = BOND_TIMEOUT_S
        status.heartbeat_period = HEARTBEAT_PERIOD_S
        self._publisher.publish(status)

    def _on_status(self, status: Status) -> None:
        if status.id != self._id or status.instance_id == self._instance:
            return
        if self.statuses and status.instance_id != self.statuses[0].instance_id:
            return  # a third party
        self.statuses.append(status)
        if not status.active and self._answers and self._instance is not None:
            self.break_bond()
