"""A bag through the real node: it answers as offline, in time, and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kbf_localization.cli.main import app
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.evaluation.run import Run
from kbf_localization.evaluation.run import replay as replay_described
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import wrap_angle
from kbf_localization.localization import Localizer
from kbf_localization.mapping import build_map, load_map
from kbf_localization.ros import replay
from kbf_localization.ros.replay import QUIET_S, ReplaySettings, replay_through_node
from kbf_localization.training_map import TrainingMap, save_map
from kbf_localization.vision.onnx_describer import OnnxDescriber
from test.conftest import learning_quickly
from test.ros.bag_world import (
    with_clock_and_map_to_odom,
    with_growing_covariance,
    without_odometry_topic,
    write_world_bag,
)
from test.ros.robot import PATIENCE
from test.ros.world import World
from test.vision.networks import random_convolutions

FRAMES = 60
WHOLE_QUEUE = {"image_queue_depth": 1000}
IN_STEP = ReplaySettings(rate=20.0, max_waiting=5)
ALL = slice(None)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason to take an image for dropped."""
    monkeypatch.setattr(replay, "QUIET_S", PATIENCE)


@pytest.fixture(scope="module")
def map_file(landmark_map_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, by whose path this file's nodes differ from those of other workers."""
    return Path(shutil.copy(landmark_map_file, tmp_path_factory.mktemp("map")))


@pytest.fixture(scope="module")
def bag(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_world_bag(world, tmp_path_factory.mktemp("bag"), FRAMES)


def offline_run(drive: RosbagDrive, training_map: TrainingMap, frames: slice = ALL) -> Run:
    """What the library makes of these images of the bag."""
    localizer = Localizer(training_map, make_filter("kbf", training_map))
    described = describe_drive(drive, training_map.image_describer)
    return replay_described(described.part(frames), localizer, "kbf")


def assert_same_poses(node: Run, offline: Run, at_most: float = 1e-9) -> None:
    assert len(node) == len(offline) and node.frames_dropped == 0
    difference = node.estimates - offline.estimates
    difference[:, 2] = wrap_angle(difference[:, 2])
    assert np.abs(difference).max() < at_most


def test_the_nodes_poses_equal_the_offline_replays(
    bag: Path, map_file: Path, tmp_path: Path
) -> None:
    """With odometry that knows its own noise, which both use."""
    training_map = load_map(map_file)
    noise = 3.0 * min(training_map.calibration.motion_noise.per_metre)
    drive = RosbagDrive(with_growing_covariance(bag, tmp_path / "bag", noise))
    node = replay_through_node(drive, map_file, IN_STEP, parameters=WHOLE_QUEUE).run
    offline = offline_run(drive, training_map)
    assert_same_poses(node, offline)
    assert len(node) == FRAMES
    np.testing.assert_allclose(node.covariances, offline.covariances, rtol=1e-6, atol=1e-12)
    without_reports = offline_run(RosbagDrive(bag), training_map)
    assert np.abs(without_reports.covariances - offline.covariances).max() > 1e-6
    assert node.states == offline.states and all(node.states)
    assert np.isfinite(node.step_ms).all() and np.isfinite(node.evidence).all()
    np.testing.assert_array_equal(node.truth, offline.truth)


def test_a_network_gives_the_offline_replays_poses_too(
    world: World, bag: Path, tmp_path: Path
) -> None:
    """On one machine to the last bit; 1e-6 is what other threads of onnxruntime might change."""
    network = random_convolutions(tmp_path / "net.onnx")
    mapped = ColdDrive(world.write_cold(tmp_path / "seq1_cloudy1", 60, 0.03, 0.1))
    path = tmp_path / "learned.kbfmap"
    with learning_quickly():
        save_map(build_map(mapped, poses=40, describer=OnnxDescriber(network)), path)
    drive = RosbagDrive(bag)
    replayed = replay_through_node(
        drive,
        path,
        replace(IN_STEP, duration_s=2.0),
        parameters={**WHOLE_QUEUE, "descriptor_model": str(network)},
    )
    offline = offline_run(drive, load_map(path, network), slice(20))
    assert_same_poses(replayed.run, offline, 1e-6)


def test_raw_images_and_odometry_in_tf_alone_give_the_offline_replays_poses_too(
    world: World, map_file: Path, tmp_path: Path
) -> None:
    """Of a part of a robot's own bag, whose clock and map→odom are left out and named."""
    raw = write_world_bag(world, tmp_path, 30, raw=True, storage="sqlite3")
    robots = with_clock_and_map_to_odom(raw, tmp_path / "robots")
    drive = RosbagDrive(without_odometry_topic(robots, tmp_path / "tf alone"))
    settings = replace(IN_STEP, start_s=1.0, duration_s=1.5)
    replayed = replay_through_node(drive, map_file, settings, parameters=WHOLE_QUEUE)
    assert_same_poses(replayed.run, offline_run(drive, load_map(map_file), slice(10, 25)))
    said = "\n".join(replayed.notes)
    assert "left out the bag's own /clock" in said
    assert "left out the bag's own transform map→odom (15 times)" in said
    assert replayed.played.counts["/tf"] == 30 and "/clock" not in replayed.played.counts


def test_frames_that_the_node_cannot_keep_up_with_are_counted(
    bag: Path, map_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "QUIET_S", QUIET_S)
    replayed = replay_through_node(RosbagDrive(bag), map_file, ReplaySettings(rate=200.0))
    run = replayed.run
    assert run.frames_dropped > 0 and len(run) + run.frames_dropped == FRAMES


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ReplaySettings(rate=0.0), "--rate 0.0"),
        (ReplaySettings(start_s=100.0), "--start 100.0: .* is 5.9 s long"),
        (ReplaySettings(duration_s=-1.0), "--duration above 0"),
    ],
)
def test_impossible_settings_are_refused(
    bag: Path, map_file: Path, settings: ReplaySettings, says: str
) -> None:
    with pytest.raises(KbfError, match=says):
        replay_through_node(RosbagDrive(bag), map_file, settings)


