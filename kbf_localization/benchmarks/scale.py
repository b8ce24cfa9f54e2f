"""What a map's size costs: a tracking step, a global update, memory and starting."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.benchmarks._synthetic_map import SPACING_M, Corridor, synthetic_map
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.belief_filter import BeliefFilter
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import relative
from kbf_localization.mapping import load_map
from kbf_localization.parallel import Cores
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap, save_map
from kbf_localization.vision.describer import ImageDescription

SMALL, LARGE = 1_000, 100_000
BLOCKS, STEPS_PER_BLOCK, WARM_UP = 12, 25, 30
GLOBAL_STARTS = 9
STEPS_AFTER_START = 20
STEP_M = 0.05
ODOMETRY_SIGMA = 0.002
Metrics = dict[str, "dict[str, Any] | float"]
_Times = tuple[float, float]
"""Milliseconds by the clock, and of this process's processor time."""


def start_on_map(journey: tuple[Path, Array, Sequence[ImageDescription]]) -> dict[str, float]:
    """Load the map at a path, localize globally with the first view, track with motions (t, 3).

    The t + 1 views are described images. Gives the time to the first estimate, and the memory after
    tracking and at its highest.
    """
    path, motions, views = journey
    clock, cpu = perf_counter(), process_time()
    training_map = load_map(path)
    pose_filter = make_filter("kbf", training_map)
    pose_filter.step(None, training_map.observe(views[0]))
    start_s, start_cpu_s = perf_counter() - clock, process_time() - cpu
    for motion, view in zip(motions, views[1:], strict=True):
        pose_filter.step(motion, training_map.observe(view))
    return {
        "resident_mb": _memory_mb("VmRSS"),
        "peak_mb": _memory_mb("VmHWM"),
        "start_s": start_s,
        "start_cpu_s": start_cpu_s,
    }


def _memory_mb(name: str) -> float:
    """Return a figure of this process's memory that Linux keeps, in 10⁶ bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return float("nan")


def run(progress: Progress = no_progress) -> Metrics:
    """Return the cases at 1,000 and 100,000 poses of one corridor, as dense in both.

    The maps are stored and loaded as a user's are. Times are by the clock, `…_cpu_ms` this
    process's processor time.
    """
    with tempfile.TemporaryDirectory(prefix="kbf-bench-") as folder:
        drives = []
        for done, count in enumerate((SMALL, LARGE)):
            progress(done, 2, "making maps")
            path = Path(folder) / f"{count}.kbfmap"
            made, corridor = synthetic_map(count)
            save_map(made, path)
            del made
            drives.append(_Drive(load_map(path), corridor))
        metrics = _tracking(drives[0], drives[1], progress)
        metrics |= _global_updates(drives[1], progress)
        progress(0, 1, "starting on the large map")
        metrics |= _started(path, drives[1])
        progress(1, 1, "starting on the large map")
    return metrics


class _Drive:
    """A filter on a map of a corridor, and the robot that drives along it."""

    def __init__(self, training_map: TrainingMap, corridor: Corridor) -> None:
        self.map = training_map
        self.filter = BeliefFilter(training_map)
        self._corridor = corridor
        self._generator = np.random.default_rng(1)
        self.length_m = SPACING_M * len(training_map)
        self._along_m = 0.0

    def put(self, along_m: float) -> Array:
        """Place the robot after so many metres of the path; return its pose (3,)."""
        self._along_m = along_m
        return np.asarray(self._corridor.poses(np.array([along_m]))[0])

    def see(self) -> ImageDescription:
        """Return the description of what is seen where the robot is."""
        return self._corridor.describe(self._along_m, self._generator)

    def move(self) -> Array:
        """Drive on a little; the odometry's motion (3,)."""
        before = self.put(self._along_m)
        motion = relative(before, self.put(self._along_m + STEP_M))
        return np.asarray(motion + ODOMETRY_SIGMA * self._generator.standard_normal(3))

    def step(self, moved: bool = True) -> _Times:
        """Return the times of one step of the filter; the image is described beforehand."""
        motion = self.move() if moved else None
        return _timed(self.filter.step, motion, self.map.observe(self.see()))


def _tracking(small: _Drive, large: _Drive, progress: Progress) -> Metrics:
    """Time steps on both maps in turn, so that whatever else the machine does slows both."""
    small_times, large_times, passes = [], [], []
    for drive in (small, large):
        start = drive.put(0.3 * drive.length_m)
        drive.filter.reset(GaussianPrior(start, np.diag([0.1, 0.1, 0.05]) ** 2))
        for _ in range(WARM_UP):
            drive.step()
    for block in range(BLOCKS):
        small_times += [small.step() for _ in range(STEPS_PER_BLOCK)]
        large_times += [large.step() for _ in range(STEPS_PER_BLOCK)]
        passes.append(_timed(small.map.observe(small.see()).similarities))
        progress(block + 1, BLOCKS, "tracking")
    few, many = len(small.map), len(large.map)
    return {
        f"step_{_short(few)}": _case(
            small_times, passes, f"one pass of histogram intersection over the {few:,} poses"
        ),
        f"step_{_short(many)}": _case(
            large_times, small_times, f"the same step on a map of {few:,} poses"
        ),
    }


def _global_updates(drive: _Drive, progress: Progress) -> Metrics:
    """Time first and second updates after global starts, with plain passes in between."""
    first, second, passes = [], [], []
    drive.map.observe(drive.see()).coarse_similarities()
    fractions = np.random.default_rng(2).uniform(0.05, 0.95, GLOBAL_STARTS)
    for done, fraction in enumerate(fractions):
        drive.put(float(fraction) * drive.length_m)
        passes.append(_timed(drive.map.observe(drive.see()).similarities))
        drive.filter.reset()
        first.append(drive.step(moved=False))
        second.append(drive.step())
        progress(done + 1, GLOBAL_STARTS, "global updates")
    size = _short(len(drive.map))
    reference = "one plain pass of histogram intersection over the map"
    return {
        f"global_{size}": _case(first, passes, reference),
        f"global_second_{size}": _case(second, passes, reference),
    }


def _started(path: Path, drive: _Drive) -> Metrics:
    """Return memory and time of a process that does nothing but start on the map and track."""
    drive.put(0.6 * drive.length_m)
    views = [drive.see()]
    motions = []
    for _ in range(STEPS_AFTER_START):
        motions.append(drive.move())
        views.append(drive.see())
    journey = path, np.array(motions), views
    (started,) = Cores(1).map(start_on_map, [journey])
    return {f"{name}_{_short(len(drive.map))}": value for name, value in started.items()}


def _timed(function: Callable[..., object], *arguments: Any) -> _Times:
    cpu = process_time()
    clock_ms = milliseconds(function, *arguments)
    return clock_ms, 1e3 * (process_time() - cpu)


def _case(ours: Sequence[_Times], reference: Sequence[_Times], what: str) -> dict[str, Any]:
    metrics = case(np.array(ours)[:, 0], np.array(reference)[:, 0], what)
    for name, times in (("ours", ours), ("reference", reference)):
        clock_ms, cpu_ms = np.transpose(times)
        metrics[f"{name}_p99_ms"] = float(np.percentile(clock_ms, 99))
        metrics[f"{name}_cpu_ms"] = float(np.median(cpu_ms))
        metrics[f"{name}_mean_cpu_ms"] = float(np.mean(cpu_ms))
        metrics[f"{name}_p99_cpu_ms"] = float(np.percentile(cpu_ms, 99))
    return metrics


def _short(count: int) -> str:
    """Return 1000 as "1k"."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)
