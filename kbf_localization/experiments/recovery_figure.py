"""The files of the recovery experiment: updates until found as CSV, errors over updates as PNG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.recovery import BEFORE_KIDNAPPING, FOUND_WITHIN_M, Outcome, Trace
from kbf_localization.experiments.trials import save_figure, write_csv
from kbf_localization.training_map.picture import COLOURS


def write_files(folder: ResultsFolder, outcome: Outcome) -> None:
    """`updates.csv` (a row an update) and `recovery.png`."""
    rows = (
        (group, trial, update, error, sigma, state)
        for group, traces in outcome.items()
        for trial, trace in enumerate(traces)
        for update, (error, sigma, state) in enumerate(
            zip(trace.error_m, trace.sigma_m, trace.states, strict=True)
        )
    )
    header = ("group", "trial", "update", "position_error_m", "sigma_m", "state")
    write_csv(folder, "updates.csv", header, rows)
    save_figure(folder, "recovery.png", draw(outcome["global_start"], outcome["kidnapping"]))


def draw(starts: Sequence[Trace], carried: Sequence[Trace]) -> Figure:
    """The error over the updates of every trial, and how many robots say that they are lost."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_errors(left, starts, 0)
    left.set(title=f"{len(starts)} global starts", xlabel="updates since the start")
    _draw_errors(right, carried, -BEFORE_KIDNAPPING)
    right.set(title=f"{len(carried)} kidnappings", xlabel="updates since the robot was carried off")
    lost = np.mean([one.states == "lost" for one in carried], axis=0)
    share = right.twinx()
    share.plot(np.arange(len(lost)) - BEFORE_KIDNAPPING, lost, color=COLOURS[1], linewidth=2)
    share.set(ylim=(0.0, 1.05))
    share.set_ylabel('share that says "lost"', color=COLOURS[1])
    return figure


def _draw_errors(axes: Axes, traces: Sequence[Trace], first: int) -> None:
    updates = np.arange(len(traces[0].error_m)) + first
    errors = np.array([trace.error_m for trace in traces])
    axes.plot(updates, errors.T, color=COLOURS[5], alpha=0.25, linewidth=0.7)
    axes.plot(updates, np.median(errors, axis=0), color=COLOURS[0], label="median")
    axes.axhline(FOUND_WITHIN_M, color="0.4", linestyle="--", label=f"{FOUND_WITHIN_M} m")
    axes.set(yscale="log", ylabel="error of the position, m")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)
