"""The page that an animation's pictures are drawn on: its layout, colours and smooth shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from PIL import ImageDraw, ImageFont

from kbf_localization.arrays import Array, Image
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.geometry import compose

Colour = tuple[int, int, int]

SIZE = (1280, 720)
PAGE, FLOOR, WALL, INK, FAINT = (
    (14, 19, 28),
    (31, 40, 54),
    (112, 127, 148),
    (236, 240, 245),
    (138, 150, 168),
)
BLUE, ORANGE = (86, 180, 233), (230, 159, 0)
STATES: dict[str, Colour] = {
    "uninitialized": (138, 150, 168),
    "localizing": (240, 190, 70),
    "tracking": (60, 200, 140),
    "lost": (240, 90, 80),
}
CAMERA, LEFT = (372, 279), 24
TOPS = (76, 371)
"""Where the camera's picture and the best match begin."""
STAGE = (420, 76, 1256, 650)
"""The map's left, top, right and bottom."""
STRIP = (24, 672, 1256, 682)
SUBPIXELS = 4
"""Bits after the point of the coordinates that OpenCV is given."""


@lru_cache(maxsize=8)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def mixed(colour: Colour, strength: float) -> Colour:
    """The colour, on the floor's."""
    red, green, blue = (
        round(strength * one + (1.0 - strength) * floor)
        for one, floor in zip(colour, FLOOR, strict=True)
    )
    return red, green, blue


def _fixed(points: Array) -> Sequence[Array]:
    bounded = np.clip(points, -1e4, 1e4)
    return [np.round(bounded * 2**SUBPIXELS).astype(np.int32)]


def polyline(page: Image, points: Array, colour: Colour, width: int, closed: bool = False) -> None:
    """On the stage alone."""
    left, top, right, bottom = STAGE
    stage, within = page[top:bottom, left:right], _fixed(points - (left, top))
    cv2.polylines(stage, within, closed, colour, width, cv2.LINE_AA, SUBPIXELS)


def fill(page: Image, outline: Array, colour: Colour, opacity: float) -> None:
    """What of the outline's box is on the stage."""
    left, top = np.maximum(np.floor(outline.min(axis=0)), STAGE[:2]).astype(int)
    right, bottom = np.minimum(np.ceil(outline.max(axis=0)) + 1, STAGE[2:]).astype(int)
    if left >= right or top >= bottom:
        return
    box = page[top:bottom, left:right]
    covered = np.zeros(box.shape[:2], dtype=np.uint8)
    cv2.fillPoly(covered, _fixed(outline - (left, top)), 255, cv2.LINE_AA, SUBPIXELS)
    share = (opacity / 255.0) * covered[:, :, None].astype(np.float32)
    box[:] = np.round(box + share * (np.array(colour) - box)).astype(np.uint8)


def disc(page: Image, centre: Array, radius: float, colour: Colour, width: int = -1) -> None:
    """Filled, or a ring of this width."""
    x, y = _fixed(centre)[0].tolist()
    cv2.circle(page, (x, y), round(radius * 2**SUBPIXELS), colour, width, cv2.LINE_AA, SUBPIXELS)


def view(poses: Array, plan: FloorPlanImage | None) -> tuple[float, Array]:
    """Pixels per metre at which the poses fill the stage, and the metres (2,) at its middle.

    Where the stage has room beside the poses, it shows the plan rather than what is beyond it.
    """
    left, top, right, bottom = STAGE
    room = np.array([right - left, bottom - top])
    low, high = poses[:, :2].min(axis=0) - 0.8, poses[:, :2].max(axis=0) + 0.8
    scale = float((room / (high - low)).min())
    middle, half = (low + high) / 2, room / (2.0 * scale)
    if plan is not None:
        width, height = plan.size_m
        corners = [(0.0, 0.0, 0.0), (width, 0.0, 0.0), (0.0, height, 0.0), (width, height, 0.0)]
        around = compose(np.tile(plan.origin, (4, 1)), corners)[:, :2]
        least, most = around.min(axis=0) + half, around.max(axis=0) - half
        seen = np.clip(middle, np.minimum(least, most), np.maximum(least, most))
        # No pose leaves the stage for that.
        middle = np.clip(seen, high - half, low + half)
    return scale, middle


def draw_legend(draw: ImageDraw.ImageDraw, run_has_truth: bool) -> None:
    """What the shapes mean, beneath the strip."""
    x, y = LEFT, 703.0
    entries = [("arrow", "hypotheses"), ("disc", "weights of the map's images")]
    if run_has_truth:
        entries.append(("ring", "truth"))
    for kind, words in entries:
        if kind == "arrow":
            draw.polygon([(x, y - 6), (x + 15, y), (x, y + 6), (x + 4, y)], fill=STATES["tracking"])
        elif kind == "disc":
            draw.ellipse((x + 2, y - 5, x + 12, y + 5), fill=BLUE)
        else:
            draw.ellipse((x, y - 7, x + 14, y + 7), outline=INK, width=2)
        draw.text((x + 22, y), words, fill=FAINT, font=font(16), anchor="lm")
        x += 22 + int(draw.textlength(words, font=font(16))) + 26
    about = "kbf_localization: wheel odometry and one camera"
    draw.text((STRIP[2], y), about, fill=FAINT, font=font(16), anchor="rm")
