"""What the synthetic experiment found: a table, raw errors, MSE over n, and the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kbf_localization.evaluation.plots import draw_weights
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.synthetic import Outcome, draw, metrics_of
from kbf_localization.experiments.synthetic_filter import HyperParameters, KernelFilter
from kbf_localization.experiments.synthetic_model import curve
from kbf_localization.experiments.trials import (
    draw_curve,
    draw_sizes,
    finish_panel,
    plus_minus,
    trials_text,
)

TITLES = {
    "gaussian": "Gaussian noise",
    "mixture": "mixture noise",
    "changed_rotation": "η changed after training",
}
METHOD_LABELS = {"kbf": "model-based (KBF)", "fkbf": "non-parametric (fKBF)"}


def findings(outcomes: Sequence[Outcome], trials: int) -> Findings:
    """The table, a row of `errors.csv` for each outcome, MSE over n, and weights at one time."""
    metrics = metrics_of(outcomes)
    rows = [
        (
            f"{grid} {setting}",
            size,
            plus_minus(figures["kbf"]),
            plus_minus(figures["fkbf"]),
            figures["fkbf"]["mean"] / figures["kbf"]["mean"],
        )
        for grid, panels in metrics.items()
        for setting, by_size in panels.items()
        for size, figures in by_size.items()
    ]
    columns = ("Grid and panel", "n", "KBF, MSE", "fKBF, MSE", "fKBF / KBF")
    header = ("grid", "setting", "n", "trial", "method", "mse", *HyperParameters.__annotations__)
    errors = (
        (
            one.grid,
            one.task.setting,
            one.task.size,
            one.task.trial,
            one.method,
            one.mean_squared_error,
            *vars(one.parameters).values(),
        )
        for one in outcomes
    )
    return Findings(
        "Filtering in a synthetic world",
        metrics,
        tables=[Table("Synthetic filtering", columns, rows)],
        csv={"errors.csv": (header, errors)},
        pictures={
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
    """A row of three panels for each search grid."""
    figure = Figure(figsize=(11.0, 3.4 * len(metrics)), layout="constrained")
    grid_of_axes = figure.subplots(len(metrics), len(TITLES), squeeze=False)
    for row, (grid, panels) in zip(grid_of_axes, metrics.items()):
        for axes, (setting, by_size) in zip(row, panels.items()):
            for index, (method, label) in enumerate(METHOD_LABELS.items()):
                figures = {size: figures[method] for size, figures in by_size.items()}
                draw_curve(axes, label, figures, index)
            draw_sizes(axes, by_size, "training pairs n")
            axes.set_title(f"{TITLES[setting]}, {grid} grid", fontsize=10)
            finish_panel(axes, "MSE")
    figure.suptitle(f"Synthetic filtering, mean ± standard deviation of {trials_text(trials)}")
    return figure


def _draw_weights(outcomes: Sequence[Outcome], step: int = 30) -> Figure:
    """The model-based filter's weights α_t on its training states, at one time of one trial.

    It is the first panel's first trial, local grid, largest n.
    """
    shown = max(
        (
            one
            for one in outcomes
            if (one.task.setting, one.task.trial) == ("gaussian", 0)
            and (one.grid, one.method) == ("local", "kbf")
        ),
        key=lambda one: one.task.size,
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
