"""Which form of the kernel Bayes' rule serves where: form × power × regularization on four maps.

Algorithm 1 runs with each setting on the same maps of one office: an even one, an uneven one, one
of several drives over one place, and one of a building whose parts look alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.bayes_rule import Form
from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.ambiguity import with_look_alikes
from kbf_localization.experiments.localization import Setup
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import nested_summaries, plus_minus, raw_data
from kbf_localization.filters.paper_filter import PoseKernelBayesFilter
from kbf_localization.filters.parameters import KernelParameters
from kbf_localization.geometry import embed
from kbf_localization.localization import Localizer
from kbf_localization.mapping.build import map_of_frames
from kbf_localization.mapping.frames import select_frames
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map.training_map import TrainingMap, map_spacing

POSES = 160
CROWDED_POSES = 100
"""Of an uneven map's poses, in one place."""

ALIKE = 4
"""Parts of the path that look alike where images are ambiguous."""

TEST_FRAMES = 400
"""Of the test drive, from its first on: enough to find the place, and to lose it."""

CONDITIONS = {
    "even": "even map",
    "uneven": "uneven map",
    "several_drives": "several drives",
    "look_alikes": "look-alikes",
}
"""The maps, and what they are called in the tables."""

POWERS = (1, 4, 12, 20)
REGULARIZATIONS: Mapping[Form, tuple[float, ...]] = {
    "original": (1e-4, 1e-2, 0.5),
    "importance-weighted": (0.1, 3.0, 100.0),
    "plain": (1.0,),
}
"""δ in units of max|β|², λ in units of max β; plain weights have none."""

METRICS = ("position_rmse_m", "position_median_m", "last_half_beyond_1m")


@dataclass(frozen=True)
class RuleTrial:
    """`metrics` of one setting of the rule on the map of a condition."""

    condition: str
    choice: int
    form: Form
    power: int
    regularization: float
    metrics: Mapping[str, float]

    @property
    def setting(self) -> str:
        return f"{self.form}, power {self.power}, {self.regularization:g}"


def run_trials(
    setup: Setup,
    *,
    trials: int,
    seed: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> list[RuleTrial]:
    """Run every setting on the same `trials` maps of each condition."""
    results: list[RuleTrial] = []
    for fold in setup.folds:
        pool = fold.describe(seed, workers, progress, landmarks=False)
        items = [(condition, choice) for condition in CONDITIONS for choice in range(trials)]
        task = partial(_run, pool, len(fold.training), seed)
        for found in tracked(workers.map(task, items), "forms of the rule", progress, len(items)):
            results += found
    return results


def _run(
    pool: FramePool, training_drives: int, seed: int, item: tuple[str, int]
) -> list[RuleTrial]:
    """Run all settings on one map."""
    condition, choice = item
    if condition == "look_alikes":
        pool = with_look_alikes(pool, ALIKE)
    training_map = condition_map(pool, training_drives, condition, seed + choice)
    drive = pool.drive(training_drives).part(slice(0, TEST_FRAMES))
    bandwidth = KernelParameters().bandwidth * _even_spacing(pool, seed + choice)
    bandwidth /= map_spacing(embed(training_map.poses))
    results = []
    for form, regularizations in REGULARIZATIONS.items():
        for power in POWERS:
            for value in regularizations:
                parameters = KernelParameters(
                    bandwidth=bandwidth, power=float(power), delta=value, rule=form
                )
                pose_filter = PoseKernelBayesFilter(training_map, parameters)
                errors = position_errors(replay(drive, Localizer(training_map, pose_filter)))
                metrics = _metrics(errors)
                results.append(RuleTrial(condition, choice, form, power, value, metrics))
    return results


def _even_spacing(pool: FramePool, seed: int) -> float:
    """Return the spacing of the even map, from which all maps have their k_X.

    It is the rule that differs.
    A crowd of poses would make the median spacing of an uneven map its own.
    """
    poses = pool.frames.poses[pool.rows_of(0)]
    return map_spacing(embed(poses[select_frames(poses, POSES, "coverage", seed)]))


def _metrics(errors: Array) -> dict[str, float]:
    return {
        "position_rmse_m": float(np.sqrt(np.mean(errors**2))),
        "position_median_m": float(np.median(errors)),
        "last_half_beyond_1m": float(np.mean(errors[len(errors) // 2 :] > 1.0)),
    }


def condition_map(pool: FramePool, training_drives: int, condition: str, seed: int) -> TrainingMap:
    """Return a map of `POSES` poses as the condition has them.

    Several drives are all training drives, of which the others take the first alone.
    """
    drives = range(training_drives) if condition == "several_drives" else range(1)
    own = np.flatnonzero(np.isin(pool.frames.drive_of, drives))
    part, described, usable = pool.part(own)
    if condition == "uneven":
        rows = usable[uneven_rows(part.poses[usable], seed)]
    else:
        select = "random" if condition == "several_drives" else "coverage"
        rows = usable[select_frames(part.poses[usable], POSES, select, seed)]
    return map_of_frames(part, described, rows, pool.describer, seed=seed)


def uneven_rows(poses: Array, seed: int) -> Rows:
    """Return rows of poses (t, 3): `CROWDED_POSES` nearest to one, the rest spread evenly."""
    generator = np.random.default_rng(seed)
    centre = poses[int(generator.integers(len(poses)))]
    nearest = np.argsort(np.linalg.norm(poses[:, :2] - centre[:2], axis=1), kind="stable")
    crowded = nearest[:CROWDED_POSES]
    spread = select_frames(poses, POSES - CROWDED_POSES, "coverage", seed)
    return np.unique(np.concatenate((crowded, spread)))


def experiment_result(trials: Sequence[RuleTrial]) -> ExperimentResult:
    """Return a table of settings by conditions, and every trial."""
    metrics = nested_summaries(
        ((trial.condition, trial.setting, name), trial.metrics[name])
        for trial in trials
        for name in METRICS
    )
    settings = list(dict.fromkeys(trial.setting for trial in trials))
    tables = [
        _table(metrics, settings, "position_rmse_m", "RMSE [m]", 1.0, 2),
        _table(metrics, settings, "last_half_beyond_1m", "Last half beyond 1 m [%]", 100.0, 0),
    ]
    of = {name: name for name in ("condition", "choice", "form", "power", "regularization")}
    return ExperimentResult(
        "Forms of the kernel Bayes' rule",
        metrics,
        tables=tables,
        csv={"rules.csv": raw_data(trials, of, METRICS)},
    )


def _table(
    metrics: Mapping[str, Any],
    settings: Sequence[str],
    name: str,
    label: str,
    scale: float,
    digits: int,
) -> Table:
    columns = ("Rule, power, δ or λ", *(CONDITIONS[condition] for condition in metrics))
    rows = [
        (
            setting,
            *(
                plus_minus(by_setting[setting][name], digits, scale)
                for by_setting in metrics.values()
            ),
        )
        for setting in settings
    ]
    return Table(f"{label}, mean ± std over maps", columns, rows)
