"""Messages that are read together while the robot stands, and bytes that are none."""

import time
from collections.abc import Iterator

import pytest
from rclpy.context import Context
from rclpy.qos import QoSProfile
from std_msgs.msg import Int32

from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.subscription_reader import SubscriptionReader, Topic

NO_MESSAGE = b"\x00\x01\x00\x00\x07"
"""The header of little-endian CDR and a quarter of a number."""


@pytest.fixture
def node(context: Context) -> Iterator[SafeLifecycleNode]:
    node = SafeLifecycleNode("reader", context=context)
    yield node
    node.destroy_node()


@pytest.mark.ros
@pytest.mark.parametrize("other", [False, True])
def test_all_messages_are_read_in_order_while_the_robot_stands(
    node: SafeLifecycleNode, other: bool
) -> None:
    """Whether or not messages of another topic wake the thread."""
    qos, read, errors, batches = QoSProfile(depth=500), [], [], []
    topics = (
        Topic(
            "odometry",
            Int32,
            qos,
            lambda message: read.append(message.data),
            errors.append,
            patient=True,
            finished=lambda: batches.append(len(read)),
        ),
        Topic("image", Int32, qos, lambda message: None, errors.append),
    )
    reader = SubscriptionReader(node, topics, errors.append, stands=lambda: True)
    odometry, image = (node.create_publisher(Int32, topic.name, qos) for topic in topics)
    end = time.monotonic() + 60.0
    while not (odometry.get_subscription_count() and image.get_subscription_count()):
        assert time.monotonic() < end
        time.sleep(0.01)
    for number in range(200):
        odometry.publish(Int32(data=number))
        if other and number % 10 == 0:
            image.publish(Int32())
    while len(read) < 200 and time.monotonic() < end:
        time.sleep(0.01)
    reader.close()
    assert read == list(range(200))
    assert errors == []
    # Each batch ends once, the last one with the last message.
    assert batches[-1] == 200 and len(set(batches)) == len(batches) <= 200


@pytest.mark.ros
def test_bytes_that_are_no_message_are_handed_on_and_do_not_keep_others_waiting(
    node: SafeLifecycleNode,
) -> None:
    qos = QoSProfile(depth=500)
    read: list[int] = []
    refused: list[Exception] = []
    failed: list[Exception] = []
    topic = Topic("numbers", Int32, qos, lambda item: read.append(item.data), refused.append)
    reader = SubscriptionReader(node, (topic,), failed.append, stands=lambda: False)
    publisher = node.create_publisher(Int32, topic.name, qos)
    end = time.monotonic() + 60.0
    while not publisher.get_subscription_count():
        assert time.monotonic() < end
        time.sleep(0.01)
    for number in range(100):
        publisher.publish(NO_MESSAGE)
        publisher.publish(Int32(data=number))
    while len(read) < 100 and time.monotonic() < end:
        time.sleep(0.01)
    reader.close()
    assert read == list(range(100))
    assert len(refused) == 100 and failed == []
