"""Replay of a bag through a node process: start it, play the bag, record the poses.

The bag's messages are published at the bag's pace, with /clock. Left out is what would disturb the
node: topics that it publishes itself, and the bag's clock.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.signals import SignalHandlerOptions
from rosbags.interfaces import QosDurability
from rosgraph_msgs.msg import Clock

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.bag_reader import TRANSFORMS, BagTopic, open_bag
from kbf_localization.datasets.bag_topics import IMAGE
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.evaluation.run import Run
from kbf_localization.progress import Progress, no_progress
from kbf_localization.ros.conversions import time_message
from kbf_localization.ros.node_process import (
    QUEUE_DEPTH,
    NodeProcess,
    NodeRecorder,
    Recording,
    Value,
    spinning,
)

CLOCK_PERIOD_S = 0.02
JUMP_BACK_S = 0.3
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

    def add(self, topic: str, late_s: float, left_out: Sequence[str]) -> None:
        """Count a message that was published `late_s` late, without the transforms `left_out`."""
        self.counts[topic] += 1
        self.lateness_s.append(late_s)
        self.transforms_left_out.update(left_out)

    def finish(self, seconds: float) -> None:
        """Take how long it was played."""
        self.seconds = seconds


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

    def subscription_count(self, topic: BagTopic) -> int:
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
                data, left_out = self._content(topic, cdr)
                self._advance(recorded_ns)
                next_tick = time.perf_counter() + CLOCK_PERIOD_S
                self._publishers[topic].publish(data)
                played.add(topic.name, time.perf_counter() - due, left_out)
                if (second := int((recorded_ns - start_ns) * 1e-9)) != done:
                    done = second
                    progress(done, seconds, "playing the bag (s)")
            progress(seconds, seconds, "playing the bag (s)")
            played.finish(time.perf_counter() - began)
        return played

    def _advance(self, now_ns: int) -> None:
        if now_ns > self._clock_ns:
            self.set_clock(now_ns)

    def _content(self, topic: BagTopic, cdr: Any) -> tuple[bytes, list[str]]:
        """Return what is published of a message, and the transforms that are left out."""
        if topic.type != TRANSFORMS:
            return bytes(cdr), []
        message = deserialize_message(bytes(cdr), self._classes[topic])
        message, left_out = without_transform_to(message, self._odom_frame)
        return bytes(serialize_message(message)), left_out


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
    """Return the class of a type such as "nav_msgs/msg/Odometry"; None if not installed.

    The bag names it, so that nothing is imported but packages of messages.
    """
    package, _, name = type_name.partition("/msg/")
    if not package.isidentifier():
        return None
    try:
        # Without importing it, as whatever asks for a part of it would.
        spec = importlib.util.find_spec(package)
        folders = (spec and spec.submodule_search_locations) or ()
        if not any((Path(folder) / "msg" / "__init__.py").is_file() for folder in folders):
            return None
        found = getattr(importlib.import_module(f"{package}.msg"), name, None)
    except (ImportError, ValueError):
        return None
    return found if hasattr(found, "get_fields_and_field_types") else None


def without_transform_to(message: Any, frame: str) -> tuple[Any, list[str]]:
    """Return the message without the transforms to `frame`, and the names of those."""
    kept, left_out = [], []
    for transform in message.transforms:
        if transform.child_frame_id.lstrip("/") == frame:
            left_out.append(f"{transform.header.frame_id}→{transform.child_frame_id}")
        else:
            kept.append(transform)
    return type(message)(transforms=kept), left_out


START_TIMEOUT_S = 60.0
QUIET_S = 2.0


@dataclass(frozen=True)
class ReplaySettings:
    """How the bag is played: times as fast, from `start_s` for `duration_s` seconds, repeatedly.

    While more than `max_waiting` images wait for the node's answer, time stands still.
    """

    rate: float = 1.0
    start_s: float = 0.0
    duration_s: float | None = None
    loop: bool = False
    max_waiting: int | None = None


@dataclass(frozen=True)
class Replayed:
    """The node's run over the frames `played_frames` of the drive, and how the replay went."""

    run: Run
    played: Played
    passes: int
    notes: tuple[str, ...]
    played_frames: Rows


def replay_through_node(
    drive: RosbagDrive,
    map_path: Path,
    settings: ReplaySettings = ReplaySettings(),  # noqa: B008 (frozen)
    *,
    parameters: Mapping[str, Value] | None = None,
    progress: Progress = no_progress,
) -> Replayed:
    """Play the bag of `drive` to a node process; `parameters` are further parameters of the node.

    With `loop` the bag is played until a KeyboardInterrupt; the last complete pass counts.
    """
    start_ns, stop_ns = _span(drive.path, settings)
    frames = np.flatnonzero((drive.recorded_ns >= start_ns) & (drive.recorded_ns < stop_ns))
    if len(frames) == 0:
        raise ParameterError(
            f"{drive.path}: no images on {drive.image_topic.name} in the part to play; change "
            "--start or --duration"
        )
    with open_bag(drive.path) as bag:
        playlist = choose_playlist(bag.topics, (drive.odom_topic, drive.image_topic))
    with _ros_node() as node, _start_localizer(drive, map_path, parameters or {}) as process:
        player = BagPlayer(node, drive.path, playlist, drive.odom_frame)
        recorder = NodeRecorder(node)
        _wait_until_ready(process, player, recorder, drive, start_ns)
        recording, played, passes = Recording(), Played(), 0
        try:
            while True:
                recorder.take()
                hold = _Hold(recorder, drive.image_topic.name, settings.max_waiting)
                now_played = player.play(start_ns, stop_ns, settings.rate, hold, progress)
                _wait_for_answers(process, recorder, len(frames))
                recording, played, passes = recorder.take(), now_played, passes + 1
                if not settings.loop:
                    break
        except KeyboardInterrupt:
            if not passes:
                raise
        if not recording.poses:
            raise KbfError(f"{drive.path}: the node gave no pose; output: {_last_line(process)}")
    left_out = tuple(
        f"left out the bag's own transform {edge} ({count} times): the node is to give it"
        for edge, count in sorted(played.transforms_left_out.items())
    )
    run = recording.run(drive, frames)
    return Replayed(run, played, passes, playlist.notes + left_out, frames)