def test_a_node_that_does_not_start_says_why(bag: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.kbfmap").write_text("no map")
    with pytest.raises(KbfError, match="the node did not start: .*bad.kbfmap"):
        replay_through_node(RosbagDrive(bag), tmp_path / "bad.kbfmap")


def nodes_of(map_file: Path) -> list[int]:
    """The processes whose command line or parameters file mentions this map."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--params-file" in arguments:
            parameters = Path(os.fsdecode(arguments[arguments.index(b"--params-file") + 1]))
            if parameters.is_file() and str(map_file) in parameters.read_text():
                found.append(int(process.name))
    return found


@pytest.mark.usefixtures("cold_nodes")
def test_the_command_writes_metrics_and_trajectories(
    bag: Path, map_file: Path, tmp_path: Path
) -> None:
    words = (bag, "--map", map_file, "--rate", 4, "--queue", 1000, "--output", tmp_path)
    result = CliRunner().invoke(app, ["replay", *map(str, words), "--no-report"])
    assert result.exit_code == 0, result.output
    assert "position error, median" in result.output
    node = json.loads((tmp_path / "metrics.json").read_text())["methods"]["node"]
    assert node["frames"] == FRAMES and node["frames_dropped"] == 0
    assert node["position_median_m"] < 0.3
    assert len((tmp_path / "trajectory_node.tum").read_text().splitlines()) >= FRAMES
    assert nodes_of(map_file) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_ends_the_node_too(
    bag: Path, map_file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    own_map = tmp_path / "own.kbfmap"
    own_map.write_bytes(map_file.read_bytes())
    command = [sys.executable, "-m", "kbf_localization.cli", "replay", str(bag)]
    command += ["--map", str(own_map), "--rate", "0.2", "--output", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        give_up = time.monotonic() + PATIENCE
        while not nodes_of(own_map) and time.monotonic() < give_up:
            time.sleep(0.1)
        assert nodes_of(own_map)
        time.sleep(1.0)
        process.send_signal(number)
        _, error = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()  # it must not play to the tests that follow
    assert process.returncode in (130, 143), error
    assert "Traceback" not in error
    assert nodes_of(own_map) == [] and not (tmp_path / "out").exists()


def test_a_loop_is_played_until_interrupted_and_its_last_whole_pass_counts(
    bag: Path, map_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    wait = replay._wait_for_answers

    def wait_or_interrupt(*arguments: Any) -> None:
        passes.append(len(passes))
        if len(passes) == 3:
            raise KeyboardInterrupt
        wait(*arguments)

    monkeypatch.setattr(replay, "_wait_for_answers", wait_or_interrupt)
    settings = replace(IN_STEP, loop=True, duration_s=2.0)
    replayed = replay_through_node(RosbagDrive(bag), map_file, settings, parameters=WHOLE_QUEUE)
    assert replayed.passes == 2
    assert replayed.run.frames_dropped == 0 and len(replayed.run) == 20
