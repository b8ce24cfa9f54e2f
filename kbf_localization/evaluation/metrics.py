"""Errors of a run against the truth, under the stable keys of `metrics.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.run import GROSS_ERROR_M, Run
from kbf_localization.geometry import compose, fit_rigid, relative, wrap_angle


def position_errors(run: Run) -> Array:
    """Return (t,) distances to the truth in metres, NaN where the truth is unknown."""
    if run.truth is None:
        return np.full(len(run), np.nan)
    offsets = run.estimates[:, :2] - run.truth[:, :2]
    return np.hypot(offsets[:, 0], offsets[:, 1])


def heading_errors(run: Run) -> Array:
    """Return (t,) signed heading errors in radians, NaN where the truth is unknown."""
    if run.truth is None:
        return np.full(len(run), np.nan)
    return wrap_angle(run.estimates[:, 2] - run.truth[:, 2])


def position_sigmas(run: Run) -> Array:
    """Return (t,) published standard deviation of position along its longest axis, in metres."""
    if len(run) == 0:
        return np.zeros(0)
    largest = np.linalg.eigvalsh(run.covariances[:, :2, :2])[:, -1]
    return np.asarray(np.sqrt(np.maximum(largest, 0.0)))


def mahalanobis_errors(run: Run) -> Array:
    """Return the Mahalanobis error (t,) √(eᵀ C⁻¹ e) of the position, the root of its NEES.

    The covariance is that of the pose in the map: on a map in its own frame, whose poses err too,
    the error is that relative to the nearest map image. Infinite where the covariance allows no
    error in the error's direction, NaN without truth.
    """
    truth = run.truth if run.map_truth is None else run.map_truth
    if truth is None:
        return np.full(len(run), np.nan)
    offset = run.estimates[:, :2] - truth[:, :2]
    variances, axes = np.linalg.eigh(run.covariances[:, :2, :2])
    along = np.einsum("tji,tj->ti", axes, offset)
    with np.errstate(divide="ignore", invalid="ignore"):
        squared = np.where(along == 0.0, 0.0, along**2 / np.maximum(variances, 0.0))
    return np.asarray(np.sqrt(squared.sum(axis=1)))


def aligned_errors(poses: Array, truth: Array) -> Array:
    """Return the distances (t,) to the truth after alignment by SE(2)."""
    if not np.ptp(poses[:, :2], axis=0).any():
        return np.asarray(np.hypot(*(truth[:, :2] - truth[:, :2].mean(axis=0)).T))
    moved = compose(fit_rigid(poses[:, :2], truth[:, :2]), poses)
    return np.asarray(np.hypot(*(moved - truth)[:, :2].T))


def relative_over(poses: Array, truth: Array, path_m: float) -> Array:
    """Return the errors (w,) in metres of motions over `path_m` of the path, one for each start.

    The relative pose error of evo, over all pairs.
    """
    steps = np.hypot(*np.diff(truth[:, :2], axis=0).T)
    path = np.r_[0.0, np.cumsum(steps)]
    last = np.searchsorted(path, path + path_m)
    first = np.flatnonzero(last < len(path))
    moved = relative(poses[first], poses[last[first]])
    away = relative(relative(truth[first], truth[last[first]]), moved)
    return np.asarray(np.hypot(away[:, 0], away[:, 1]))


def trajectory_metrics(*runs: Run) -> dict[str, float]:
    """Return the metrics of a run, or of the frames of several; errors where the truth is known.

    A method without a state has no metric of one.
    """
    if sum(len(run) for run in runs) == 0:
        raise KbfError("no image got an estimate: check that odometry and images overlap in time")
    step_ms = np.concatenate([run.step_ms for run in runs])
    tracking = np.array([state == "tracking" for run in runs for state in run.states])
    first = [seconds for run in runs if (seconds := seconds_to_first_fix(run)) is not None]
    truth = [np.full((len(run), 3), np.nan) if run.truth is None else run.truth for run in runs]
    known = ~np.isnan(np.concatenate(truth)[:, 0])
    metrics: dict[str, float] = {}
    if known.any():
        position = np.concatenate([position_errors(run) for run in runs])[known]
        heading = np.degrees(np.abs(np.concatenate([heading_errors(run) for run in runs])[known]))
        sigmas = np.concatenate([mahalanobis_errors(run) for run in runs])[known]
        sigmas = sigmas[~np.isnan(sigmas)]
        gross = position > GROSS_ERROR_M
        metrics = {
            "position_rmse_m": float(np.sqrt(np.mean(position**2))),
            "position_median_m": float(np.median(position)),
            "position_p95_m": float(np.percentile(position, 95)),
            "position_max_m": float(position.max()),
            "heading_rmse_deg": float(np.sqrt(np.mean(heading**2))),
            "heading_median_deg": float(np.median(heading)),
            "share_beyond_1m": float(np.mean(gross)),
        }
        if len(sigmas):
            metrics["within_three_sigma_share"] = float(np.mean(sigmas <= 3.0))
            metrics["nees_mean"] = float(np.mean(sigmas**2))
        metrics |= _evo_metrics(runs) | _relative_to_map(runs)
    if any(run.has_state for run in runs):
        metrics |= _state_metrics(runs, known, tracking)
    measured = [run.inliers for run in runs if run.inliers is not None]
    if measured:
        inliers = np.concatenate(measured)
        metrics["landmarks_used_share"] = float(np.mean(inliers > 0))
        if (inliers > 0).any():
            metrics["inliers_median"] = float(np.median(inliers[inliers > 0]))
    if first:
        metrics["seconds_to_first_fix"] = float(np.mean(first))
    return metrics | {
        "median_sigma_m": float(np.median(np.concatenate([position_sigmas(run) for run in runs]))),
        "frames": sum(len(run) for run in runs),
        "frames_dropped": sum(run.frames_dropped for run in runs),
        "step_ms_p50": float(np.percentile(step_ms, 50)),
        "step_ms_p99": float(np.percentile(step_ms, 99)),
    }


def _evo_metrics(runs: Sequence[Run]) -> dict[str, float]:
    """Return evo's absolute error after alignment of each run, and its relative error over 1 m."""
    aligned, over_1m = [], []
    for run in runs:
        truth = np.full((len(run), 3), np.nan) if run.truth is None else run.truth
        known = np.isfinite(truth).all(axis=1)
        if known.sum() > 1:
            aligned.append(aligned_errors(run.estimates[known], truth[known]))
            over_1m.append(relative_over(run.estimates[known], truth[known], 1.0))
    found = {"aligned_rmse_m": aligned, "relative_1m_rmse_m": over_1m}
    return {
        key: float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
        for key, errors in found.items()
        if sum(map(len, errors))
    }


