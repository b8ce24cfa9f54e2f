"""What is used of rclpy beside its public interface, and the version that it was seen with."""

import importlib.metadata
import re
import time
from pathlib import Path

import pytest
from rclpy.context import Context
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from std_msgs.msg import Int32

from kbf_localization.ros import rclpy_internals
from kbf_localization.ros.rclpy_internals import (
    OutsideExecutor,
    SubscriptionWaitSet,
    take,
)

KNOWN_VERSIONS = ("7.1", "8.0", "9.1")


def version() -> str:
    """As the wheels name it; a distribution's packages have no metadata for Python."""
    for name in ("ros-rclpy", "rclpy"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    pytest.skip("rclpy has no version")


def test_this_version_of_rclpy_is_one_that_the_module_names() -> None:
    assert version().startswith(KNOWN_VERSIONS), (
        f"rclpy {version()} was not seen yet: run this file's other tests with it and add it here "
        "and to the docstring of rclpy_internals"
    )
    for known in KNOWN_VERSIONS:
        assert known in str(rclpy_internals.__doc__)


def test_no_other_module_uses_rclpys_private_parts() -> None:
    package = Path(rclpy_internals.__file__).parents[1]
    private = re.compile(r"rclpy\.impl|_rclpy\b|\._(state_machine|callbacks|service_\w+)\b")
    using = {path.name for path in package.rglob("*.py") if private.search(path.read_text())}
    assert using == {"rclpy_internals.py"}


@pytest.mark.ros
def test_wait_set_wakes_for_messages_and_on_request(context: Context) -> None:
    node = Node("waiting", context=context)
    reader = node.create_subscription(
        Int32, "numbers", lambda _: None, 10, callback_group=OutsideExecutor()
    )
    other = node.create_subscription(
        Int32, "other_numbers", lambda _: None, 10, callback_group=OutsideExecutor()
    )
    writer = node.create_publisher(Int32, "numbers", 10)
    waiting = SubscriptionWaitSet(context, 2)
    end = time.monotonic() + 60.0
    while not writer.get_subscription_count():
        assert time.monotonic() < end
        time.sleep(0.01)
    writer.publish(Int32(data=7))
    minute_ns = 60_000_000_000
    assert waiting.wait([other, reader], minute_ns) == [reader]
    taken = take(reader, Int32)
    assert taken is not None and deserialize_message(taken[0], Int32).data == 7
    assert taken[1]["publication_sequence_number"] == 1
    assert take(reader, Int32) is None
    waiting.wake()
    assert waiting.wait([reader, other], minute_ns) == []
    assert take(reader, Int32) is None
    waiting.destroy()
    node.destroy_node()
