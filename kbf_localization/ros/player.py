"""Publication of a bag's messages at the bag's pace, with /clock.

Left out is what would disturb the node: topics that it publishes itself, and the bag's clock.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.interfaces import QosDurability
from rosgraph_msgs.msg import Clock

from kbf_localization.arrays import Array
from kbf_localization.datasets.bag_reader import TRANSFORMS, BagTopic, open_bag
from kbf_localization.progress import Progress, no_progress
from kbf_localization.ros.conversions import time_message

CLOCK_PERIOD_S = 0.02
JUMP_BACK_S = 0.3
QUEUE_DEPTH = 1000
CLOCK = "rosgraph_msgs/msg/Clock"
_NODE_PUBLISHES = (
    *("pose", "status", "belief", "belief_poses", "hypotheses", "best_match/compressed"),
    *("map_poses", "floor_plan", "path", "state", "initialpose"),
)
_HOUSEKEEPING = ("/rosout", "/parameter_events", "/diagnostics", "/diagnostics_agg")


@dataclass(frozen=True)
class Playlist:
    """The topics to play with their message classes, and what was left out, a line each."""

    topics: tuple[tuple[BagTopic, Any], ...]
    notes: tuple[str, ...]


@dataclass
class Played:
    """What was published: counts by topic, how late each message was, transforms left out."""

    counts: Counter[str] = field(default_factory=Counter)
    lateness_s: list[float] = field(default_factory=list)
    transforms_left_out: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def lateness_ms(self) -> Array:
        """(messages,) published this much after its moment in the bag."""
        return 1e3 * np.asarray(self.lateness_s)


class BagPlayer:
    """Publishers for the topics of a playlist, and the clock; `play` runs on the caller's thread.

    Everything is published reliably: what a node loses, it lost by itself. The transform that the
    node is to give, to `odom_frame`, is left out.
    """

    def __init__(self, node: Node, bag: Path, playlist: Playlist, odom_frame: str) -> None:
        self._bag, self._odom_frame = bag, odom_frame
        self._classes = dict(playlist.topics)
        self._publishers = {
            topic: node.create_publisher(message_class, topic.name, _qos(topic))
            for topic, message_class in playlist.topics
        }
        self._clock = node.create_publisher(Clock, "/clock", QoSProfile(depth=10))
        self._clock_ns = 0

    def heard_by(self, topic: BagTopic) -> int:
        """Return the number of subscriptions to a topic of the playlist."""
        return int(self._publishers[topic].get_subscription_count())

    def set_clock(self, now_ns: int) -> None:
        """Publish the time, as of which nodes may start."""
        self._clock_ns = now_ns
        self._clock.publish(Clock(clock=time_message(now_ns)))

    def play(
        self,
        start_ns: int,
        stop_ns: int,
        rate: float = 1.0,
        hold: Callable[[Played], bool] | None = None,
        progress: Progress = no_progress,
    ) -> Played:
        """Publish what was recorded from `start_ns` up to `stop_ns`, `rate` times as fast.

        While `hold` says so, time stands still.
        """
        played = Played()
        done, seconds = -1, 1 + int((stop_ns - start_ns) * 1e-9)
        with open_bag(self._bag) as bag:
            played_before = self._clock_ns > start_ns
            self.set_clock(start_ns)
            if played_before:
                # A node that sees time jump back starts over, and must have done so before it
                # gets the first messages.
                time.sleep(JUMP_BACK_S)
            began = time.perf_counter()
            next_tick = began + CLOCK_PERIOD_S
            for topic, recorded_ns, cdr in bag.messages(self._publishers, start_ns, stop_ns):
                began += _held(hold, played)
                due = began + (recorded_ns - start_ns) * 1e-9 / rate
                while (now := time.perf_counter()) < due:
                    if now >= next_tick:
                        self._advance(start_ns + int((now - began) * rate * 1e9))
                        next_tick = now + CLOCK_PERIOD_S
                    time.sleep(max(min(due, next_tick) - time.perf_counter(), 0.0))
                data = self._content(topic, cdr, played)
                self._advance(recorded_ns)
                next_tick = time.perf_counter() + CLOCK_PERIOD_S
                self._publishers[topic].publish(data)
                played.lateness_s.append(time.perf_counter() - due)
                played.counts[topic.name] += 1
                if (second := int((recorded_ns - start_ns) * 1e-9)) != done:
                    done = second
                    progress(done, seconds, "playing the bag (s)")
            progress(seconds, seconds, "playing the bag (s)")
            played.seconds = time.perf_counter() - began
        return played

    def _advance(self, now_ns: int) -> None:
        if now_ns > self._clock_ns:
            self.set_clock(now_ns)

    def _content(self, topic: BagTopic, cdr: Any, played: Played) -> bytes:
        if topic.type != TRANSFORMS:
            return bytes(cdr)
        message = deserialize_message(bytes(cdr), self._classes[topic])
        message, left_out = without_transform_to(message, self._odom_frame)
        played.transforms_left_out.update(left_out)
        return bytes(serialize_message(message))


def _held(hold: Callable[[Played], bool] | None, played: Played) -> float:
    """Wait while `hold` says so; return the seconds that it took."""
    if hold is None or not hold(played):
        return 0.0
    since = time.perf_counter()
    while hold(played):
        time.sleep(0.005)
    return time.perf_counter() - since


def _qos(topic: BagTopic) -> QoSProfile:
    latched = any(qos.durability == QosDurability.TRANSIENT_LOCAL for qos in topic.offered_qos)
    latched = latched or topic.name == "/tf_static"
    return QoSProfile(
        depth=QUEUE_DEPTH,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def choose_playlist(topics: Sequence[BagTopic], needed: Sequence[BagTopic]) -> Playlist:
    """Choose all topics but the bag's clock, what the node publishes, and unknown types.

    `needed` topics are played whatever their names.
    """
    played: list[tuple[BagTopic, Any]] = []
    notes: list[str] = []
    unknown: list[str] = []
    for topic in topics:
        message_class = message_class_of(topic.type)
        if not topic.count:
            continue
        if topic not in needed:
            if topic.type == CLOCK:
                notes.append(f"left out the bag's own {topic.name}: the replay gives the time")
                continue
            if topic.name in _HOUSEKEEPING:
                continue
            if topic.name.lstrip("/") in _NODE_PUBLISHES:
                notes.append(f"left out the bag's own {topic.name}: the node is to publish that")
                continue
        if message_class is None:
            unknown.append(f"{topic.name} ({topic.type})")
            continue
        played.append((topic, message_class))
    if unknown:
        notes.append(f"left out topics of types not installed here: {', '.join(unknown)}")
    return Playlist(tuple(played), tuple(notes))


def message_class_of(type_name: str) -> Any:
    """Return the class of a type such as "nav_msgs/msg/Odometry"; None if not installed."""
    try:
        package, kind, name = type_name.split("/")
        return getattr(importlib.import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError, ValueError):
        return None


def without_transform_to(message: Any, frame: str) -> tuple[Any, list[str]]:
    """Return the message without the transforms to `frame`, and the names of those."""
    kept, left_out = [], []
    for transform in message.transforms:
        if transform.child_frame_id.lstrip("/") == frame:
            left_out.append(f"{transform.header.frame_id}→{transform.child_frame_id}")
        else:
            kept.append(transform)
    message.transforms = kept
    return message, left_out
