"""Floors and ceilings of a whole office, seen from above, rows along y."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Image
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.textures import stained

_FLOORS = ((120, 138, 150), (96, 104, 122), (128, 120, 104), (92, 116, 140))


def floor_texture(plan: FloorPlan, pixels: float) -> Image:
    """Tiles in corridors, linoleum or carpet in rooms."""
    rng = np.random.default_rng([plan.seed, 7])
    size = plan.size_in(pixels)
    image = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    rooms = cv2.resize(plan.rooms, size, interpolation=cv2.INTER_NEAREST)
    tiles = _tiles(size, 0.5 * pixels, rng)
    for room, label in enumerate(plan.labels, 1):
        mask = rooms == room
        corridor = label.startswith("CR")
        image[mask] = _FLOORS[0 if corridor else 1 + room % 3]
        if corridor or label.startswith(("TL", "KT", "PA")):
            image[mask] = np.clip(image[mask].astype(np.int16) + tiles[mask][:, None], 0, 255)
    return stained(image, rng, 5.0, coarse=max(round(0.4 * pixels), 4))


def _tiles(size: tuple[int, int], pitch: float, rng: np.random.Generator) -> NDArray[np.int16]:
    """Brightness differences of tiles and the dark joints between them."""
    across, down = int(size[0] / pitch) + 1, int(size[1] / pitch) + 1
    shades = rng.integers(-9, 10, (down, across))
    x = (np.arange(size[0]) / pitch).astype(int)
    y = (np.arange(size[1]) / pitch).astype(int)
    pattern = shades[y[:, None], x[None, :]].astype(np.int16)
    pattern[np.flatnonzero(np.diff(y, prepend=-1))] = -42
    pattern[:, np.flatnonzero(np.diff(x, prepend=-1))] = -42
    return np.asarray(pattern)


def ceiling_texture(plan: FloorPlan, pixels: float) -> Image:
    """White panels in a grid of dark lines."""
    rng = np.random.default_rng([plan.seed, 8])
    size = plan.size_in(pixels)
    image = np.full((size[1], size[0], 3), (206, 210, 210), dtype=np.uint8)
    panel = 0.6 * pixels
    for k in range(int(max(size) / panel) + 1):
        image[:, min(round(k * panel), size[0] - 1)] = (140, 144, 146)
        image[min(round(k * panel), size[1] - 1)] = (140, 144, 146)
    return stained(image, rng, 3.0, coarse=max(round(0.5 * pixels), 4))
