"""What is destroyed while an executor spins."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import rclpy
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String

from kbf_localization.ros.spinning import Disposal, spinning

ROUNDS = 150


@pytest.fixture
def node() -> Iterator[Node]:
    context = rclpy.Context()
    rclpy.init(context=context)
    node = Node("spun", context=context)
    yield node
    node.destroy_node()
    rclpy.try_shutdown(context=context)


def test_entities_are_made_and_destroyed_by_other_threads_while_the_executor_spins(
    node: Node,
) -> None:
    """Each publisher and subscription has event handlers, which a wait set may hold."""
    disposal, over, finished = Disposal(), threading.Event(), []
    node.create_timer(0.001, lambda: None)  # so that wait sets are made all the time

    def come_and_go(topic: str) -> None:
        for _ in range(ROUNDS):
            publisher = node.create_publisher(String, topic, 1)
            subscription = node.create_subscription(String, topic, lambda _: None, 1)
            disposal.destroy(node.destroy_publisher, publisher)
            disposal.destroy(node.destroy_subscription, subscription)
        finished.append(topic)
        if len(finished) == 2:
            over.set()

    threads = [threading.Thread(target=come_and_go, args=(topic,)) for topic in ("one", "two")]
    for thread in threads:
        thread.start()
    executor = MultiThreadedExecutor(num_threads=2, context=node.context)
    executor.add_node(node)
    disposal.spin(executor, over)
    for thread in threads:
        thread.join()
    executor.shutdown()
    assert sorted(finished) == ["one", "two"]
    assert not list(node.subscriptions)


def test_what_is_destroyed_when_nothing_spins_is_gone_at_once(node: Node) -> None:
    publisher = node.create_publisher(String, "topic", 1)
    Disposal().destroy(node.destroy_publisher, publisher)
    assert publisher not in list(node.publishers)


def test_a_spun_node_is_at_rest_after_the_block(node: Node) -> None:
    ticks: list[int] = []
    ticked = threading.Event()

    def tick() -> None:
        ticks.append(1)
        ticked.set()

    node.create_timer(0.001, tick)
    with spinning(node):
        assert ticked.wait(60.0)
    before = len(ticks)
    assert not [thread for thread in threading.enumerate() if thread.name == "spin"]
    assert len(ticks) == before
