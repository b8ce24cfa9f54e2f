"""A short animation of a run: camera, best match, and the belief closing in on the pose."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.run import Run
from kbf_localization.progress import Progress, no_progress

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

SIZE = (640, 300)
CAMERA = (196, 147)
SCALE = 2
"""Drawn so many times larger and made small at the end, which smooths the edges."""

INK, GREY, BLUE, ORANGE, PAPER = "#1b2430", "#b4bcc8", "#0072b2", "#d55e00", "#ffffff"
COLOURS = 48


def save_animation(
    path: Path,
    run: Run,
    training_map: TrainingMap,
    drive: Drive,
    *,
    frames: int = 48,
    every: int = 4,
    milliseconds: int = 160,
    progress: Progress = no_progress,
) -> None:
    """Write the run's first `frames` × `every` images, every so many one, as an animated GIF."""
    if run.beliefs is None or run.best_rows is None:
        raise KbfError("the animation needs a run that kept its beliefs")
    rows = list(range(0, len(run), every))[:frames]
    shown = {int(stamp): index for index, stamp in enumerate(drive.stamps_ns)}
    indices = [shown[int(run.stamps_ns[row])] for row in rows]
    pictures = []
    for done, (row, (_, camera)) in enumerate(
        zip(rows, drive.encoded_images(indices), strict=True)
    ):
        progress(done, len(rows), "drawing the animation")
        pictures.append(_draw(run, row, training_map, camera))
    progress(len(rows), len(rows), "drawing the animation")
    # One palette for all frames: less flicker, and unchanged parts compress away.
    palette = _palette(pictures[len(pictures) // 2])
    indexed = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    indexed[0].save(
        path,
        format="GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=milliseconds,
        loop=0,
        optimize=True,
    )


def _palette(picture: Image.Image) -> Image.Image:
    """The colours of the drawing itself, and those that suit the camera's images best."""
    own = [channel for colour in (INK, GREY, BLUE, ORANGE, PAPER) for channel in _rgb(colour)]
    found = picture.quantize(COLOURS).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(own + found[: 3 * COLOURS])
    return palette


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def _draw(run: Run, row: int, training_map: TrainingMap, camera: bytes) -> Image.Image:
    page = Image.new("RGB", (SIZE[0] * SCALE, SIZE[1] * SCALE), PAPER)
    draw = ImageDraw.Draw(page)
    to_pixels, metres = _projection(training_map.poses)
    for pose in to_pixels(training_map.poses):
        _disc(draw, pose, 2.2, fill=GREY)
    beliefs = run.beliefs or ()
    weights = beliefs[row] if row < len(beliefs) else None
    if weights is not None and len(weights.rows):
        largest = float(np.abs(weights.values).max()) or 1.0
        for pose, value in zip(
            to_pixels(training_map.poses[weights.rows]), weights.values / largest, strict=True
        ):
            radius = 11 * np.sqrt(abs(value))
            if value >= 0.02:
                _disc(draw, pose, radius, fill=BLUE)
            elif value <= -0.02:
                _diamond(draw, pose, radius)
    trail = [tuple(point) for point in to_pixels(run.estimates[max(0, row - 40) : row + 1])]
    if len(trail) > 1:
        draw.line(trail, fill=ORANGE, width=3)
    point = to_pixels(run.estimates[row : row + 1])[0]
    sigma = float(np.sqrt(max(np.linalg.eigvalsh(run.covariances[row][:2, :2])[-1], 0.0)))
    _disc(draw, point, min(3 * sigma * metres, 900), outline=ORANGE)
    _arrow(draw, point, float(run.estimates[row, 2]))
    if run.truth is not None and np.isfinite(run.truth[row]).all():
        _disc(draw, to_pixels(run.truth[row : row + 1])[0], 13, outline=INK)
    best = -1 if run.best_rows is None else int(run.best_rows[row])
    images = [camera, bytes(training_map.thumbnails[best]) if best >= 0 else b""]
    for number, (data, caption) in enumerate(
        zip(images, ("camera", "best match in the map"), strict=True)
    ):
        top = 2 + number * (CAMERA[1] + 3)
        _paste(page, data, (2 * SCALE, top * SCALE))
        draw.text((8 * SCALE, (top + 4) * SCALE), caption, fill=PAPER, font_size=11 * SCALE)
    state = f"{run.states[row]}   {(run.stamps_ns[row] - run.stamps_ns[0]) * 1e-9:5.1f} s"
    draw.text((210 * SCALE, 6 * SCALE), state, fill=INK, font_size=13 * SCALE)
    return page.resize(SIZE, Image.Resampling.LANCZOS)


def _projection(
    poses: NDArray[np.float64],
) -> tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]:
    """Metres to pixels right of the camera images, and the number of pixels a metre."""
    low, high = poses[:, :2].min(axis=0), poses[:, :2].max(axis=0)
    left, right = (CAMERA[0] + 22) * SCALE, (SIZE[0] - 16) * SCALE
    top, bottom = 30 * SCALE, (SIZE[1] - 14) * SCALE
    scale = min(
        float((right - left) / max(high[0] - low[0], 0.5)),
        float((bottom - top) / max(high[1] - low[1], 0.5)),
    )
    middle = np.array([(left + right) / 2, (top + bottom) / 2])

    def to_pixels(some: NDArray[np.float64]) -> NDArray[np.float64]:
        offset = (some[:, :2] - (low + high) / 2) * scale
        return np.asarray(middle + offset * (1, -1))

    return to_pixels, scale


def _disc(
    draw: ImageDraw.ImageDraw,
    centre: NDArray[np.float64],
    radius: float,
    fill: str | None = None,
    outline: str | None = None,
) -> None:
    low, high = centre - radius, centre + radius
    draw.ellipse((*low, *high), fill=fill, outline=outline, width=4)


def _diamond(draw: ImageDraw.ImageDraw, centre: NDArray[np.float64], radius: float) -> None:
    around = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    corners = [(centre[0] + radius * x, centre[1] + radius * y) for x, y in around]
    draw.polygon(corners, outline=ORANGE, width=3)


def _arrow(draw: ImageDraw.ImageDraw, centre: NDArray[np.float64], heading: float) -> None:
    """A robot seen from above; pixels count downward."""
    cos, sin = np.cos(heading), -np.sin(heading)
    corners = [
        (centre[0] + 14 * (cos * x - sin * y), centre[1] + 14 * (sin * x + cos * y))
        for x, y in ((1.3, 0), (-0.8, 0.8), (-0.4, 0), (-0.8, -0.8))
    ]
    draw.polygon(corners, fill=ORANGE, outline=PAPER, width=2)


def _paste(page: Image.Image, data: bytes, corner: tuple[int, int]) -> None:
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            small = image.convert("RGB").resize((CAMERA[0] * SCALE, CAMERA[1] * SCALE))
            page.paste(small, corner)
    except OSError:
        return
