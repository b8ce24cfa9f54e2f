"""What the active node listens to: odometry, images, and poses set by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from kbf_localization.ros.intake import Intake, Topic
from kbf_localization.ros.running_localizer import RunningLocalizer
from kbf_localization.ros.watchdog import TopicWatch

_RELIABILITY = {
    "best_effort": ReliabilityPolicy.BEST_EFFORT,
    "reliable": ReliabilityPolicy.RELIABLE,
}


class Inputs:
    """The subscriptions of an active node, each with its watch, until they are closed."""

    def __init__(self, node: Node, running: RunningLocalizer, values: Mapping[str, Any]) -> None:
        self._running = running
        odom_qos = QoSProfile(
            depth=values["odom_queue_depth"], reliability=_RELIABILITY[values["odom_reliability"]]
        )
        image_qos = QoSProfile(
            depth=max(5, values["image_queue_depth"]),
            reliability=_RELIABILITY[values["image_reliability"]],
        )
        compressed = values["image_transport"] == "compressed"
        image_topic, image_type = (
            ("image/compressed", CompressedImage) if compressed else ("image", Image)
        )
        self.odometry_watch = TopicWatch(node, "odom", odom_qos)
        self.image_watch = TopicWatch(node, image_topic, image_qos)
        by_hand = Topic(
            "initialpose", PoseWithCovarianceStamped, QoSProfile(depth=5), running.initial_pose
        )
        self._intake = Intake(
            node,
            (
                Topic("odom", Odometry, odom_qos, self._on_odometry),
                by_hand,
                Topic(image_topic, image_type, image_qos, self._on_image),
            ),
            running.failed,
        )

    def complaints(self, timeout: float) -> tuple[str, ...]:
        """A line for each topic that has been silent for more than `timeout` seconds."""
        watches = (self.odometry_watch, self.image_watch)
        return tuple(filter(None, (watch.explain(timeout) for watch in watches)))

    def close(self) -> None:
        self._intake.close()

    def _on_odometry(self, message: Odometry) -> None:
        self.odometry_watch.arrived()
        self._running.odometry_rate.happened()
        self._running.odometry(message)

    def _on_image(self, message: Any) -> None:
        self.image_watch.arrived()
        self._running.image_rate.happened()
        self._running.image(message)