class _Hold:
    """Whether too many images wait for an answer; those without one for a while never get one."""

    def __init__(self, recorder: NodeRecorder, image_topic: str, max_waiting: int | None) -> None:
        self._recorder, self._image_topic = recorder, image_topic
        self._max_waiting = max_waiting
        self._answered, self._given_up, self._since = 0, 0, time.monotonic()

    def __call__(self, played: Played) -> bool:
        if self._max_waiting is None:
            return False
        answered = self._recorder.answered()
        waiting = played.counts[self._image_topic] - answered - self._given_up
        if answered != self._answered or waiting <= self._max_waiting:
            self._answered, self._since = answered, time.monotonic()
        if time.monotonic() - self._since > QUIET_S:
            self._given_up += waiting
            return False
        return waiting > self._max_waiting


def _span(bag_path: Path, settings: ReplaySettings) -> tuple[int, int]:
    """Return the stamp to begin at and the stamp to stop before."""
    if not settings.rate > 0.0:
        raise ParameterError(f"--rate {settings.rate}: must be above 0")
    if settings.start_s < 0.0 or (settings.duration_s is not None and settings.duration_s <= 0.0):
        raise ParameterError("--start must be 0 or more seconds and --duration above 0")
    with open_bag(bag_path) as bag:
        start_ns, stop_ns = bag.start_ns, bag.end_ns
    length_s = (stop_ns - start_ns) * 1e-9
    start_ns += round(settings.start_s * 1e9)
    if start_ns >= stop_ns:
        raise ParameterError(f"--start {settings.start_s}: {bag_path} is {length_s:.1f} s long")
    if settings.duration_s is not None:
        stop_ns = min(stop_ns, start_ns + round(settings.duration_s * 1e9))
    return start_ns, stop_ns


@contextmanager
def _ros_node() -> Iterator[Node]:
    """Make a node that a thread spins; signals stay Python's, so that Ctrl-C interrupts."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("kbf_replay", context=context, use_global_arguments=False)
    try:
        with spinning(node):
            yield node
    finally:
        node.destroy_node()
        rclpy.try_shutdown(context=context)


@contextmanager
def _start_localizer(
    drive: RosbagDrive, map_path: Path, parameters: Mapping[str, Value]
) -> Iterator[NodeProcess]:
    raw, by_tf = drive.image_topic.type == IMAGE, drive.odom_topic.type == TRANSFORMS
    given: dict[str, Value] = {
        "map": str(Path(map_path).resolve()),
        "use_sim_time": True,
        "autostart": True,
        "always_reset_initial_pose": True,
        "image_transport": "raw" if raw else "compressed",
        "odom_source": "tf" if by_tf else "topic",
        "odom_frame_id": drive.odom_frame or "odom",
        "base_frame_id": drive.base_frame or "base_footprint",
        "image_reliability": "reliable",
        "odom_reliability": "reliable",
        **parameters,
    }
    topics = {
        "/tf" if by_tf else "odom": drive.odom_topic.name,
        "image" if raw else "image/compressed": drive.image_topic.name,
    }
    with NodeProcess(given, remap=topics) as process:
        yield process


def _wait_until_ready(
    process: NodeProcess,
    player: BagPlayer,
    recorder: NodeRecorder,
    drive: RosbagDrive,
    start_ns: int,
) -> None:
    """Wait until the node listens and its topics are connected."""
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        if process.exit_code is not None or "cannot configure" in process.log():
            raise KbfError(f"the node did not start: {_last_line(process)}")
        player.set_clock(start_ns)
        listening = player.subscription_count(drive.odom_topic) and player.subscription_count(
            drive.image_topic
        )
        if listening and recorder.is_connected():
            # Both sides must know of each other before a message can pass: the second side's
            # discovery follows at once.
            time.sleep(0.2)
            return
        time.sleep(0.05)
    raise KbfError(
        f"the node did not listen within {START_TIMEOUT_S:.0f} s; output: {_last_line(process)}"
    )


def _wait_for_answers(process: NodeProcess, recorder: NodeRecorder, frames: int) -> None:
    """Wait until every frame has a pose, or no further pose comes: the rest was dropped."""
    answered, quiet_since = recorder.answered(), time.monotonic()
    while answered < frames and time.monotonic() - quiet_since < QUIET_S:
        if process.exit_code is not None:
            raise KbfError(f"the node has ended during the replay: {_last_line(process)}")
        time.sleep(0.05)
        if recorder.answered() != answered:
            answered, quiet_since = recorder.answered(), time.monotonic()


def _last_line(process: NodeProcess) -> str:
    lines = [line.strip() for line in process.log().splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"
