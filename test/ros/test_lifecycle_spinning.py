"""What is destroyed while an executor spins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from rclpy.waitable import NumberOfEntities, Waitable
from std_msgs.msg import String

from kbf_localization.ros.lifecycle import Disposal
from kbf_localization.ros.node_process import spinning


@pytest.fixture
def node(context: Context) -> Iterator[Node]:
    node = Node("spun", context=context)
    yield node
    node.destroy_node()


class Meanwhile(Waitable):
    """Does something on another thread while the executor builds its first wait set."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__(ReentrantCallbackGroup())
        self.thread = threading.Thread(target=action)

    def __enter__(self) -> None:
        """The executor is at work: handles are in use already, but not in the wait set yet."""
        if self.thread.ident is None:
            self.thread.start()
            # Time enough for a destruction that does not wait for the executor.
            self.thread.join(0.5)

    def __exit__(self, *_: object) -> None:
        pass

    def get_num_entities(self) -> NumberOfEntities:
        return NumberOfEntities()

    def add_to_wait_set(self, wait_set: object) -> None:
        pass

    def is_ready(self, wait_set: object) -> bool:
        return False


def test_what_another_thread_destroys_is_gone_after_the_wait_set_that_has_it(node: Node) -> None:
    """Its event handlers are in the wait set, which rclpy does not expect to end meanwhile."""
    disposal, over = Disposal(), threading.Event()
    publisher = node.create_publisher(String, "topic", 1)
    subscription = node.create_subscription(String, "topic", lambda _: None, 1)

    def destroy() -> None:
        disposal.destroy(node.destroy_publisher, publisher)
        disposal.destroy(node.destroy_subscription, subscription)
        over.set()

    meanwhile = Meanwhile(destroy)
    node.add_waitable(meanwhile)
    executor = MultiThreadedExecutor(num_threads=2, context=node.context)
    executor.add_node(node)
    disposal.spin(executor, over, pytest.fail)
    executor.shutdown()
    meanwhile.thread.join()
    assert publisher not in list(node.publishers)
    assert subscription not in list(node.subscriptions)


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
    threads = set(threading.enumerate())
    with spinning(node):
        assert ticked.wait(60.0)
    before = len(ticks)
    assert not [item for item in set(threading.enumerate()) - threads if item.name == "spin"]
    assert len(ticks) == before


def test_a_callback_that_fails_is_reported_and_the_others_go_on(node: Node) -> None:
    failed: list[Exception] = []
    over = threading.Event()

    def fail() -> None:
        raise ValueError("unforeseen")

    def look() -> None:
        if len(failed) >= 3:
            over.set()

    node.create_timer(0.001, fail, ReentrantCallbackGroup())
    node.create_timer(0.001, look, ReentrantCallbackGroup())
    executor = MultiThreadedExecutor(num_threads=2, context=node.context)
    executor.add_node(node)
    Disposal().spin(executor, over, failed.append)
    executor.shutdown()
    assert all(str(error) == "unforeseen" for error in failed[:3])


def test_an_executor_that_only_fails_is_not_spun_for_ever(node: Node) -> None:
    class Broken(MultiThreadedExecutor):
        def spin_once(self, timeout_sec: float | None = None) -> None:
            raise RuntimeError("broken")

    executor = Broken(num_threads=2, context=node.context)
    failed: list[Exception] = []
    with pytest.raises(RuntimeError, match="broken"):
        Disposal().spin(executor, threading.Event(), failed.append)
    executor.shutdown()
    assert len(failed) == 100
