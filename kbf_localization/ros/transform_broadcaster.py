"""Publishes the map→odom transform as tf2's broadcaster does, without tf2_ros."""

from __future__ import annotations

from rclpy.node import Node
from rclpy.qos import QoSProfile
from tf2_msgs.msg import TFMessage

from kbf_localization.ros.conversions import Array, transform_message


class TransformBroadcaster:
    """One transform on /tf, with tf2's QoS (reliable, depth 100)."""

    def __init__(self, node: Node, parent: str, child: str) -> None:
        self._parent, self._child = parent, child
        self._publisher = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))

    def send(self, stamp_ns: int, transform: Array) -> None:
        """Publish the planar transform (3,)."""
        message = transform_message(self._parent, self._child, stamp_ns, transform)
        self._publisher.publish(TFMessage(transforms=[message]))

    def destroy(self, node: Node) -> None:
        node.destroy_publisher(self._publisher)
