"""Global starts, kidnappings and undisturbed drives: does it find itself, and does it know?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.evaluation.metrics import error_in_sigmas, position_errors, position_sigmas
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.experiments.recovery_trials import (
    COVERED,
    Trial,
    global_starts,
    joined,
    kidnappings,
    whole_drives,
)
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap

FOUND_WITHIN_M = 0.5
START_UPDATES = 30
BEFORE_KIDNAPPING = 40
AFTER_KIDNAPPING = 60
AFTER_UNCOVERED = 30
"""Updates after a place that the map does not know, in which the robot may find itself again."""

BATCH = 10
"""Trials that share a localizer, whose preparation costs as much as some hundred updates."""


@dataclass(frozen=True)
class Trace:
    """One value an update: the position's error (m), its distance from the truth in standard
    deviations, its standard deviation (m), the state, and whether the map has covered the frames
    of the last `AFTER_UNCOVERED` updates.
    """

    error_m: Array
    standard_distance: Array
    sigma_m: Array
    states: NDArray[np.str_]
    covered: NDArray[np.bool_]


@dataclass(frozen=True)
class Scene:
    """A map and the test drives on it; runs batches of trials, in worker processes too."""

    training_map: TrainingMap
    drives: tuple[DescribedDrive, ...]

    @cached_property
    def covered(self) -> tuple[NDArray[np.bool_], ...]:
        """For each drive (t,), where the map has a pose near the true one."""
        return tuple(
            np.asarray(covered_share(self.training_map, drive.truth) >= COVERED)
            for drive in self.drives
            if drive.truth is not None
        )

    def __call__(self, trials: Sequence[Trial]) -> list[Trace]:
        localizer = Localizer(self.training_map, make_filter("kbf", self.training_map))
        traces = []
        for trial in trials:
            localizer.reset()
            covered = [_lasting(self.covered[piece.drive])[piece.rows] for piece in trial]
            run = replay(joined(self.drives, trial), localizer)
            traces.append(trace_of(run, np.concatenate(covered)))
        return traces


def trace_of(run: Run, covered: NDArray[np.bool_]) -> Trace:
    """What the experiment keeps of a run."""
    return Trace(
        error_m=position_errors(run),
        standard_distance=error_in_sigmas(run),
        sigma_m=position_sigmas(run),
        states=np.array(run.states),
        covered=covered,
    )


def _lasting(covered: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where the last `AFTER_UNCOVERED` updates were covered too."""
    padded = np.concatenate((np.ones(AFTER_UNCOVERED, dtype=bool), covered))
    windows = np.lib.stride_tricks.sliding_window_view(padded, AFTER_UNCOVERED + 1)
    return np.asarray(windows.all(axis=1))


@dataclass(frozen=True)
class World:
    """The cloudy map with cloudy test drives; a night drive on that map and on a merged one."""

    by_day: Scene
    night_on_cloudy: Scene
    night_on_merged: Scene


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

    day = world.by_day
    cloudy, merged = world.night_on_cloudy, world.night_on_merged
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
        "undisturbed": run(day, whole_drives(day.drives), "undisturbed drives"),
        "night_on_cloudy": run(cloudy, whole_drives(cloudy.drives), "night on the cloudy map"),
        "night_on_merged": run(merged, whole_drives(merged.drives), "night on the merged map"),
    }
