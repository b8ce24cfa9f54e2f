"""The recovery experiment's figures: how soon found, how soon noticed, how honest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.experiments.recovery import (
    BEFORE_KIDNAPPING,
    FOUND_WITHIN_M,
    Outcome,
    Trace,
)


def metrics_of(outcome: Outcome) -> dict[str, Any]:
    """The figures of `metrics.json`."""
    found = [_first(trace.error_m <= FOUND_WITHIN_M) for trace in outcome["global_start"]]
    after = slice(BEFORE_KIDNAPPING, None)
    detected = [_first((trace.states == "lost")[after], 1) for trace in outcome["kidnapping"]]
    recovered = [_first(trace.error_m[after] <= FOUND_WITHIN_M) for trace in outcome["kidnapping"]]
    whole = _joined(outcome["undisturbed"])
    day = _part(whole, whole.covered)
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
            "updates": len(day.error_m),
            "false_lost": sum(_times_lost(trace) for trace in outcome["undisturbed"]),
            "updates_off_the_map": int((~whole.covered).sum()),
            "share_tracking_off_the_map": _share_tracking(_part(whole, ~whole.covered)),
        },
        "covariance": {
            "within_three_sigma_share": float((day.standard_distance <= 3.0).mean()),
            "median_sigma_m": float(np.median(day.sigma_m)),
            "position_rmse_m": float(np.sqrt((day.error_m**2).mean())),
        },
        "night_on_cloudy": _lighting(_joined(outcome["night_on_cloudy"])),
        "night_on_merged": _lighting(_joined(outcome["night_on_merged"])),
    }


def _joined(traces: Sequence[Trace]) -> Trace:
    columns = zip(*(vars(trace).values() for trace in traces), strict=True)
    return Trace(*map(np.concatenate, columns))


def _part(trace: Trace, chosen: NDArray[np.bool_]) -> Trace:
    return Trace(*(column[chosen] for column in vars(trace).values()))


def _share_tracking(trace: Trace) -> float | None:
    """None where there are no updates."""
    return float((trace.states == "tracking").mean()) if len(trace.states) else None


def _lighting(trace: Trace) -> dict[str, float | None]:
    """How drives in another light went."""
    return {
        "position_rmse_m": float(np.sqrt((trace.error_m**2).mean())),
        "position_median_m": float(np.median(trace.error_m)),
        "share_beyond_1m": float((trace.error_m > 1.0).mean()),
        "share_tracking": _share_tracking(trace),
    }


def _first(happened: NDArray[np.bool_], lasting: int = 3) -> float:
    """After how many updates it first happened `lasting` times in a row; infinity for never."""
    stays = np.lib.stride_tricks.sliding_window_view(happened, lasting).all(axis=1)
    return float(np.argmax(stays)) + 1.0 if stays.any() else float("inf")


def _times_lost(trace: Trace) -> int:
    """How often "lost" was reported anew where the map covers the drive."""
    lost = trace.states == "lost"
    anew = lost & ~np.concatenate(([False], lost[:-1]))
    return int((anew & trace.covered).sum())


def _share(updates: Sequence[float], at_most: int) -> float:
    return float((np.array(updates) <= at_most).mean())
