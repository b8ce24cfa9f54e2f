"""The files of the synthetic experiment: raw errors as CSV, MSE over n and the weights as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from kbf_localization.evaluation.plots import draw_weights
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.synthetic import Outcome, WeightPicture, rows_of, weight_picture
from kbf_localization.experiments.synthetic_model import curve
from kbf_localization.experiments.trials import (
    draw_curve,
    finish_panel,
    save_figure,
    trials_text,
    write_csv,
)

TITLES = {
    "gaussian": "Gaussian noise",
    "mixture": "mixture noise",
    "changed_rotation": "η changed after training",
}
METHOD_LABELS = {"kbf": "model-based (KBF)", "fkbf": "non-parametric (fKBF)"}


def write_files(
    folder: ResultsFolder, outcomes: Sequence[Outcome], metrics: Mapping[str, Any], trials: int
) -> None:
    """`errors.csv`, and `synthetic` and `weights` as PNG, PDF and SVG."""
    write_csv(folder, "errors.csv", *rows_of(outcomes))
    pictures = {
        "synthetic.png": draw_errors(metrics, trials),
        "weights.png": draw_picture(weight_picture(outcomes)),
    }
    for name, figure in pictures.items():
        save_figure(folder, name, figure)


def draw_errors(metrics: Mapping[str, Any], trials: int) -> Figure:
    """A row of three panels for each search grid."""
    figure = Figure(figsize=(11.0, 3.4 * len(metrics)), layout="constrained")
    grid_of_axes = figure.subplots(len(metrics), len(TITLES), squeeze=False)
    for row, (grid, panels) in zip(grid_of_axes, metrics.items()):
        for axes, (setting, by_size) in zip(row, panels.items()):
            for index, (method, label) in enumerate(METHOD_LABELS.items()):
                figures = [figures[method] for figures in by_size.values()]
                draw_curve(axes, label, [int(size) for size in by_size], figures, index)
            axes.set_xscale("log")
            axes.set_xticks([int(size) for size in by_size], list(by_size))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_title(f"{TITLES[setting]}, {grid} grid", fontsize=10)
            axes.set_xlabel("training pairs n")
            finish_panel(axes, "MSE")
    figure.suptitle(f"Synthetic filtering, mean ± standard deviation of {trials_text(trials)}")
    return figure


def draw_picture(picture: WeightPicture) -> Figure:
    """Weights on the plane of states."""
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*curve(np.linspace(0.0, 2.0 * np.pi, 400)).T, color="0.6", lw=1.0, label="curve")
    axes.plot(*picture.states.T, ".", color="0.75", markersize=3, label="training states")
    draw_weights(axes, picture.states, picture.weights)
    axes.plot(*picture.true_state, "*", color="black", markersize=13, label="true state")
    axes.plot(*picture.observation, "x", color="black", markersize=9, mew=2, label="observation")
    axes.set(xlabel="u", ylabel="v", aspect="equal")
    axes.set_title("Weights of the model-based filter on its training states")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure
