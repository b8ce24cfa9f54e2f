"""The threads that take messages: one reads sensor subscriptions, one describes and filters images.

The reader waits by a wait set of these few subscriptions alone (`rclpy_internals` has the figures).
It takes bytes and deserializes them by itself, so that bytes that are no message are reported
whatever the middleware: some pass over them in silence.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from kbf_localization.events import Event
from kbf_localization.ros.diagnostics import TopicWatch
from kbf_localization.ros.lifecycle import SafeLifecycleNode
from kbf_localization.ros.rclpy_internals import (
    OutsideExecutor,
    RMWError,
    SubscriptionWaitSet,
    take,
)

_ERROR_PAUSE_S = 0.1
"""Pause after an error of the middleware."""
_WAIT_NS, _STANDING_WAIT_NS = 200_000_000, 50_000_000
"""The second is longer than the period of a camera of 30 Hz, so that each image wakes the thread
once, and keeps the transform at 20 Hz where there are none."""
_BATCH_SIZE = 200
"""Messages taken from one topic before the others get their turn."""


@dataclass(frozen=True)
class Topic:
    """A topic to read and the callback of its messages; a `steady` topic must not fall silent.

    Messages of a `patient` topic are read together with those of others while the robot stands.
    Messages stay in the middleware's queue while the topic is not `wanted`. `finished` is called
    after messages that were read together, `unreadable` for bytes that are no message.
    """

    name: str
    type: type
    qos: QoSProfile
    callback: Callable[[Any], None]
    unreadable: Callable[[Exception], None]
    steady: bool = True
    patient: bool = False
    wanted: Callable[[], bool] = lambda: True
    finished: Callable[[], None] = lambda: None


class SubscriptionReader:
    """Read topics, earlier topics first, until it is closed; `watches` by topic name.

    `stands` says whether the robot does: then nobody waits for its odometry, and each wake-up of a
    Python thread costs several times as much as a message that is read with the previous.
    """

    def __init__(
        self,
        node: SafeLifecycleNode,
        topics: tuple[Topic, ...],
        failed: Callable[[Exception], None],
        stands: Callable[[], bool],
    ) -> None:
        self._node = node
        self._failed, self._stands = failed, stands
        self._topics = topics
        self.watches = {topic.name: TopicWatch(node, topic.name, topic.qos) for topic in topics}
        group = OutsideExecutor()
        self._subscriptions: tuple[Subscription, ...] = tuple(
            node.create_subscription(
                topic.type, topic.name, topic.callback, topic.qos, callback_group=group
            )
            for topic in topics
        )
        self._waiting = SubscriptionWaitSet(node.context, len(topics))
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="subscription reader", daemon=True)
        self._thread.start()

    def silent_topics(self, timeout: float) -> dict[str, str]:
        """Return a line for each steady topic without a message for `timeout` seconds."""
        steady = (topic.name for topic in self._topics if topic.steady)
        explained = {name: self.watches[name].explain(timeout) for name in steady}
        return {name: line for name, line in explained.items() if line is not None}

    def close(self) -> None:
        """End the thread and the subscriptions."""
        self._closing = True
        self._waiting.wake()
        self._thread.join()
        self._node.dispose(*self._subscriptions)
        self._waiting.destroy()

    def _run(self) -> None:
        context = self._node.context
        while not self._closing and context.ok():
            try:
                for topic, subscription in self._wait():
                    self._take(topic, subscription)
            except Exception as error:  # the node needs this thread
                if not context.ok():
                    return
                self._failed(error)
                time.sleep(_ERROR_PAUSE_S)

    def _wait(self) -> list[tuple[Topic, Subscription]]:
        """Wait for messages; return the topics to take from, in their order."""
        stands = self._stands()
        pairs = list(zip(self._topics, self._subscriptions, strict=True))
        patient = [subscription for topic, subscription in pairs if stands and topic.patient]
        awaited = [
            subscription
            for topic, subscription in pairs
            if subscription not in patient and topic.wanted()
        ]
        ready = self._waiting.wait(awaited, _STANDING_WAIT_NS if stands else _WAIT_NS)
        return [pair for pair in pairs if pair[1] in ready or pair[1] in patient]

    def _take(self, topic: Topic, subscription: Subscription) -> None:
        watch = self.watches[topic.name]
        count = 0
        while count < _BATCH_SIZE and not self._closing and topic.wanted():
            taken = take(subscription, topic.type)
            if taken is None:
                break
            count += 1
            cdr, information = taken
            watch.arrived(information.get("publication_sequence_number"))
            try:
                message = deserialize_message(cdr, topic.type)
            except RMWError as error:
                self._call(topic.unreadable, error)
                continue
            self._call(topic.callback, message)
        if count:
            self._call(topic.finished)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception as error:  # the thread must survive a bad message
            self._failed(error)


MAX_UNCOVERED_IMAGES = 64
"""Images that may wait for odometry; enough for odometry that is late by two seconds."""


@dataclass(frozen=True)
class PendingImage:
    """An image message, its stamp and when it arrived (`time.perf_counter`).

    `overtakes`: older images were dropped, since there was no time for them.
    """

    stamp_ns: int
    message: Any
    arrived: float
    overtakes: bool = False


class ImageWorker:
    """Hand images to `process` one after the other, each as soon as `covers(stamp)`.

    Of the images that could be processed at most `depth` wait; the oldest are dropped. An image
    that gets no odometry within `patience` seconds is dropped. `count` receives both.
    """

    def __init__(
        self,
        process: Callable[[PendingImage], None],
        covers: Callable[[int], bool],
        failed: Callable[[Exception], None],
        count: Callable[[Event, int], None],
        depth: int = 1,
        patience: float = 1.0,
    ) -> None:
        self._patience = patience
        self._count = count
        self._process, self._covers, self._failed = process, covers, failed
        self._depth = depth
        self._images: deque[PendingImage] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="image worker", daemon=True)
        self._thread.start()

    def set_patience(self, seconds: float) -> None:
        """Wait so long for the odometry of an image from now on."""
        self._patience = seconds

    def submit(self, stamp_ns: int, message: Any) -> None:
        """Queue an image."""
        with self._condition:
            self._images.append(PendingImage(stamp_ns, message, time.perf_counter()))
            self._condition.notify()

    def odometry_arrived(self) -> None:
        """Look again whether an image that waits is covered now."""
        if self._images:
            with self._condition:
                self._condition.notify()

    def clear(self) -> None:
        """Drop the images that wait."""
        with self._condition:
            self._count(Event.IMAGE_DROPPED, len(self._images))
            self._images.clear()

    def stop(self) -> None:
        """End the thread after the current image."""
        with self._condition:
            self._stopping = True
            self._images.clear()
            self._condition.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (image := self._wait_for_image()) is not None:
            try:
                self._process(image)
            except Exception as error:  # a thread that dies silently is worse than one bad frame
                self._failed(error)

    def _wait_for_image(self) -> PendingImage | None:
        """Return the next image to process; None when the thread is to end."""
        with self._condition:
            while not self._stopping:
                image = self._next_image()
                if image is not None:
                    return image
                self._condition.wait(timeout=0.1 if self._images else None)
            return None

    def _next_image(self) -> PendingImage | None:
        """Return the image to process now; drop those for which it is too late."""
        covered = [image for image in self._images if self._covers(image.stamp_ns)]
        dropped, covered = covered[: -self._depth], covered[-self._depth :]
        for image in dropped:
            self._images.remove(image)
            self._count(Event.IMAGE_DROPPED, 1)
        if covered:
            self._images.remove(covered[0])
            return replace(covered[0], overtakes=bool(dropped))
        too_old = time.perf_counter() - self._patience
        while self._images and (
            self._images[0].arrived < too_old
            or len(self._images) > max(self._depth, MAX_UNCOVERED_IMAGES)
        ):
            self._images.popleft()
            self._count(Event.IMAGE_WITHOUT_ODOMETRY, 1)
        return None
