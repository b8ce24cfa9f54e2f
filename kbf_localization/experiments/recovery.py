"""Global starts, kidnappings and undisturbed drives: does it find itself, and does it know?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Flags
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.metrics import error_in_sigmas, position_errors, position_sigmas
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.experiments.localization_drives import simulated_drives
from kbf_localization.experiments.recovery_trials import (
    Covered,
    Trial,
    covered_by,
    global_starts,
    joined,
    kidnappings,
    whole_drives,
)
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap, build_map
from kbf_localization.training_map.editing import merge_maps

FOUND_WITHIN_M = 0.5
START_UPDATES = 30
BEFORE_KIDNAPPING = 40
AFTER_KIDNAPPING = 60
AFTER_UNCOVERED = 30
"""Updates after a place that the map does not know, in which the robot may find itself again."""

BATCH = 10
"""Trials that share a localizer, whose preparation costs as much as some hundred updates."""


Trace = NDArray[np.void]
"""A table (t,) with a row an update, of `COLUMNS`."""

COLUMNS = [
    ("error_m", float),  # of the position
    ("standard_distance", float),  # from the truth, in standard deviations
    ("sigma_m", float),
    ("state", "U16"),
    ("covered", bool),  # by the map, for the last `AFTER_UNCOVERED` updates
]


@dataclass(frozen=True)
class Scene:
    """A map and the test drives on it; runs batches of trials, in worker processes too."""

    training_map: TrainingMap
    drives: tuple[DescribedDrive, ...]

    @cached_property
    def covered(self) -> Covered:
        return covered_by(self.training_map, self.drives)

    def __call__(self, trials: Sequence[Trial]) -> list[Trace]:
        localizer = Localizer(self.training_map)
        traces = []
        for trial in trials:
            localizer.reset()
            covered = [_lasting(self.covered[piece.drive])[piece.rows] for piece in trial]
            run = replay(joined(self.drives, trial), localizer)
            traces.append(trace_of(run, np.concatenate(covered)))
        return traces


def trace_of(run: Run, covered: Flags) -> Trace:
    """What the experiment keeps of a run."""
    trace = np.empty(len(run), COLUMNS)
    trace["error_m"], trace["standard_distance"] = position_errors(run), error_in_sigmas(run)
    trace["sigma_m"], trace["state"] = position_sigmas(run), run.states
    trace["covered"] = covered
    return trace


def _lasting(covered: Flags) -> Flags:
    """Where the last `AFTER_UNCOVERED` updates were covered too."""
    padded = np.concatenate((np.ones(AFTER_UNCOVERED, dtype=bool), covered))
    windows = np.lib.stride_tricks.sliding_window_view(padded, AFTER_UNCOVERED + 1)
    return np.asarray(windows.all(axis=1))


World = Mapping[str, Scene]
"""Where drives are tested from end to end: `undisturbed` by day on the cloudy map, and a night
drive on that map and on one merged with another night's."""


def make_world(
    folder: Path,
    poses: int,
    frames: int,
    test_drives: int,
    size: tuple[int, int],
    *,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> World:
    """Render the drives into `folder` and build the maps: two cloudy drives, and one by night."""
    conditions = ["cloudy"] * (2 + test_drives) + ["night"] * 2
    how: dict[str, Any] = {"seed": seed, "workers": workers, "progress": progress}
    drives = simulated_drives(folder, conditions, frames=frames, size=size, **how)
    trained, tests, (night_trained, night_test) = drives[:2], drives[2:-2], drives[-2:]
    cloudy = build_map(trained, poses=poses, **how)
    merged = merge_maps([cloudy, build_map([night_trained], poses=poses, like=cloudy, **how)])

    def scene(training_map: TrainingMap, on: list[Drive]) -> Scene:
        describer = training_map.described_by
        described = [describe_drive(one, describer, progress=progress) for one in on]
        return Scene(training_map, tuple(described))

    return {
        "undisturbed": scene(cloudy, tests),
        "night_on_cloudy": scene(cloudy, [night_test]),
        "night_on_merged": scene(merged, [night_test]),
    }


Outcome = Mapping[str, Sequence[Trace]]
"""The traces of all trials by what was tried, as `metrics.json` calls it."""


def run_trials(
    world: World, starts: int, seed: int, workers: Workers, progress: Progress = no_progress
) -> Outcome:
    """So many global starts, half as many kidnappings, and all test drives from end to end."""

    def run(scene: Scene, trials: Sequence[Trial], doing: str) -> list[Trace]:
        batches = [trials[first : first + BATCH] for first in range(0, len(trials), BATCH)]
        traces: list[Trace] = []
        for part in workers.map(scene, batches):
            traces += part
            progress(len(traces), len(trials), doing)
        return traces

    day = world["undisturbed"]
    begun = global_starts(day.drives, day.covered, starts, START_UPDATES, seed)
    carried = kidnappings(
        day.drives,
        starts // 2,
        seed,
        before=BEFORE_KIDNAPPING,
        after=AFTER_KIDNAPPING,
        covered=day.covered,
    )
    return {
        "global_start": run(day, begun, "global starts"),
        "kidnapping": run(day, carried, "kidnappings"),
        **{
            name: run(scene, whole_drives(scene.drives), f"whole drives, {name.replace('_', ' ')}")
            for name, scene in world.items()
        },
    }
