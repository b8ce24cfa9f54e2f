"""The files of the synthetic experiment: raw errors as CSV, MSE over n and the weights as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection  # type: ignore[import-untyped]

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.synthetic import (
    Outcome,
    WeightPicture,
    rows_of,
    weight_picture,
)
from kbf_localization.experiments.synthetic_model import curve
from kbf_localization.experiments.trials import draw_curve, finish_panel, write_csv

TITLES = {
    "gaussian": "Gaussian noise",
    "mixture": "mixture noise",
    "changed_rotation": "η changed after training",
}
METHOD_LABELS = {"kbf": "model-based (KBF)", "fkbf": "non-parametric (fKBF)"}


def write_files(
    folder: ResultsFolder, outcomes: Sequence[Outcome], metrics: Mapping[str, Any], trials: int
) -> None:
    """`errors.csv`, `synthetic.png` and `weights.png`."""
    write_csv(folder, "errors.csv", *rows_of(outcomes))
    pictures = {
        "synthetic.png": draw_errors(metrics, trials),
        "weights.png": draw_weights(weight_picture(outcomes)),
    }
    for name, figure in pictures.items():
        with folder.writing(name) as temporary:
            figure.savefig(temporary, dpi=150)


def draw_errors(metrics: Mapping[str, Any], trials: int) -> Figure:
    """A row of three panels for each search grid."""
    figure = Figure(figsize=(11.0, 3.4 * len(metrics)), layout="constrained")
    grid_of_axes = figure.subplots(len(metrics), len(TITLES), squeeze=False)
    for row, (grid, panels) in zip(grid_of_axes, metrics.items()):
        for axes, (setting, by_size) in zip(row, panels.items()):
            for index, (method, label) in enumerate(METHOD_LABELS.items()):
                figures = [figures[method] for figures in by_size.values()]
                draw_curve(axes, label, [int(size) for size in by_size], figures, index)
            axes.set_title(f"{TITLES[setting]}, {grid} grid", fontsize=10)
            axes.set_xlabel("training pairs n")
            finish_panel(axes, "MSE")
    figure.suptitle(f"Synthetic filtering, mean ± standard deviation of {trials} trials")
    return figure


def draw_weights(picture: WeightPicture) -> Figure:
    """Weights over the plane of states: positive ones cyan, negative ones magenta."""
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    axes: Any = figure.add_subplot(projection="3d")
    axes.plot(*curve(np.linspace(0.0, 2.0 * np.pi, 400)).T, 0.0, color="green", linewidth=1.0)
    positive = picture.weights >= 0.0
    for rows, colour, label in (
        (positive, "darkcyan", "positive weights"),
        (~positive, "magenta", "negative weights"),
    ):
        points, heights = picture.states[rows], picture.weights[rows]
        feet = np.column_stack([points, np.zeros(len(points))])
        tops = np.column_stack([points, heights])
        stems = np.stack([feet, tops], axis=1)
        axes.add_collection3d(Line3DCollection(stems, colors=colour, linewidths=1.2))
        axes.scatter(*points.T, heights, color=colour, s=6, depthshade=False, label=label)
    axes.scatter(*picture.true_state, 0.0, color="blue", s=40, label="true state", zorder=9)
    axes.scatter(*picture.observation, 0.0, color="red", s=40, label="observation", zorder=9)
    axes.set(xlabel="u", ylabel="v", zlabel="weight")
    axes.set_title("Weights of the model-based filter on its training states")
    axes.legend(loc="upper left", fontsize=8)
    return figure
