"""Where the sun shines in: patches of light behind windows, on floors and walls."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from kbf_localization.arrays import Array, Floats
from kbf_localization.simulator.decoration import Window
from kbf_localization.simulator.floor_plan import Face, FloorPlan
from kbf_localization.simulator.lighting import Lighting
from kbf_localization.simulator.ray_casting import WallRays

_FLOOR_STEP_M = 0.08
_WALL_STEP_M = 0.04
_STRENGTH = 1.1


class Sunlight:
    """The sun of one drive: rays towards it, and the windows they may leave through."""

    def __init__(
        self, faces: Sequence[Face], windows: Sequence[Sequence[Window]], lighting: Lighting
    ) -> None:
        self._rays, self._windows = WallRays(faces), windows
        self._direction = (np.cos(lighting.sun_rad), np.sin(lighting.sun_rad))
        self._climb = lighting.sun_height
        self.shines = lighting.sun_height > 0

    def band(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Heights (k,), (k,) between which the sun reaches each point; low above high: nowhere."""
        ray = (np.array([self._direction[0]]), np.array([self._direction[1]]))
        hits = self._rays.cast((x, y), ray)
        low, high = np.full(len(x), np.inf), np.full(len(x), -np.inf)
        for number in np.unique(hits.face):
            for window in self._windows[number]:
                post = np.abs(hits.along - (window.left + window.right) / 2) < 0.03
                through = (hits.face == number) & ~post
                through &= (hits.along > window.left) & (hits.along < window.right)
                fall = hits.distance[through] * self._climb
                low[through], high[through] = window.sill - fall, window.head - fall
        return low, high

    def on_wall(self, face: Face, size: tuple[int, int]) -> Floats | None:
        """Brightness that the sun adds to a face's texture of `size` (width, height) pixels."""
        facing = face.side * self._direction[face.axis]
        if facing <= 0.05:
            return None
        steps = max(int(face.length / _WALL_STEP_M), 2)
        spots = np.array([face.along(d) for d in (np.arange(steps) + 0.5) * face.length / steps])
        spots[:, face.axis] += 0.01 * face.side
        low, high = self.band(spots[:, 0], spots[:, 1])
        if not np.any(high > face.bottom):
            return None
        z = np.linspace(face.top, face.bottom, int((face.top - face.bottom) / _WALL_STEP_M))[
            :, None
        ]
        lit = ((z > low) & (z < high)).astype(np.float32) * np.float32(_STRENGTH * facing)
        return np.asarray(cv2.resize(lit, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)

    def on_floor(self, plan: FloorPlan, size: tuple[int, int]) -> Floats:
        """Brightness that the sun adds to the floor's texture of `size` (width, height) pixels."""
        ny, nx = (round(cells * plan.cell_m / _FLOOR_STEP_M) for cells in plan.rooms.shape)
        x = plan.origin[0] + (np.arange(nx) + 0.5) * _FLOOR_STEP_M
        y = plan.origin[1] + (np.arange(ny) + 0.5) * _FLOOR_STEP_M
        lit = np.zeros((ny, nx), dtype=np.float32)
        for row in range(ny):
            inside = plan.room_at(np.stack([x, np.full(nx, y[row])], axis=-1)) > 0
            if inside.any():
                low, high = self.band(x[inside], np.full(int(inside.sum()), y[row]))
                lit[row, inside] = (low < 0) & (high > 0)
        lit = cv2.GaussianBlur(lit, (3, 3), 0) * np.float32(_STRENGTH * self._climb)
        return np.asarray(cv2.resize(lit, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)
