"""How well poses were estimated: the keys of `mapping.json`, and what to say about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.metrics import aligned_errors, relative_over
from kbf_localization.geometry import compose, position_sigma, relative, wrap_angle
from kbf_localization.mapping.refine import Mended
from kbf_localization.pose_graph.result import PoseEstimates

WRONG_M, WRONG_RAD = 1.0, np.radians(10.0)
"""A closure that is off by more is wrong."""
RELATIVE_PATH_M = 2.0
UNCERTAIN_M = 0.5
"""Beyond this σ a stretch of the map is not to be relied on."""


def mapping_metrics(
    drives: Sequence[Drive], estimates: PoseEstimates, mended: Sequence[Mended] = ()
) -> dict[str, Any]:
    """Return what `mapping.json` holds; errors only where the drives had known poses.

    `mended` are the stretches in which given poses were wrong or missing.
    """
    sigmas = _sigmas(estimates)
    metrics: dict[str, Any] = {
        "used": estimates.used,
        "drives": [trajectory.name for trajectory in estimates.trajectories],
        "drives_joined": estimates.drives_joined,
        "left_out": list(estimates.left_out),
        "images": sum(len(trajectory.poses) for trajectory in estimates.trajectories),
        "images_posed": sum(trajectory.known for trajectory in estimates.trajectories),
        "keyframes": len(estimates.keyframes),
        "closures": len(estimates.closures),
        "closures_rejected": len(estimates.rejected),
        "rejected": _reasons(estimates),
        "median_sigma_m": float(np.median(sigmas)) if len(sigmas) else None,
        "max_sigma_m": float(sigmas.max()) if len(sigmas) else None,
        "wheels": [
            {
                "drive": wheels.name,
                "heading_bias_deg_s": float(np.degrees(wheels.heading_bias_rad_s)),
                "turn_scale": wheels.turn_scale,
            }
            for wheels in estimates.wheels
        ],
        "held_out": None
        if estimates.held_out is None
        else {
            "closures": estimates.held_out.closures,
            "scores_m": dict(estimates.held_out.scores_m),
        },
        "anchors": estimates.anchors,
        "odometry_scale": estimates.odometry_scale,
        "mended": [asdict(stretch) for stretch in mended],
        "cpu_s": estimates.cpu_s,
        "warnings": list(estimates.warnings),
        "verdict": mapping_verdict(estimates),
    }
    if all(drive.poses is not None for drive in drives):
        metrics |= _errors(drives, estimates)
    return metrics


def _reasons(estimates: PoseEstimates) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rejected in estimates.rejected:
        counts[rejected.reason] = counts.get(rejected.reason, 0) + 1
    return counts


def _sigmas(estimates: PoseEstimates) -> Array:
    blocks = np.concatenate([trajectory.covariances for trajectory in estimates.trajectories])
    known = blocks[np.isfinite(blocks).all(axis=(1, 2))]
    return np.array([position_sigma(block) for block in known])


def _errors(drives: Sequence[Drive], estimates: PoseEstimates) -> dict[str, Any]:
    truths = [np.asarray(drive.poses) for drive in drives]
    found = [trajectory.poses for trajectory in estimates.trajectories]
    truth, poses = np.concatenate(truths), np.concatenate(found)
    known = np.isfinite(truth).all(axis=1) & np.isfinite(poses).all(axis=1)
    if known.sum() < 2:
        return {}
    errors = aligned_errors(poses[known], truth[known])
    raw = []
    relative_errors, raw_relative = [], []
    for trajectory, own_truth in zip(estimates.trajectories, truths):
        own = np.isfinite(own_truth).all(axis=1) & np.isfinite(trajectory.poses).all(axis=1)
        if own.sum() < 2:
            continue
        raw.append(aligned_errors(trajectory.odometry[own], own_truth[own]))
        relative_errors.append(
            relative_over(trajectory.poses[own], own_truth[own], RELATIVE_PATH_M)
        )
        raw_relative.append(
            relative_over(trajectory.odometry[own], own_truth[own], RELATIVE_PATH_M)
        )
    blocks = np.concatenate([trajectory.covariances for trajectory in estimates.trajectories])
    return {
        "ate_rmse_m": _rms(errors),
        "ate_max_m": float(errors.max()),
        "raw_ate_rmse_m": _rms(np.concatenate(raw)),
        "relative_2m_rmse_m": _rms(np.concatenate(relative_errors)),
        "raw_relative_2m_rmse_m": _rms(np.concatenate(raw_relative)),
        "nees_mean": _nees(poses[known], blocks[known], truth[known]),
        "closures_wrong": _wrong(estimates, truths),
    }


def _rms(values: Array) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None


def _nees(poses: Array, covariances: Array, truth: Array) -> float | None:
    """Return the mean NEES of the position, 2 is right, in the frame that the graph is held in.

    The truth is put into it by the pose that the covariances say is surest, in which they are 0
    where nothing else held it.
    """
    surest = int(np.argmin(np.trace(covariances, axis1=1, axis2=2)))
    there = compose(poses[surest], relative(truth[surest], truth))
    away = (poses - there)[:, :2]
    variances = covariances[:, :2, :2]
    clear = np.trace(variances, axis1=1, axis2=2) > 1e-6
    if not clear.any():
        return None
    solved = np.linalg.solve(variances[clear], away[clear][..., None])[..., 0]
    return float((away[clear] * solved).sum(axis=1).mean())


def _wrong(estimates: PoseEstimates, truths: Sequence[Array]) -> int:
    keyframes = estimates.keyframes
    at = np.stack(
        [truths[drive][image] for drive, image in zip(keyframes.drive_of, keyframes.image_of)]
    )
    wrong = 0
    for closure in estimates.closures:
        away = relative(at[closure.first], at[closure.second]) - closure.motion
        turn = abs(float(wrap_angle(away[2])))
        wrong += bool(np.hypot(*away[:2]) > WRONG_M or turn > WRONG_RAD)
    return wrong


def mapping_verdict(estimates: PoseEstimates) -> str:
    """Say how far the map can be trusted, and what to drive next."""
    sigmas = _sigmas(estimates)
    worst = float(sigmas.max()) if len(sigmas) else np.inf
    parts = []
    if not estimates.closures:
        parts.append(
            "No place was recognized twice: the poses are the wheels' own, with their drift. Drive "
            "the path again in the same direction, or close a loop facing the same way."
        )
    elif worst > UNCERTAIN_M:
        parts.append(
            f"The poses are held by {len(estimates.closures)} closures, but the farthest image is "
            f"uncertain by {worst:.1f} m: drive that stretch once more in the same direction."
        )
    else:
        parts.append(
            f"The poses are held by {len(estimates.closures)} closures and uncertain by at most "
            f"{worst:.2f} m (standard deviation)."
        )
    if estimates.left_out:
        parts.append(
            f"Nothing joins {', '.join(estimates.left_out)}: drive from a place of the map into it."
        )
    return " ".join(parts)


def metric_rows(metrics: dict[str, Any]) -> list[tuple[str, object, str]]:
    """Return the rows of the terminal's table: what, value, units or meaning."""
    rows: list[tuple[str, object, str]] = [
        ("Poses from", metrics["used"].replace("_", " "), "decided by closures that were left out"),
        ("Drives joined", f"{metrics['drives_joined']} of {len(metrics['drives'])}", ""),
        ("Images with a pose", f"{metrics['images_posed']} of {metrics['images']}", ""),
        ("Closures", metrics["closures"], f"{metrics['closures_rejected']} rejected"),
        ("Uncertainty, median", metrics["median_sigma_m"], "m, standard deviation"),
        ("Uncertainty, worst", metrics["max_sigma_m"], "m"),
    ]
    if "ate_rmse_m" in metrics:
        rows += [
            ("Error against known poses", metrics["ate_rmse_m"], "m RMS, after alignment"),
            ("… of raw odometry", metrics["raw_ate_rmse_m"], "m RMS"),
            ("Error over 2 m", metrics["relative_2m_rmse_m"], "m RMS"),
            ("… of raw odometry", metrics["raw_relative_2m_rmse_m"], "m RMS"),
            ("Wrong closures", metrics["closures_wrong"], "off by more than 1 m or 10°"),
        ]
    rows.append(("CPU time", metrics["cpu_s"], "s"))
    return rows