def _relative_to_map(runs: Sequence[Run]) -> dict[str, float]:
    """Return the median error relative to the nearest map image, on a map in its own frame."""
    away = [run.estimates - run.map_truth for run in runs if run.map_truth is not None]
    errors = np.hypot(*np.concatenate([np.empty((0, 3)), *away])[:, :2].T)
    known = errors[np.isfinite(errors)]
    return {"relative_to_map_median_m": float(np.median(known))} if len(known) else {}


def _state_metrics(runs: Sequence[Run], known: Array, tracking: Array) -> dict[str, float]:
    """Return what the states of the runs say; of the frames with `known` truth whether rightly."""
    duration_s = sum(float(run.stamps_ns[-1] - run.stamps_ns[0]) * 1e-9 for run in runs if len(run))
    degraded_s = sum(run.degraded_s for run in runs)
    metrics = {
        "share_tracking": float(np.mean(tracking)),
        "share_degraded": min(degraded_s / duration_s, 1.0) if duration_s > 0.0 else 0.0,
    }
    if known.any():
        wrong = np.concatenate([position_errors(run) > run.wrong_beyond_m for run in runs])
        metrics["share_confident_wrong"] = float(np.mean((wrong & tracking)[known]))
        metrics["confident_wrong_beyond_m"] = max(run.wrong_beyond_m for run in runs)
    return metrics


def seconds_to_first_fix(run: Run) -> float | None:
    """Return seconds from the first image until the state is first "tracking"; None for never."""
    if "tracking" not in run.states:
        return None
    return float(run.stamps_ns[run.states.index("tracking")] - run.stamps_ns[0]) * 1e-9


@dataclass(frozen=True)
class Kidnapping:
    """How a run went on after its robot was carried elsewhere.

    Rows of the run: the first image after being set down, the first at which it was known to be
    lost, and the first of tracking after that; None where it did not come to that.
    """

    set_down_at: int
    lost_at: int | None
    tracking_again_at: int | None
    seconds_to_lost: float | None
    seconds_to_recover: float | None


def kidnapping(run: Run, set_down_ns: int) -> Kidnapping:
    """Return what became of a robot that was carried elsewhere before the image of this stamp."""
    start = int(np.searchsorted(run.stamps_ns, set_down_ns))

    def first(state: str, since: int | None) -> int | None:
        if since is None:
            return None
        return next((k for k in range(since, len(run)) if run.states[k] == state), None)

    def seconds(row: int | None) -> float | None:
        return None if row is None else float(run.stamps_ns[row] - set_down_ns) * 1e-9

    lost_at = first("lost", start)
    again_at = first("tracking", lost_at)
    return Kidnapping(start, lost_at, again_at, seconds(lost_at), seconds(again_at))
