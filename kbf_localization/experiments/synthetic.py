"""Section 6.2 of the paper: filtering with the model-based against the non-parametric sum rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.experiments.synthetic_filter import (
    HyperParameters,
    KernelFilter,
    TrainingPairs,
)
from kbf_localization.experiments.synthetic_model import SETTINGS, Setting
from kbf_localization.experiments.synthetic_search import Grid, validation_errors
from kbf_localization.experiments.trials import nested_summaries
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

METHODS = ("kbf", "fkbf")
TEST_STEPS = 100
GRIDS = {
    # No bandwidth wider than the data's own scale, and δ not tiny: the rule stays local.
    "local": Grid(
        state_stds=(0.1, 0.2, 0.3, 0.4),
        observation_stds=(0.1, 0.2, 0.3, 0.4),
        epsilons=(1e-4, 1e-3, 1e-2),
        deltas=(1e-3, 1e-2, 1e-1, 1.0),
    ),
    # Wide bandwidths and tiny δ as well: the rule can become a smooth regression from z to x.
    "open": Grid(
        state_stds=(0.2, 0.4, 0.8, 1.6),
        observation_stds=(0.2, 0.4, 0.8, 1.6),
        epsilons=(1e-6, 1e-4, 1e-2),
        deltas=(1e-8, 1e-6, 1e-4, 1e-2),
    ),
}


@dataclass(frozen=True)
class Task:
    """One trial of one panel with n training pairs."""

    setting: str
    size: int
    trial: int
    seed: int

    def generator(self) -> np.random.Generator:
        """Random numbers that depend on nothing but what the task is."""
        key = (list(SETTINGS).index(self.setting), self.size, self.trial)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))


@dataclass(frozen=True)
class Outcome:
    """The error of one method with the parameters that cross validation chose from one grid."""

    task: Task
    grid: str
    method: str
    mean_squared_error: float
    parameters: HyperParameters


def draw(task: Task) -> tuple[Setting, TrainingPairs, Array, Array]:
    """The panel's models, training pairs, and the states and observations of the test."""
    setting = SETTINGS[task.setting]
    generator = task.generator()
    states, observations = setting.training.simulate(task.size + 1, generator)
    pairs = TrainingPairs(states[:-1], observations[:-1], states[1:])
    return setting, pairs, *setting.test.simulate(TEST_STEPS, generator)


def run_task(task: Task) -> list[Outcome]:
    """Tune both methods over both grids and test them; the model's η is the one of its phase."""
    setting, pairs, states, observations = draw(task)
    outcomes = []
    for (name, grid), method in product(GRIDS.items(), METHODS):
        in_training = setting.training if method == "kbf" else None
        in_test = setting.test if method == "kbf" else None
        best = list(grid)[int(validation_errors(pairs, grid, in_training).argmin())]
        error = KernelFilter(pairs, best, in_test).mean_squared_error(states, observations)
        outcomes.append(Outcome(task, name, method, error, best))
    return outcomes


def run_trials(
    trials: int,
    seed: int,
    sizes: Sequence[int],
    workers: Workers,
    progress: Progress = no_progress,
) -> list[Outcome]:
    """All panels; the same seed gives the same numbers, however many workers and trials."""
    # The longest first, so that no worker is left alone with one at the end.
    tasks = [
        Task(setting, size, trial, seed)
        for size in sorted(sizes, reverse=True)
        for trial in range(trials)
        for setting in SETTINGS
    ]
    done = tracked(workers.map(run_task, tasks), "synthetic filtering", progress, len(tasks))
    return [outcome for some in done for outcome in some]


def metrics_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What `metrics.json` holds: MSE by grid, panel, n and method."""
    return nested_summaries(
        ((one.grid, one.task.setting, str(one.task.size), one.method), one.mean_squared_error)
        for one in sorted(outcomes, key=lambda one: one.task.size)
    )
