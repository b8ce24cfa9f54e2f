"""Section 6.3 of the paper: the error of robot localization against the size of the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.evaluation.cross_validation import Tuned, tune
from kbf_localization.evaluation.frame_pool import FramePool, describe_drives
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.localization_drives import Setup
from kbf_localization.experiments.trials import Trial, summaries
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization.localizer import Localizer
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress, tracked

SIZES = (100, 200, 400, 800)
METHODS = ("kbf", "paper", "fkbf", "nn", "nai", "kmcf")
UNTUNED = "kbf_untuned"
"""The kernel Bayes filter with the defaults that need no tuning."""

FIGURES = (
    "position_rmse_m",
    "position_median_m",
    "share_beyond_1m",
    "share_confident_wrong",
    "share_tracking",
    "within_three_sigma_share",
    "nees_mean",
    "highest_weight_rmse_m",
    "highest_weight_median_m",
)


@dataclass(frozen=True)
class Outcome:
    """All trials, and what was tuned for each fold, size and method."""

    trials: tuple[Trial, ...]
    tuned: Mapping[str, Mapping[int, Mapping[str, Tuned]]]


def run_trials(
    setup: Setup,
    *,
    trials: int = 10,
    sizes: Sequence[int] = SIZES,
    methods: Sequence[str] = METHODS,
    budget: int = 24,
    tune_at: int | None = None,
    seed: int = 0,
    journals: Path | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """All methods, tuned on the training drives alone, on `trials` random choices of poses.

    They are tuned at each size, or once, with `tune_at` poses: the parameters have no scale.
    """
    workers = workers or Serial()
    results: list[Trial] = []
    tuned: dict[str, dict[int, Mapping[str, Tuned]]] = {}
    for fold in setup.folds:
        pool = describe_drives(
            fold.training, [fold.test], seed=seed, workers=workers, progress=progress
        )
        drives = list(range(len(fold.training)))
        for poses in sizes:
            known = tuned.get(fold.test.name, {}).get(sizes[0]) if tune_at else None
            found = known or tune(
                pool,
                drives,
                methods,
                tune_at or poses,
                budget=budget,
                seed=seed,
                journal=None if journals is None else journals / f"{fold.test.name}.jsonl",
                workers=workers,
                progress=progress,
            )
            tuned.setdefault(fold.test.name, {})[poses] = found
            task = _TestTask(pool, len(drives), fold.test.name, seed, found)
            items = [
                (method, poses, choice)
                for choice in range(trials)
                for method in (*methods, *([UNTUNED] if "kbf" in methods else []))
            ]
            doing = f"testing on {fold.test.name} at {poses} poses"
            results += tracked(workers.map(task, items), doing, progress, len(items))
    return Outcome(tuple(results), tuned)


@dataclass(frozen=True)
class _TestTask:
    """Runs one method over the test drive on one random map; a picklable function."""

    pool: FramePool
    training_drives: int
    fold: str
    seed: int
    tuned: Mapping[str, Tuned]

    def __call__(self, item: tuple[str, int, int]) -> Trial:
        name, poses, choice = item
        method = "kbf" if name == UNTUNED else name
        parameters = {} if name == UNTUNED else self.tuned[method].parameters
        stored = {f"{method}.{key}": one for key, one in parameters.items()}
        chosen = self.pool.random_map(
            range(self.training_drives), poses, self.seed + 100_000 + choice, stored
        )
        pose_filter = make_filter(method, chosen, seed=self.seed + choice)
        run = replay(self.pool.drive(self.training_drives), Localizer(chosen, pose_filter), method)
        assert run.truth is not None and run.highest_weight is not None
        heaviest = _distances(run.highest_weight, run.truth)
        figures = {
            **trajectory_metrics(run),
            "highest_weight_rmse_m": float(np.sqrt(np.mean(heaviest**2))),
            "highest_weight_median_m": float(np.median(heaviest)),
        }
        return Trial(self.fold, poses, name, choice, figures)


def metrics_of(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """{"<n>": {"<method>": {figure: {"mean", "std"}}}} over all folds and choices."""
    return summaries(outcome.trials, FIGURES)


def _distances(estimates: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(estimates[:, :2] - truth[:, :2], axis=1))
