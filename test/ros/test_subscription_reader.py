"""Messages that are read together while the robot stands; their fields, against rclpy's own."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Int32

from kbf_localization.ros import subscription_reader
from kbf_localization.ros.conversions import header
from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.rclpy_internals import RMWError
from kbf_localization.ros.subscription_reader import (
    SubscriptionReader,
    Topic,
    read_odometry,
    stamp_of,
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
stamps = st.integers(0, 2**31 * 1_000_000_000 - 1)
numbers = st.lists(st.floats(allow_nan=False), min_size=7, max_size=7)


def odometry(stamp_ns: int, frame: str, base: str, values: list[float]) -> Odometry:
    message = Odometry(header=header(frame, stamp_ns), child_frame_id=base)
    at, turn = message.pose.pose.position, message.pose.pose.orientation
    at.x, at.y, at.z, turn.x, turn.y, turn.z, turn.w = values
    message.pose.covariance = np.arange(36.0)
    return message


@given(stamps, names, names, numbers)
def test_odometry_is_what_was_serialized(
    stamp_ns: int, frame: str, base: str, values: list[float]
) -> None:
    """Names of all lengths: what follows is aligned by them."""
    fields = read_odometry(serialize_message(odometry(stamp_ns, frame, base, values)))
    assert (fields.stamp_ns, fields.frame_id, fields.child_frame_id) == (stamp_ns, frame, base)
    assert fields.pose.tolist() == values
    assert fields.covariance.tolist() == [[0.0, 1.0, 5.0], [6.0, 7.0, 11.0], [30.0, 31.0, 35.0]]


@given(stamps, st.sampled_from([Image, CompressedImage]))
def test_stamp_of_an_image(stamp_ns: int, kind: type) -> None:
    assert stamp_of(serialize_message(kind(header=header("camera", stamp_ns))), kind) == stamp_ns


def test_odometry_that_is_cut_short_anywhere_is_refused() -> None:
    whole = serialize_message(odometry(1_700_000_000_000_000_000, "odom", "base", [1.0] * 7))
    needed = len(whole) - 8 * (6 + 36)  # the twist is not read
    for size in range(2, needed):
        with pytest.raises(ValueError, match="cut short"):
            read_odometry(whole[:size])


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(content: bytes) -> None:
    try:
        read_odometry(b"\x00\x01\x00\x00" + content)
    except ValueError as error:
        assert "cut short" in str(error)


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
            patient=True,
            finished=lambda: batches.append(len(read)),
        ),
        Topic("image", Int32, qos, lambda message: None),
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
def test_bytes_that_the_middleware_cannot_read_are_handed_on_without_a_pause(
    node: SafeLifecycleNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of Cyclone DDS; a pause for each would starve the other topics."""
    outcomes = iter([RMWError("no message")] * 100)

    def take_none(*_: object) -> None:
        error = next(outcomes, None)
        if error is not None:
            raise error

    monkeypatch.setattr(subscription_reader, "take", take_none)
    refused: list[Exception] = []
    failed: list[Exception] = []
    topic = Topic("tf", Int32, QoSProfile(depth=5), print, unreadable=refused.append)
    reader = SubscriptionReader(node, (topic,), failed.append, stands=lambda: False)
    publisher = node.create_publisher(Int32, "tf", 5)
    end = time.monotonic() + 60.0
    while len(refused) < 100 and time.monotonic() < end:
        publisher.publish(Int32())
        time.sleep(0.01)
    reader.close()
    assert len(refused) == 100 and failed == []
