"""Plots of runs: paths on the map, error over time, error distribution, consistency of σ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.evaluation.map_plot import COLOURS, draw_floor_plan
from kbf_localization.evaluation.metrics import position_errors, position_sigmas
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.run import Run
from kbf_localization.evaluation.verdict import stretches
from kbf_localization.progress import Progress, no_progress, tracked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kbf_localization.training_map.training_map import TrainingMap

# Line styles tell runs apart in print.
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
MIN_SHOWN_M = 1e-3
"""Errors below a millimetre are drawn at it, since the axis is logarithmic."""
MIN_JUMP_M = 0.8
"""A longer step between two images is drawn as a jump."""

STATE_COLOURS = {
    "uninitialized": "#999999",
    "localizing": "#56B4E9",
    "tracking": "#009E73",
    "degraded": "#E69F00",
    "lost": "#D55E00",
}
"""Those of RViz and of the pages, which colour-blind people can distinguish."""


def save_plots(
    folder: ResultsFolder,
    part: str,
    runs: Mapping[str, Run],
    training_map: TrainingMap,
    progress: Progress = no_progress,
) -> None:
    """Write the plots of one drive as PNG, their names beginning with `part`."""
    plots: dict[str, Callable[[Axes, Mapping[str, Run]], None]] = {
        "paths": partial(draw_paths, training_map=training_map)
    }
    if any(run.truth is not None for run in runs.values()):
        plots |= {
            "error_over_time": draw_error_over_time,
            "error_distribution": draw_error_distribution,
            "sigma_and_error": draw_sigma_and_error,
        }
    for name, draw in tracked(plots.items(), "drawing", progress):
        figure, axes = make_figure()
        draw(axes, runs)
        save_figure(folder, f"{part}{name}.png", figure)


def make_figure(width: float = 8.0, height: float = 5.0) -> tuple[Figure, Axes]:
    """Return a new figure, without state that other threads or calls see."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def save_figure(folder: ResultsFolder, name: str, figure: Figure) -> Path:
    with folder.writing(name) as path, warnings.catch_warnings():
        # Of each character in a name that no font has, a line with the character itself.
        warnings.filterwarnings("ignore", "Glyph ")
        figure.savefig(path, dpi=110)
    return folder.file(name)


def draw_paths(axes: Axes, runs: Mapping[str, Run], training_map: TrainingMap) -> None:
    """Draw the estimated paths and the true path over the map's poses, to scale."""
    draw_floor_plan(axes, training_map.floor_plan)
    axes.plot(*training_map.poses[:, :2].T, ".", color="0.75", markersize=3, label="map poses")
    truth = next((run.truth for run in runs.values() if run.truth is not None), None)
    if truth is not None:
        axes.plot(*truth[:, :2].T, color="black", linewidth=2.5, alpha=0.6, label="truth")
    for (name, run), colour in zip(runs.items(), COLOURS, strict=False):
        path, dots = _broken_at_jumps(run.estimates[:, :2])
        axes.plot(*path.T, color=colour, lw=1.3, label=name)
        axes.plot(*dots.T, ".", color=colour, ms=3)
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal", title="Paths over the map's poses")
    axes.legend(frameon=False)


def _broken_at_jumps(points: Array) -> tuple[Array, Array]:
    """Return the path with NaN rows where it jumps, and the points beside a jump.

    A method that jumps about would hide the rest under lines across the map.
    """
    jumps = np.flatnonzero(np.linalg.norm(np.diff(points, axis=0), axis=1) > MIN_JUMP_M) + 1
    return np.insert(points, jumps, np.nan, axis=0), points[np.union1d(jumps - 1, jumps)]


def draw_error_over_time(axes: Axes, runs: Mapping[str, Run]) -> None:
    """Draw position errors over time, above a band of the first method's states."""
    first = next(iter(runs.values()))
    start_ns = int(first.stamps_ns[0])
    for (name, run), colour, line in zip(runs.items(), COLOURS, LINES, strict=False):
        seconds = (run.stamps_ns - start_ns) * 1e-9
        errors = np.maximum(position_errors(run), MIN_SHOWN_M)
        axes.plot(seconds, errors, color=colour, linestyle=line, lw=1.2, label=name)
    band = axes.secondary_xaxis("top")
    band.set_xticks([])
    shown: set[str] = set()
    for state, begin, end in stretches(first):
        label = None if state in shown else state
        axes.axvspan(begin, end, ymin=0.97, color=STATE_COLOURS.get(state, "#999999"), label=label)
        shown.add(state)
    axes.set(xlabel="time (s)", ylabel="position error (m)", title="Error over time")
    axes.set_yscale("log")
    axes.set_ylim(bottom=MIN_SHOWN_M)
    axes.legend(frameon=False, ncols=2)


def draw_error_distribution(axes: Axes, runs: Mapping[str, Run]) -> None:
    """Draw the cumulative distribution of the position error over the frames."""
    for (name, run), colour, line in zip(runs.items(), COLOURS, LINES, strict=False):
        errors = np.sort(position_errors(run))
        errors = errors[np.isfinite(errors)]
        fractions = np.arange(1, len(errors) + 1) / max(len(errors), 1)
        axes.plot(errors, fractions, color=colour, linestyle=line, label=name)
    axes.axvline(1.0, color="0.5", linewidth=0.8)
    axes.set(xlabel="position error (m)", ylabel="fraction of frames", title="Error distribution")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.01)
    axes.legend(frameon=False)


def draw_sigma_and_error(axes: Axes, runs: Mapping[str, Run]) -> None:
    """Draw the first method's published standard deviation against its true error."""
    name, run = next(iter(runs.items()))
    sigmas, errors = position_sigmas(run), position_errors(run)
    axes.plot(sigmas, errors, ".", color=COLOURS[0], alpha=0.5, markersize=4, label=name)
    reach = np.array([1e-3, max(float(sigmas.max(initial=0.0)), 1e-2)])
    axes.plot(reach, reach, color="0.4", linewidth=1, label="error = σ")
    axes.plot(reach, 3 * reach, "--", color="0.4", linewidth=1, label="error = 3 σ")
    axes.set(xlabel="published σ (m)", ylabel="position error (m)", title="Consistency of σ")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(frameon=False)


def draw_weights(axes: Axes, points: Array, weights: Array) -> None:
    """Draw weights (n,) on points (n, 2) by area: discs for positive, diamonds for negative."""
    areas = 300.0 * np.abs(weights) / np.abs(weights).max()
    for sign, marker, colour, label in (
        (1, "o", COLOURS[0], "positive weights"),
        (-1, "D", COLOURS[1], "negative weights"),
    ):
        own = (np.sign(weights) == sign) & (areas > 0.5)
        if not own.any():
            continue
        x, y = points[own].T
        axes.scatter(
            x,
            y,
            s=areas[own],
            marker=marker,
            facecolor=colour if sign > 0 else "none",
            edgecolor=colour,
            alpha=0.7,
            label=f"{label}, {weights[np.sign(weights) == sign].sum():+.2f} in all",
        )
