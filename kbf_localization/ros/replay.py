"""Replay of a bag through a node process: start it, play the bag, record the poses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from kbf_localization.arrays import Rows
from kbf_localization.datasets.bag_reader import TRANSFORMS, open_bag
from kbf_localization.datasets.bag_topics import IMAGE
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.evaluation.run import Run
from kbf_localization.progress import Progress, no_progress
from kbf_localization.ros.node_process import (
    NodeProcess,
    NodeRecorder,
    Recording,
    Value,
    spinning,
)
from kbf_localization.ros.player import BagPlayer, Played, choose_playlist

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
    """Play the bag of `drive` to a node process; `parameters` are further ones of the node.

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
        listening = player.heard_by(drive.odom_topic) and player.heard_by(drive.image_topic)
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
