"""A plot of a map: its poses as arrows, and some of its images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.datasets.image_decoding import grey_from_compressed
from kbf_localization.training_map.training_map import TrainingMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, which colour-blind people tell apart."""

MAX_POSES_DRAWN = 5000
MAX_IMAGES_DRAWN = 8


def draw_map(training_map: TrainingMap) -> Figure:
    """Draw the map's poses from above, on its floor plan if it has one, over a strip of images."""
    from matplotlib.figure import Figure

    strip = image_strip(training_map)
    figure = Figure(figsize=(9.0, 7.0 if strip is not None else 5.5), layout="constrained")
    if strip is None:
        axes = figure.add_subplot()
    else:
        axes, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": (5, 1)})
        below.imshow(strip, cmap="gray", vmin=0, vmax=255)
        below.set_axis_off()
    draw_floor_plan(axes, training_map.floor_plan)
    draw_poses(axes, training_map)
    return figure


def draw_floor_plan(axes: Axes, plan: FloorPlanImage | None) -> None:
    """Draw the plan, pale, beneath all else; nothing where there is none."""
    from matplotlib.transforms import Affine2D

    if plan is None:
        return
    width, height = plan.size_m
    x, y, heading = plan.origin
    placed = Affine2D().rotate(heading).translate(x, y)
    limits = axes.dataLim.frozen()
    image = axes.imshow(
        plan.image,
        cmap="gray",
        vmin=-255,
        vmax=255,
        extent=(0.0, width, 0.0, height),
        transform=placed + axes.transData,
        interpolation="nearest",
        zorder=-1,
    )
    # matplotlib takes the extent for the place, whatever the transform does.
    image.sticky_edges.x.clear()
    image.sticky_edges.y.clear()
    axes.dataLim.set(limits)
    axes.update_datalim(placed.transform([(0, 0), (width, 0), (0, height), (width, height)]))
    axes.autoscale_view()


def draw_poses(axes: Axes, training_map: TrainingMap) -> None:
    """Draw the poses, coloured by source; of a large map an even choice of them."""
    rows = np.linspace(0, len(training_map) - 1, min(len(training_map), MAX_POSES_DRAWN)).astype(
        int
    )
    for number, source in enumerate(training_map.sources):
        own = rows[training_map.source_of[rows] == number]
        x, y, heading = training_map.poses[own].T
        label = source.name if source.condition is None else f"{source.name} ({source.condition})"
        axes.quiver(
            x,
            y,
            np.cos(heading),
            np.sin(heading),
            angles="xy",
            scale=60.0,
            width=0.0025,
            color=COLOURS[number % len(COLOURS)],
            label=label.replace("$", r"\$") + f": {source.chosen} of {source.frames} frames",
        )
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.set_title(f"{len(training_map)} poses")
    axes.legend(loc="best", fontsize="small")


def image_strip(training_map: TrainingMap) -> Image | None:
    """Return some of the map's images (h, w) side by side; None where the map has none."""
    rows = np.linspace(0, len(training_map) - 1, min(len(training_map), MAX_IMAGES_DRAWN)).astype(
        int
    )
    images: list[Image] = []
    for row in rows:
        image = grey_from_compressed(training_map.thumbnails[int(row)])
        if image is not None and (not images or image.shape == images[0].shape):
            images.append(image)
    return np.hstack(images) if images else None
