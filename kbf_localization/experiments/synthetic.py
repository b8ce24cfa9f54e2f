"""Section 6.2 of the paper: filtering with the model-based against the non-parametric sum rule.

The state goes round a wavy circle and is seen distorted. Algorithm 1 and its fully non-parametric
baseline filter it on small data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kbf_localization.arrays import Array
from kbf_localization.evaluation.plots import draw_weights
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.synthetic_filter import (
    GRIDS,
    SETTINGS,
    HyperParameters,
    KernelFilter,
    Setting,
    TrainingPairs,
    curve,
    validation_errors,
)
from kbf_localization.experiments.trials import (
    draw_curve,
    draw_sizes,
    finish_panel,
    nested_summaries,
    plus_minus,
    trials_text,
)
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

METHODS = ("kbf", "fkbf")
TEST_STEPS = 100


@dataclass(frozen=True)
class Task:
    """One trial of one panel with n training pairs."""

    setting: str
    size: int
    trial: int
    seed: int

    def generator(self) -> np.random.Generator:
        """Return random numbers that depend on nothing but what the task is."""
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
    """Return the panel's models, training pairs, and the states and observations of the test."""
    setting = SETTINGS[task.setting]
    generator = task.generator()
    states, observations = setting.training.simulate(task.size + 1, generator)
    pairs = TrainingPairs(states[:-1], observations[:-1], states[1:])
    return setting, pairs, *setting.test.simulate(TEST_STEPS, generator)


def run_task(task: Task) -> list[Outcome]:
    """Tune both methods over both grids and test them; the model's η is that of its phase."""
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
    """Return all panels; the same seed gives the same numbers, however many workers and trials."""
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
    """Return what `metrics.json` holds: MSE by grid, panel, n and method."""
    return nested_summaries(
        (
            (outcome.grid, outcome.task.setting, str(outcome.task.size), outcome.method),
            outcome.mean_squared_error,
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.task.size)
    )


TITLES = {
    "gaussian": "Gaussian noise",
    "mixture": "mixture noise",
    "changed_rotation": "η changed after training",
}
METHOD_LABELS = {"kbf": "model-based (KBF)", "fkbf": "non-parametric (fKBF)"}


def experiment_result(outcomes: Sequence[Outcome], trials: int) -> ExperimentResult:
    """Return tables, a row of `errors.csv` for each outcome, and plots of errors and weights."""
    metrics = metrics_of(outcomes)
    rows = [
        (
            f"{grid} grid, {TITLES[setting]}",
            size,
            plus_minus(values["kbf"]),
            plus_minus(values["fkbf"]),
            values["fkbf"]["mean"] / values["kbf"]["mean"],
        )
        for grid, panels in metrics.items()
        for setting, by_size in panels.items()
        for size, values in by_size.items()
    ]
    columns = ("Search and noise", "n", "KBF, MSE", "fKBF, MSE", "fKBF / KBF")
    header = ("grid", "setting", "n", "trial", "method", "mse", *HyperParameters.__annotations__)
    errors = (
        (
            outcome.grid,
            outcome.task.setting,
            outcome.task.size,
            outcome.task.trial,
            outcome.method,
            outcome.mean_squared_error,
            *vars(outcome.parameters).values(),
        )
        for outcome in outcomes
    )
    return ExperimentResult(
        "Filtering in a synthetic world",
        metrics,
        tables=[Table("Synthetic filtering", columns, rows)],
        csv={"errors.csv": (header, errors)},
        plots={
            "synthetic.png": (
                _draw_errors(metrics, trials),
                "Mean squared errors over the number of training pairs (section 6.2)",
            ),
            "weights.png": (
                _draw_weights(outcomes),
                "Weights on the training points at one time, positive and negative",
            ),
        },
    )


def _draw_errors(metrics: Mapping[str, Any], trials: int) -> Figure:
    """Return a row of three panels for each search grid."""
    figure = Figure(figsize=(11.0, 3.4 * len(metrics)), layout="constrained")
    grid_of_axes = figure.subplots(len(metrics), len(TITLES), squeeze=False)
    for row, (grid, panels) in zip(grid_of_axes, metrics.items()):
        for axes, (setting, by_size) in zip(row, panels.items()):
            for index, (method, label) in enumerate(METHOD_LABELS.items()):
                values = {size: values[method] for size, values in by_size.items()}
                draw_curve(axes, label, values, index)
            draw_sizes(axes, by_size, "training pairs n")
            axes.set_title(f"{TITLES[setting]}, {grid} grid", fontsize=10)
            finish_panel(axes, "MSE")
    figure.suptitle(f"Synthetic filtering, mean ± standard deviation of {trials_text(trials)}")
    return figure


def _draw_weights(outcomes: Sequence[Outcome], step: int = 30) -> Figure:
    """Return the model-based filter's weights α_t on its training states, at one time of one trial.

    It is the first panel's first trial, local grid, largest n.
    """
    shown = max(
        (
            outcome
            for outcome in outcomes
            if (outcome.task.setting, outcome.task.trial) == ("gaussian", 0)
            and (outcome.grid, outcome.method) == ("local", "kbf")
        ),
        key=lambda item: item.task.size,
    )
    setting, pairs, states, observations = draw(shown.task)
    weights = KernelFilter(pairs, shown.parameters, setting.test).run(observations[: step + 1])
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*curve(np.linspace(0.0, 2.0 * np.pi, 400)).T, color="0.6", lw=1.0, label="curve")
    axes.plot(*pairs.states.T, ".", color="0.75", markersize=3, label="training states")
    draw_weights(axes, pairs.states, weights[step])
    axes.plot(*states[step], "*", color="black", markersize=13, label="true state")
    axes.plot(*observations[step], "x", color="black", markersize=9, mew=2, label="observation")
    axes.set(xlabel="u", ylabel="v", aspect="equal")
    axes.set_title("Weights of the model-based filter on its training states")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure
