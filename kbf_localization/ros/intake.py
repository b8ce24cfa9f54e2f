"""Reads topics on a thread of its own, beside rclpy's executor, and says which one is silent.

rclpy's executors build a new wait set of all entities for every message: at 1,000 odometry
messages a second that alone took 76–89 % of a core (multi-threaded) and lost a third of them. A
wait set of these few subscriptions took 25 % and lost none.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.subscription import Subscription

from kbf_localization.ros.diagnostics import Rate
from kbf_localization.ros.lifecycle import SafeLifecycleNode

_PAUSE_S = 0.1
"""After an error of the middleware."""
_BATCH = 200
"""Messages taken from one topic before the others get their turn."""


@dataclass(frozen=True)
class Topic:
    """A topic to read and what to do with its messages; a `steady` one must not fall silent.

    The callback gets the message, or of a `serialized` topic its bytes.
    """

    name: str
    type: type
    qos: QoSProfile
    callback: Callable[[Any], None]
    steady: bool = True
    serialized: bool = False


class TopicWatch:
    """How often messages come on one topic, and why they do not."""

    def __init__(
        self,
        node: SafeLifecycleNode,
        topic: str,
        qos: QoSProfile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._topic = node.resolve_topic_name(topic)
        self._qos = qos
        self._clock = clock
        self._rate = Rate(clock=clock)
        self._last = clock()
        self._arrived = False
        self._sequence: int | None = None
        self.missing = 0
        """Messages of its publisher that never came, where the middleware numbers them."""

    def arrived(self, sequence: int | None = None) -> None:
        """A message has come; the publisher's number of it, where the middleware tells."""
        self._last = self._clock()
        self._arrived = True
        self._rate.happened()
        before, self._sequence = self._sequence, sequence
        if before is None or sequence is None or sequence <= before + 1:
            return
        # Each publisher counts by itself, and a message does not tell whose it is.
        if self._node.count_publishers(self._topic) == 1:
            self.missing += sequence - before - 1

    @property
    def age(self) -> float:
        """Seconds since the last message; NaN before the first."""
        return self._clock() - self._last if self._arrived else math.nan

    def hertz(self) -> float:
        """Messages a second over the last while."""
        return self._rate.hertz()

    def explain(self, timeout: float) -> str | None:
        """Why nothing has come for more than `timeout` seconds; None while messages arrive."""
        silent = self._clock() - self._last
        if silent < timeout:
            return None
        silence = f"no message on {self._topic} for {silent:.0f} s"
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return f"{silence}: nobody publishes it; remap it, or start what publishes it"
        for publisher in publishers:
            compatibility, reason = qos_check_compatible(publisher.qos_profile, self._qos)
            if compatibility == QoSCompatibility.ERROR:
                offered = publisher.qos_profile
                return (
                    f"{silence}: the publisher {publisher.node_name} offers reliability "
                    f"{offered.reliability.name}, durability {offered.durability.name}, which is "
                    f"incompatible ({reason.strip()}); set odom_reliability or image_reliability "
                    "to best_effort"
                )
        return f"{silence}: {publishers[0].node_name} publishes it but sends nothing"


class _NotForTheExecutor(CallbackGroup):
    """Keeps a subscription out of the executor's wait sets."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


class Intake:
    """Subscribes to topics, earlier ones first, until it is closed; `watches` by topic name."""

    def __init__(
        self,
        node: SafeLifecycleNode,
        topics: tuple[Topic, ...],
        failed: Callable[[Exception], None],
    ) -> None:
        self._node = node
        self._failed = failed
        self._topics = topics
        self.watches = {topic.name: TopicWatch(node, topic.name, topic.qos) for topic in topics}
        group = _NotForTheExecutor()
        self._subscriptions: tuple[Subscription, ...] = tuple(
            node.create_subscription(
                topic.type, topic.name, topic.callback, topic.qos, callback_group=group
            )
            for topic in topics
        )
        self._wake = GuardCondition(None, None, context=node.context)
        self._closing = False
        with node.context.handle:
            self._waiting = _rclpy.WaitSet(len(topics), 1, 0, 0, 0, 0, node.context.handle)
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._thread.start()

    def silent(self, timeout: float) -> dict[str, str]:
        """A line for each steady topic without a message for more than `timeout` seconds."""
        steady = (topic.name for topic in self._topics if topic.steady)
        explained = {name: self.watches[name].explain(timeout) for name in steady}
        return {name: line for name, line in explained.items() if line is not None}

    def close(self) -> None:
        """End the thread and the subscriptions."""
        self._closing = True
        self._wake.trigger()
        self._thread.join()
        self._node.disposal.destroy(self._node.destroy_subscription, *self._subscriptions)
        self._wake.destroy()

    def _run(self) -> None:
        context = self._node.context
        while not self._closing and context.ok():
            try:
                self._wait(context)
                for topic, subscription in zip(self._topics, self._subscriptions, strict=True):
                    self._take(topic, subscription)
            except Exception as error:  # without this thread the node would be deaf
                if not context.ok():
                    return
                self._failed(error)
                time.sleep(_PAUSE_S)

    def _wait(self, context: Any) -> None:
        with context.handle:
            waiting = self._waiting
            waiting.clear_entities()
            for subscription in self._subscriptions:
                waiting.add_subscription(subscription.handle)
            waiting.add_guard_condition(self._wake.handle)
            waiting.wait(200_000_000)

    def _take(self, topic: Topic, subscription: Subscription) -> None:
        watch = self.watches[topic.name]
        for _ in range(_BATCH):
            if self._closing:
                return
            taken = subscription.handle.take_message(topic.type, topic.serialized)
            if taken is None:
                return
            watch.arrived(taken[1].get("publication_sequence_number"))
            try:
                topic.callback(taken[0])
            except Exception as error:  # the thread must outlive one bad message
                self._failed(error)
