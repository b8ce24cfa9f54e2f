"""Procedural textures of an office, as BGR images of so many pixels a metre."""

from __future__ import annotations

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Image

Colour = tuple[int, int, int]

PAINTS: tuple[Colour, ...] = ((214, 222, 226), (196, 214, 222), (206, 216, 204), (188, 204, 224))
_WOODS: tuple[Colour, ...] = ((98, 140, 184), (70, 104, 150), (150, 178, 200), (120, 128, 132))


def flat(height: int, width: int, colour: Colour) -> Image:
    return np.full((max(height, 1), max(width, 1), 3), colour, dtype=np.uint8)


def stained(image: Image, rng: np.random.Generator, strength: float, coarse: int = 24) -> Image:
    """Return the image with smooth stains and a fine grain, as paint and floors have."""
    height, width = image.shape[:2]
    small = rng.normal(0, strength, (height // coarse + 2, width // coarse + 2)).astype(np.float32)
    large = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    shade = large + rng.normal(0, strength * 0.25, (height, width)).astype(np.float32)
    return _clipped(image.astype(np.float32) + shade[..., None])


def _clipped(values: Floats) -> Image:
    return np.clip(values, 0, 255).astype(np.uint8)


def paste(image: Image, patch: Image, left: int, top: int) -> None:
    """Put `patch` into `image`, cut where it reaches over the edge."""
    height, width = image.shape[:2]
    x0, y0 = max(left, 0), max(top, 0)
    x1, y1 = min(left + patch.shape[1], width), min(top + patch.shape[0], height)
    if x0 < x1 and y0 < y1:
        image[y0:y1, x0:x1] = patch[y0 - top : y1 - top, x0 - left : x1 - left]


def wood(height: int, width: int, style: int, rng: np.random.Generator) -> Image:
    image = flat(height, width, _WOODS[style % len(_WOODS)]).astype(np.float32)
    veins = cv2.resize(
        rng.normal(0, 9, (max(height // 40, 2), max(width // 3, 2))).astype(np.float32),
        (image.shape[1], image.shape[0]),
        interpolation=cv2.INTER_LINEAR,
    )
    return _clipped(image + veins[..., None])


def door(pixels: float, style: int, rng: np.random.Generator) -> Image:
    """Return a closed door with frame, 1.0 by 2.1 m."""
    height, width = round(2.1 * pixels), round(1.0 * pixels)
    frame: Colour = ((60, 70, 80), (90, 60, 40), (70, 90, 60), (120, 120, 120))[style % 4]
    image = flat(height, width, frame)
    edge = max(round(0.06 * pixels), 1)
    leaf = wood(height - edge, width - 2 * edge, style, rng)
    if style % 4 == 2:
        rim = round(0.2 * pixels)
        corner = (leaf.shape[1] - rim, round(1.0 * pixels))
        cv2.rectangle(leaf, (rim, round(0.25 * pixels)), corner, (200, 190, 170), -1)
    paste(image, leaf, edge, edge)
    left, top = width - round(0.16 * pixels), round(1.05 * pixels)
    corner = (left + round(0.1 * pixels), top + max(round(0.03 * pixels), 1))
    cv2.rectangle(image, (left, top), corner, (210, 210, 215), -1)
    return image


def text_block(
    image: Image,
    left: int,
    top: int,
    right: int,
    bottom: int,
    pitch: int,
    ink: Colour,
    rng: np.random.Generator,
) -> None:
    """Draw lines of strokes that look like print from a distance."""
    thick = max(pitch // 2, 1)
    for row in range(top, bottom - thick, pitch):
        x = left
        end = right - int(rng.integers(0, max((right - left) // 3, 1)))
        while x < end:
            word = int(rng.integers(pitch, 5 * pitch))
            cv2.rectangle(image, (x, row), (min(x + word, end), row + thick - 1), ink, -1)
            x += word + max(pitch // 2, 1)


def poster(pixels: float, rng: np.random.Generator) -> Image:
    """Return a poster or notice between A3 and A0: coloured ground, print, shapes, a photograph."""
    scale = float(rng.uniform(0.45, 0.95))
    size = (scale, scale * 1.4) if rng.random() < 0.7 else (scale * 1.4, scale)
    width, height = (max(round(side * pixels), 8) for side in size)
    ground = rng.integers(40, 256, 3) if rng.random() < 0.6 else np.array([235, 240, 240])
    image = flat(height, width, (int(ground[0]), int(ground[1]), int(ground[2])))
    ink = (30, 25, 20) if ground.mean() > 120 else (235, 235, 235)
    margin = max(width // 12, 2)
    pitch = max(round(0.045 * pixels * rng.uniform(0.7, 1.8)), 2)
    text_block(image, margin, margin, width - margin, margin + 2 * pitch, pitch, ink, rng)
    half = int(height * rng.uniform(0.3, 0.6))
    _photograph(image[margin + 2 * pitch : half, margin : width - margin], rng)
    text_block(image, margin, half + pitch, width - margin, height - margin, pitch, ink, rng)
    for _ in range(int(rng.integers(0, 4))):
        centre = (int(rng.integers(width)), int(rng.integers(height)))
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        cv2.circle(image, centre, int(rng.integers(2, max(width // 5, 4))), colour, -1)
    cv2.rectangle(image, (0, 0), (width - 1, height - 1), ink, max(width // 60, 1))
    return image


def _photograph(area: Image, rng: np.random.Generator) -> None:
    """Fill `area` with a photograph (smooth blobs) or a diagram (bars)."""
    height, width = area.shape[:2]
    if height < 4 or width < 4:
        return
    if rng.random() < 0.5:
        blobs = rng.integers(0, 256, (int(rng.integers(3, 9)), int(rng.integers(3, 9)), 3))
        area[:] = cv2.resize(blobs.astype(np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
        return
    bars = int(rng.integers(3, 9))
    for k in range(bars):
        top = int(rng.integers(0, height - 1))
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        left = k * width // bars
        cv2.rectangle(area, (left + 1, top), (left + width // bars - 2, height - 1), colour, -1)


def bookshelf(height: int, width: int, pixels: float, rng: np.random.Generator) -> Image:
    """Return shelves with spines of books and folders."""
    image = flat(height, width, (60, 80, 110))
    board = max(round(0.03 * pixels), 1)
    shelf = max(round(0.36 * pixels), 4)
    for base in range(height - board, 0, -shelf):
        x = board
        while x < width - board:
            spine = max(int(rng.uniform(0.02, 0.08) * pixels), 1)
            if rng.random() < 0.85:
                tall = int(rng.uniform(0.55, 0.92) * shelf)
                colour = tuple(int(c) for c in rng.integers(20, 250, 3))
                foot = (min(x + spine, width - board), base)
                cv2.rectangle(image, (x, base - tall), foot, colour, -1)
                cv2.line(image, (x, base - tall), (x, base), (20, 20, 20), 1)
            x += spine
        image[base : base + board] = (80, 110, 150)
    return image


def whiteboard(pixels: float, rng: np.random.Generator) -> Image:
    height, width = round(1.1 * pixels), round(float(rng.uniform(1.4, 2.2)) * pixels)
    image = flat(height, width, (238, 238, 236))
    for _ in range(int(rng.integers(4, 12))):
        colour = ((150, 40, 30), (30, 30, 180), (40, 120, 30), (20, 20, 20))[int(rng.integers(4))]
        start = rng.integers((width * 4 // 5, height * 4 // 5)) + 4
        points = start + np.cumsum(rng.integers(-12, 16, (int(rng.integers(4, 14)), 2)), axis=0)
        pen = max(round(0.012 * pixels), 1)
        cv2.polylines(image, [points.astype(np.int32)], False, colour, pen)
    frame = max(round(0.03 * pixels), 1)
    cv2.rectangle(image, (0, 0), (width - 1, height - 1), (120, 120, 125), frame)
    return image


def outdoors(height: int, width: int, night: bool, rng: np.random.Generator) -> Image:
    """Return what a window of that size shows: sky, houses and trees, or lights at night."""
    if night:
        image = flat(height, width, (34, 24, 18))
        for _ in range(int(rng.integers(3, 9))):
            x, y = int(rng.integers(width)), int(rng.integers(height // 3, height))
            cv2.rectangle(image, (x, y), (x + 3, y + 4), (120, 190, 220), -1)
    else:
        image = flat(height, width, (255, 246, 236))
        horizon = int(height * rng.uniform(0.45, 0.7))
        x = 0
        while x < width:
            step = int(rng.integers(max(width // 6, 3), max(width // 2, 6)))
            top = horizon - int(rng.integers(0, max(height // 4, 1)))
            if rng.random() < 0.5:
                _tree(image, x, top, step, rng)
            else:
                _house(image, x, top, step, rng)
            x += step
    post = max(width // 28, 1)
    for x in (0, width // 2 - post // 2, width - post):
        image[:, x : x + post] = (70, 75, 80) if night else (175, 180, 182)
    image[:post], image[-post:] = (170, 175, 178), (170, 175, 178)
    return image


def _house(image: Image, left: int, top: int, width: int, rng: np.random.Generator) -> None:
    """Draw a front with rows of windows."""
    tone = int(rng.integers(140, 210))
    foot = (left + width, image.shape[0])
    cv2.rectangle(image, (left, top), foot, (tone - 15, tone, tone + 10), -1)
    pitch = max(width // int(rng.integers(2, 5)), 4)
    for y in range(top + pitch // 2, image.shape[0], pitch):
        for x in range(left + pitch // 4, left + width - pitch // 2, pitch):
            corner = (x + pitch // 2, y + pitch // 2)
            cv2.rectangle(image, (x, y), corner, (tone - 60, tone - 70, tone - 75), -1)


def _tree(image: Image, left: int, top: int, width: int, rng: np.random.Generator) -> None:
    """Draw a heap of leaves, lighter above."""
    for _ in range(14):
        x = left + int(rng.integers(0, width))
        y = int(rng.integers(top, image.shape[0]))
        tone = int(rng.integers(80, 150)) - 30 * (y - top) // max(image.shape[0] - top, 1)
        radius = int(rng.integers(max(width // 8, 2), max(width // 3, 4)))
        cv2.circle(image, (x, y), radius, (tone - 30, tone + 10, tone - 15), -1)
