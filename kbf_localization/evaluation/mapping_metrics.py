"""How well poses were estimated: `mapping.json`, `mapping.html`, and what to say about them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.drive import Drive, grey_images
from kbf_localization.datasets.trajectory import write_tum
from kbf_localization.evaluation.alignment_page import alignment_widget
from kbf_localization.evaluation.map_plot import COLOURS
from kbf_localization.evaluation.metric_texts import metric_text
from kbf_localization.evaluation.metrics import aligned_errors, relative_over
from kbf_localization.evaluation.plots import make_figure, save_figure
from kbf_localization.evaluation.report import CAMERA_NOTE, Plot, Table, write_simple_report
from kbf_localization.evaluation.results import ResultsFolder, numbered_names, to_plain
from kbf_localization.geometry import (
    compose,
    interpolate,
    position_sigma,
    relative,
    wrap_angle,
)
from kbf_localization.mapping.refine import Mended
from kbf_localization.pose_graph.closures import Closure
from kbf_localization.pose_graph.look_alikes import Join
from kbf_localization.pose_graph.result import METHOD_NAMES, PoseEstimates

WRONG_M, WRONG_RAD = 1.0, np.radians(10.0)
"""A closure that is off by more is wrong."""
RELATIVE_PATH_M = 2.0
UNCERTAIN_M = 0.5
"""Beyond this σ a stretch of the map is not to be relied on."""


def mapping_metrics(
    drives: Sequence[Drive], estimates: PoseEstimates, mended: Sequence[Mended] = ()
) -> dict[str, Any]:
    """Return what `mapping.json` holds; errors only where the drives had known poses.

    `mended` are the stretches in which given poses were wrong or missing: nothing is compared with
    them there.
    """
    sigmas = _sigmas(estimates)
    metrics: dict[str, Any] = {
        "used": estimates.used,
        "drives": [trajectory.name for trajectory in estimates.trajectories],
        "drives_joined": estimates.drives_joined,
        "joins": [asdict(join) for join in estimates.joins],
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
        metrics |= _errors(drives, estimates, mended)
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


def _errors(
    drives: Sequence[Drive], estimates: PoseEstimates, mended: Sequence[Mended]
) -> dict[str, Any]:
    truths = [
        _truth_at_images(drive, trajectory.clock_offset_s, mended)
        for drive, trajectory in zip(drives, estimates.trajectories)
    ]
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
        "nees_mean": _nees(poses[known], blocks[known], truth[known], bool(estimates.anchors)),
        "closures_wrong": _wrong(estimates, truths),
    }


def _truth_at_images(drive: Drive, offset_s: float, mended: Sequence[Mended]) -> Array:
    """Return known poses (t, 3) when images were taken, `offset_s` later than their stamps say."""
    truth = np.array(drive.poses)
    seconds = (drive.stamps_ns - drive.stamps_ns[0]) * 1e-9
    for stretch in mended:
        if stretch.drive == drive.name:
            truth[(seconds >= stretch.first_s) & (seconds <= stretch.last_s)] = np.nan
    if offset_s == 0.0:
        return truth
    return interpolate(drive.stamps_ns, truth, drive.stamps_ns + round(offset_s * 1e9))


def _rms(values: Array) -> float | None:
    return float(np.sqrt(np.mean(values**2))) if len(values) else None


def _nees(poses: Array, covariances: Array, truth: Array, anchored: bool) -> float | None:
    """Return the mean NEES of the position, 2 is right, in the frame that the graph is held in.

    Anchors hold it in the truth's. Else the truth is put into it by the pose that the covariances
    say is surest, the first, in which they are 0.
    """
    there = truth
    if not anchored:
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
            "the path again in the same direction, or close a loop facing the same direction."
        )
    elif worst > UNCERTAIN_M:
        parts.append(
            f"The poses are held by {len(estimates.closures)} closures, but "
            f"{_least_sure(estimates)} is uncertain by {worst:.1f} m: drive there once more in the "
            "same direction."
        )
    else:
        parts.append(
            f"The poses are held by {len(estimates.closures)} closures and uncertain by at most "
            f"{worst:.2f} m (standard deviation)."
        )
    parts += _join_sentences(estimates.joins)
    if not estimates.scale_known:
        scale = estimates.odometry_scale
        times = "" if scale == 1.0 else f", times {scale:g}"
        farther = " farther apart" if estimates.anchors > 1 else ""
        parts.append(
            f"Distances are as the wheels report them{times}; two anchors{farther} would test that."
        )
    if estimates.left_out:
        parts.append(
            f"Nothing joins {', '.join(estimates.left_out)}: drive from a place of the map into it."
        )
    return " ".join(parts)


def _join_sentences(joins: Sequence[Join]) -> list[str]:
    """Say what nothing tests: that drives which images join are of one place."""
    found = [
        f"{join.rivals} pairs of images would place {join.second} about {join.rivals_m:.0f} m "
        f"elsewhere on {join.first}, {join.closures} where it is: parts of the building look alike."
        for join in joins
        if join.rivals
    ]
    if any(not join.anchored for join in joins):
        found.append(
            "Images alone join the drives: two floors that look alike would be joined as well. "
            "An anchor in each drive would test that."
        )
    return found


def _least_sure(estimates: PoseEstimates) -> str:
    """Name the place of the largest uncertainty."""
    sigmas = [
        (position_sigma(block), trajectory.name, pose)
        for trajectory in estimates.trajectories
        for pose, block in zip(trajectory.poses, trajectory.covariances)
        if np.isfinite(block).all()
    ]
    _, name, pose = max(sigmas, key=lambda item: item[0])
    return f"the place ({pose[0]:.1f}, {pose[1]:.1f}) m of {name}"


def metric_rows(metrics: dict[str, Any]) -> list[tuple[str, object, str]]:
    """Return the rows of the table: what, value with its unit, note."""
    rows: list[tuple[str, object, str]] = [
        (
            "Method",
            METHOD_NAMES[metrics["used"]],
            "chosen by closures that were left out"
            if metrics["held_out"]
            else "too few closures to test the images by",
        ),
        (
            "Drives joined",
            f"{metrics['drives_joined']} of {len(metrics['drives'])}",
            _joined_by(metrics["joins"]),
        ),
        ("Images with a pose", f"{metrics['images_posed']} of {metrics['images']}", ""),
        ("Closures", metrics["closures"], f"{metrics['closures_rejected']} rejected"),
        ("Uncertainty, median", metric_text("sigma_m", metrics["median_sigma_m"]), "σ"),
        ("Uncertainty, worst", metric_text("sigma_m", metrics["max_sigma_m"]), "σ"),
    ]
    if "ate_rmse_m" in metrics:
        rows += [
            (label, metric_text(key, metrics[key]), note)
            for label, key, note in (
                ("Error against known poses", "ate_rmse_m", "RMSE, after alignment"),
                ("… of raw odometry", "raw_ate_rmse_m", "RMSE, each drive aligned"),
                ("Error over 2 m", "relative_2m_rmse_m", "RMSE"),
                ("… of raw odometry", "raw_relative_2m_rmse_m", "RMSE"),
            )
        ]
        rows += [
            ("Wrong closures", metrics["closures_wrong"], "off by more than 1 m or 10°"),
        ]
    rows.append(("CPU time", metric_text("cpu_s", metrics["cpu_s"]), ""))
    return rows


def _joined_by(joins: Sequence[Mapping[str, Any]]) -> str:
    if not joins:
        return ""
    return "by images and anchors" if all(join["anchored"] for join in joins) else "by images alone"


MAX_CLOSURES_DRAWN = 300
PATHS_INCHES = 4.6, 3.4
"""Small, so that the writing stays legible where three plots stand side by side."""
MAX_CLOSURES_SHOWN = 6
"""Closures whose two images are shown: those with the fewest inliers, which deserve a look."""
MAX_REJECTED_SHOWN = 2
"""Of each reason."""


def write_mapping(
    folder: ResultsFolder,
    drives: Sequence[Drive],
    estimates: PoseEstimates,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    align: str = "kbf map align MAP",
) -> Path:
    """Write `mapping.json`, `mapping.html` and each drive's poses; return the page's path.

    The poses are in `poses_<number>-<drive>.tum`. `align` begins the command that moves the map.
    """
    text = json.dumps(to_plain(metrics), indent=2, ensure_ascii=False, allow_nan=False)
    folder.write_text("mapping.json", text + "\n")
    for name, drive, trajectory in zip(numbered_names(drives), drives, estimates.trajectories):
        with folder.writing(f"poses_{name}.tum") as path:
            write_tum(path, np.asarray(drive.stamps_ns), trajectory.poses)
    plots = [
        Plot(_draw_paths(folder, estimates, False), "Before: the wheels' own odometry, each drive"),
        Plot(_draw_paths(folder, estimates, True), "After: the map's poses; thin lines: closures"),
        Plot(_draw_sigmas(folder, estimates), "Uncertainty of the poses along the drives"),
    ]
    for name, shown, caption in (
        ("closures.png", _accepted_shown(estimates), "Accepted closures with the fewest inliers"),
        ("rejected.png", _rejected_shown(estimates), "Rejected closures with the most inliers"),
    ):
        if shown:
            drawn = _draw_closures(folder, name, drives, estimates, shown)
            plots.append(Plot(drawn, f"{caption}; lines join what agrees in both images"))
    tables = [
        Table("Poses", ("Metric", "Value", "Note"), metric_rows(dict(metrics))),
        Table(
            "Wheels",
            ("Drive", "Heading drift to the left", "Turn scale error"),
            [
                (
                    wheels.name,
                    f"{np.degrees(wheels.heading_bias_rad_s):.2f} °/s",
                    f"{100.0 * wheels.turn_scale:.1f} %",
                )
                for wheels in estimates.wheels
            ],
        ),
        Table("Rejected closures", ("Reason", "Closures"), list(metrics["rejected"].items())),
    ]
    if estimates.joins:
        tables.append(
            Table(
                "What joins the drives",
                ("Drives", "Closures", "Closures that place them elsewhere", "Held by"),
                [
                    (
                        f"{join.first}, {join.second}",
                        join.closures,
                        f"{join.rivals}, about {join.rivals_m:.0f} m" if join.rivals else "0",
                        _joined_by([asdict(join)]).removeprefix("by "),
                    )
                    for join in estimates.joins
                ],
            )
        )
    if estimates.held_out is not None:
        tables.append(
            Table(
                f"Prediction of {estimates.held_out.closures} closures that were left out",
                ("Method", "Mean error"),
                [
                    (METHOD_NAMES[method], metric_text("score_m", score))
                    for method, score in estimates.held_out.scores_m.items()
                ],
            )
        )
    words = [
        *(
            [". ".join(wheel.described for wheel in estimates.wheels) + "."]
            if estimates.closures
            else []
        ),
        *estimates.warnings,
        *(Mended(**stretch).described for stretch in metrics["mended"]),
        CAMERA_NOTE,
    ]
    return write_simple_report(
        folder,
        "A map's poses from wheels and images",
        config,
        verdict_text=str(metrics["verdict"]),
        summary="\n\n".join(words),
        tables=tables,
        plots=plots,
        widget=alignment_widget(_known_paths(estimates), align, None),
        name="mapping.html",
    )


def _known_paths(estimates: PoseEstimates) -> list[Array]:
    paths = [trajectory.poses for trajectory in estimates.trajectories]
    return [path[np.isfinite(path).all(axis=1)] for path in paths]


def _keyframe_poses(estimates: PoseEstimates) -> Array:
    keyframes = estimates.keyframes
    return np.stack(
        [
            estimates.trajectories[drive].poses[image]
            for drive, image in zip(keyframes.drive_of, keyframes.image_of)
        ]
    )


def _draw_paths(folder: ResultsFolder, estimates: PoseEstimates, after: bool) -> Path:
    figure, axes = make_figure(*PATHS_INCHES)
    if after:
        poses = _keyframe_poses(estimates)
        step = max(1, len(estimates.closures) // MAX_CLOSURES_DRAWN)
        for closure in estimates.closures[::step]:
            ends = poses[[closure.first, closure.second]]
            axes.plot(ends[:, 0], ends[:, 1], color="#999999", linewidth=0.5, zorder=0)
    for number, trajectory in enumerate(estimates.trajectories):
        path = trajectory.poses
        known = np.flatnonzero(np.isfinite(path).all(axis=1))
        if not after and len(known):
            # The odometry from the pose that the map has for its first image.
            first = int(known[0])
            path = compose(path[first], relative(trajectory.odometry[first], trajectory.odometry))
        elif not after:
            path = trajectory.odometry
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=1.0, label=trajectory.name)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(fontsize="small")
    return save_figure(folder, "after.png" if after else "before.png", figure)


def _draw_sigmas(folder: ResultsFolder, estimates: PoseEstimates) -> Path:
    figure, axes = make_figure(*PATHS_INCHES)
    for number, trajectory in enumerate(estimates.trajectories):
        sigmas = [
            position_sigma(block) if np.isfinite(block).all() else np.nan
            for block in trajectory.covariances
        ]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(sigmas, color=colour, linewidth=1.0, label=trajectory.name)
    axes.set_xlabel("image")
    axes.set_ylabel("σ of the position (m)")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize="small")
    return save_figure(folder, "uncertainty.png", figure)


def _accepted_shown(estimates: PoseEstimates) -> list[tuple[Closure, str]]:
    ordered = sorted(estimates.closures, key=lambda closure: closure.inliers)
    return [(closure, "") for closure in ordered[:MAX_CLOSURES_SHOWN]]


def _rejected_shown(estimates: PoseEstimates) -> list[tuple[Closure, str]]:
    """Return those with most inliers of each reason: which would have misled most."""
    ordered = sorted(estimates.rejected, key=lambda rejected: -rejected.closure.inliers)
    by_reason: dict[str, list[tuple[Closure, str]]] = {}
    for rejected in ordered:
        by_reason.setdefault(rejected.reason, []).append((rejected.closure, f"{rejected.reason}: "))
    return [shown for group in by_reason.values() for shown in group[:MAX_REJECTED_SHOWN]]


WIDTH_IN, TITLE_IN = 7.0, 0.3
"""Of two images side by side, and above them."""


def _draw_closures(
    folder: ResultsFolder,
    name: str,
    drives: Sequence[Drive],
    estimates: PoseEstimates,
    closures: Sequence[tuple[Closure, str]],
) -> Path:
    from matplotlib.figure import Figure

    pairs = [_side_by_side(drives, estimates, closure) for closure, _ in closures]
    # A wide image takes less height.
    heights = [WIDTH_IN * both.shape[0] / both.shape[1] + TITLE_IN for both in pairs]
    figure = Figure(figsize=(WIDTH_IN, sum(heights)), layout="constrained")
    grid = figure.subplots(len(closures), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, both, (closure, reason) in zip(grid, pairs, closures):
        width = both.shape[1] // 2
        axes.imshow(both, cmap="gray", vmin=0, vmax=255)
        if closure.pixels is not None:
            x, y, other_x, other_y = closure.pixels.T
            axes.plot(np.stack((x, other_x + width)), np.stack((y, other_y)), "-", linewidth=0.5)
        axes.set_axis_off()
        distance = float(np.hypot(*closure.motion[:2]))
        axes.set_title(
            f"{reason}{closure.inliers} of {closure.matched} matches agree, {distance:.2f} m apart",
            fontsize="small",
            loc="left",
        )
    return save_figure(folder, name, figure)


def _side_by_side(drives: Sequence[Drive], estimates: PoseEstimates, closure: Closure) -> Image:
    """Return a closure's two images in one, each in a half of the width of the wider."""
    images = [_image(drives, estimates, end) for end in (closure.first, closure.second)]
    height = max((image.shape[0] for image in images if image is not None), default=1)
    width = max((image.shape[1] for image in images if image is not None), default=1)
    both = np.full((height, 2 * width), 255, dtype=np.uint8)
    for start, image in zip((0, width), images):
        if image is not None:
            both[: image.shape[0], start : start + image.shape[1]] = image
    return both


def _image(drives: Sequence[Drive], estimates: PoseEstimates, keyframe: int) -> Image | None:
    keyframes = estimates.keyframes
    drive = drives[int(keyframes.drive_of[keyframe])]
    return next(image for _, image in grey_images(drive, [int(keyframes.image_of[keyframe])]))
