"""Says which topic is silent, and why, when no odometry or image arrives."""

from __future__ import annotations

import time
from collections.abc import Callable

from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible


class TopicWatch:
    """Watches one topic; `explain` gives a line when it has been silent for too long."""

    def __init__(
        self, node: Node, topic: str, qos: QoSProfile, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node = node
        self._topic = node.resolve_topic_name(topic)
        self._qos = qos
        self._clock = clock
        self._last = clock()
        self._arrived = False

    def arrived(self) -> None:
        """A message has come."""
        self._last = self._clock()
        self._arrived = True

    @property
    def age(self) -> float | None:
        """Seconds since the last message; None before the first."""
        return self._clock() - self._last if self._arrived else None

    def explain(self, timeout: float) -> str | None:
        """Why nothing comes; None while messages arrive."""
        silent = self._clock() - self._last
        if silent < timeout:
            return None
        said = f"no message on {self._topic} for {silent:.0f} s"
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return f"{said}: nobody publishes it; remap it, or start what publishes it"
        for publisher in publishers:
            compatibility, reason = qos_check_compatible(publisher.qos_profile, self._qos)
            if compatibility == QoSCompatibility.ERROR:
                offered = publisher.qos_profile
                return (
                    f"{said}: the publisher {publisher.node_name} offers reliability "
                    f"{offered.reliability.name}, durability {offered.durability.name}, which is "
                    f"incompatible ({reason.strip()}); set odom_reliability or image_reliability "
                    "to best_effort"
                )
        return f"{said}: {publishers[0].node_name} publishes it but sends nothing"
