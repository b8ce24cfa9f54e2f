"""What the recovery experiment found: how soon found, how soon noticed, how honest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kbf_localization.arrays import Flags
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.recovery import BEFORE_KIDNAPPING, FOUND_WITHIN_M, Outcome, Trace
from kbf_localization.training_map.picture import COLOURS


def findings(outcome: Outcome) -> Findings:
    """The table, a row of `updates.csv` for each update, and errors over updates."""
    metrics = metrics_of(outcome)
    rows = [
        (group.replace("_", " "), name.replace("_", " "), figure)
        for group, figures in metrics.items()
        for name, figure in figures.items()
    ]
    title = "Global localization and relocalization"
    table = Table(f"{title} in a simulated office", ("Trial", "Metric", "Value"), rows)
    updates = (
        (group, trial, update, error, sigma, state)
        for group, traces in outcome.items()
        for trial, trace in enumerate(traces)
        for update, (error, _, sigma, state, _) in enumerate(trace.tolist())
    )
    header = ("group", "trial", "update", "position_error_m", "sigma_m", "state")
    caption = "Errors after global starts and after kidnappings, every trial"
    return Findings(
        title,
        metrics,
        tables=[table],
        csv={"updates.csv": (header, updates)},
        pictures={"recovery.png": (_draw(outcome["global_start"], outcome["kidnapping"]), caption)},
    )


def metrics_of(outcome: Outcome) -> dict[str, Any]:
    """The figures of `metrics.json`."""
    found = [_first(trace["error_m"] <= FOUND_WITHIN_M) for trace in outcome["global_start"]]
    after = slice(BEFORE_KIDNAPPING, None)
    detected = [_first((trace["state"] == "lost")[after], 1) for trace in outcome["kidnapping"]]
    recovered = [
        _first(trace["error_m"][after] <= FOUND_WITHIN_M) for trace in outcome["kidnapping"]
    ]
    whole = np.concatenate(outcome["undisturbed"])
    day = whole[whole["covered"]]
    return {
        "global_start": {
            "starts": len(found),
            "converged_share": _share(found, 15),
            "median_updates": float(np.median(found)),
        },
        "kidnapping": {
            "kidnappings": len(detected),
            "detected_share": _share(detected, 15),
            "recovered_share": _share(recovered, 30),
            "median_updates_to_detect": float(np.median(detected)),
            "median_updates_to_recover": float(np.median(recovered)),
        },
        "undisturbed": {
            "updates": len(day),
            "false_lost": sum(_times_lost(trace) for trace in outcome["undisturbed"]),
            "updates_off_the_map": int((~whole["covered"]).sum()),
            "share_tracking_off_the_map": _share_tracking(whole[~whole["covered"]]),
        },
        "covariance": {
            "within_three_sigma_share": float((day["standard_distance"] <= 3.0).mean()),
            "median_sigma_m": float(np.median(day["sigma_m"])),
            "position_rmse_m": float(np.sqrt((day["error_m"] ** 2).mean())),
        },
        "night_on_cloudy": _lighting(np.concatenate(outcome["night_on_cloudy"])),
        "night_on_merged": _lighting(np.concatenate(outcome["night_on_merged"])),
    }


def _share_tracking(trace: Trace) -> float | None:
    """None where there are no updates."""
    return float((trace["state"] == "tracking").mean()) if len(trace) else None


def _lighting(trace: Trace) -> dict[str, float | None]:
    """How drives in another light went."""
    return {
        "position_rmse_m": float(np.sqrt((trace["error_m"] ** 2).mean())),
        "position_median_m": float(np.median(trace["error_m"])),
        "share_beyond_1m": float((trace["error_m"] > 1.0).mean()),
        "share_tracking": _share_tracking(trace),
    }


def _first(happened: Flags, lasting: int = 3) -> float:
    """After how many updates it first happened `lasting` times in a row; infinity for never."""
    stays = np.lib.stride_tricks.sliding_window_view(happened, lasting).all(axis=1)
    return float(np.argmax(stays)) + 1.0 if stays.any() else float("inf")


def _times_lost(trace: Trace) -> int:
    """How often "lost" was reported anew where the map covers the drive."""
    lost = trace["state"] == "lost"
    anew = lost & ~np.concatenate(([False], lost[:-1]))
    return int((anew & trace["covered"]).sum())


def _share(updates: Sequence[float], at_most: int) -> float:
    return float((np.array(updates) <= at_most).mean())


def _draw(starts: Sequence[Trace], carried: Sequence[Trace]) -> Figure:
    """The error over the updates of every trial, and how many robots say that they are lost."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_errors(left, starts, 0)
    left.set(title=f"{len(starts)} global starts", xlabel="updates since the start")
    _draw_errors(right, carried, -BEFORE_KIDNAPPING)
    right.set(title=f"{len(carried)} kidnappings", xlabel="updates since the robot was carried off")
    lost = np.mean([one["state"] == "lost" for one in carried], axis=0)
    share = right.twinx()
    share.plot(np.arange(len(lost)) - BEFORE_KIDNAPPING, lost, color=COLOURS[1], linewidth=2)
    share.set(ylim=(0.0, 1.05))
    share.set_ylabel('share that says "lost"', color=COLOURS[1])
    return figure


def _draw_errors(axes: Axes, traces: Sequence[Trace], first: int) -> None:
    updates = np.arange(len(traces[0])) + first
    errors = np.array([trace["error_m"] for trace in traces])
    axes.plot(updates, errors.T, color=COLOURS[5], alpha=0.25, linewidth=0.7)
    axes.plot(updates, np.median(errors, axis=0), color=COLOURS[0], label="median")
    axes.axhline(FOUND_WITHIN_M, color="0.4", linestyle="--", label=f"{FOUND_WITHIN_M} m")
    axes.set(yscale="log", ylabel="error of the position, m")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)
