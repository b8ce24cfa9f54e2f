"""`mapping.json` and `mapping.html`: how a map's poses were estimated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.drive import Drive, grey_images
from kbf_localization.evaluation.map_plot import COLOURS
from kbf_localization.evaluation.mapping_metrics import metric_rows
from kbf_localization.evaluation.plots import make_figure, save_figure
from kbf_localization.evaluation.report import CAMERA_NOTE, Plot, Table, write_simple_report
from kbf_localization.evaluation.results import ResultsFolder, to_plain
from kbf_localization.geometry import compose, position_sigma, relative
from kbf_localization.pose_graph.closures import Closure
from kbf_localization.pose_graph.result import PoseEstimates

MAX_CLOSURES_DRAWN = 300
MAX_CLOSURES_SHOWN = 6
"""Closures whose two images are shown: those with the fewest inliers, which deserve a look."""


def write_mapping(
    folder: ResultsFolder,
    drives: Sequence[Drive],
    estimates: PoseEstimates,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Path:
    """Write `mapping.json` and `mapping.html`; return the page's path."""
    text = json.dumps(to_plain(metrics), indent=2, ensure_ascii=False, allow_nan=False)
    folder.write_text("mapping.json", text + "\n")
    plots = [
        Plot(_draw_paths(folder, estimates, False), "Before: the wheels' own odometry, each drive"),
        Plot(_draw_paths(folder, estimates, True), "After: the map's poses; thin lines: closures"),
        Plot(_draw_sigmas(folder, estimates), "Uncertainty of the poses along the drives"),
    ]
    shown = _closures_shown(estimates)
    if shown:
        caption = "Accepted closures with the fewest inliers, both images side by side"
        plots.append(Plot(_draw_closures(folder, drives, estimates, shown), caption))
    tables = [
        Table("Poses", ("What", "Value", ""), metric_rows(dict(metrics))),
        Table(
            "Wheels",
            ("Drive", "Too far left, °/s", "Turn scale, %"),
            [
                (
                    wheels.name,
                    float(np.degrees(wheels.heading_bias_rad_s)),
                    100.0 * wheels.turn_scale,
                )
                for wheels in estimates.wheels
            ],
        ),
        Table("Rejected closures", ("Reason", "Closures"), list(metrics["rejected"].items())),
    ]
    if estimates.held_out is not None:
        tables.append(
            Table(
                f"Prediction of {estimates.held_out.closures} closures that were left out",
                ("Method", "Mean error, m"),
                list(estimates.held_out.scores_m.items()),
            )
        )
    words = [
        str(metrics["verdict"]),
        *(
            [". ".join(one.described for one in estimates.wheels) + "."]
            if estimates.closures
            else []
        ),
        *estimates.warnings,
        CAMERA_NOTE,
    ]
    return write_simple_report(
        folder,
        "A map's poses from wheels and images",
        config,
        summary="\n\n".join(words),
        tables=tables,
        plots=plots,
        name="mapping.html",
    )


def _keyframe_poses(estimates: PoseEstimates) -> Array:
    keyframes = estimates.keyframes
    return np.stack(
        [
            estimates.trajectories[drive].poses[image]
            for drive, image in zip(keyframes.drive_of, keyframes.image_of)
        ]
    )


def _draw_paths(folder: ResultsFolder, estimates: PoseEstimates, after: bool) -> Path:
    figure, axes = make_figure(7.0, 5.0)
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
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.legend(fontsize="small")
    return save_figure(folder, "after.png" if after else "before.png", figure)


def _draw_sigmas(folder: ResultsFolder, estimates: PoseEstimates) -> Path:
    figure, axes = make_figure(7.0, 3.0)
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


def _closures_shown(estimates: PoseEstimates) -> list[Closure]:
    ordered = sorted(estimates.closures, key=lambda closure: closure.inliers)
    return ordered[:MAX_CLOSURES_SHOWN]


def _draw_closures(
    folder: ResultsFolder,
    drives: Sequence[Drive],
    estimates: PoseEstimates,
    closures: Sequence[Closure],
) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.2 * len(closures)), layout="constrained")
    grid = figure.subplots(len(closures), 2, squeeze=False)
    for row, closure in zip(grid, closures):
        for axes, keyframe in zip(row, (closure.first, closure.second)):
            image = _image(drives, estimates, keyframe)
            if image is not None:
                axes.imshow(image, cmap="gray", vmin=0, vmax=255)
            axes.set_axis_off()
        distance = float(np.hypot(*closure.motion[:2]))
        row[0].set_title(
            f"{closure.inliers} of {closure.matched} matches agree, {distance:.2f} m apart",
            fontsize="small",
            loc="left",
        )
    return save_figure(folder, "closures.png", figure)


def _image(drives: Sequence[Drive], estimates: PoseEstimates, keyframe: int) -> Image | None:
    keyframes = estimates.keyframes
    drive = drives[int(keyframes.drive_of[keyframe])]
    return next(image for _, image in grey_images(drive, [int(keyframes.image_of[keyframe])]))
