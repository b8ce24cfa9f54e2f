"""Lamps, windows and the sun: how bright each surface of an office is in one drive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags, Floats
from kbf_localization.datasets.cold import CONDITIONS
from kbf_localization.simulator.decoration import Window
from kbf_localization.simulator.floor_plan import CEILING_M, Face, FloorPlan
from kbf_localization.simulator.ray_casting import WallRays

_FLOOR_STEP_M, _WALL_STEP_M = 0.08, 0.04
_SUN = 1.1  # brightness


@dataclass(frozen=True)
class Lighting:
    """The light of one drive.

    `daylight` and `lamps` are brightnesses, `lamps_on` the fraction of burning lamps, `exposure_s`
    the shutter time, `grain` the noise's standard deviation in grey levels, `warmth` the colour
    cast (blue, green, red factors), `sun_rad` the azimuth from which the sun shines and
    `sun_height` the tangent of its elevation (0: no sun).
    """

    condition: str
    seed: int
    daylight: float
    lamps: float
    lamps_on: float
    exposure_s: float
    grain: float
    warmth: tuple[float, float, float]
    sun_rad: float = 0.0
    sun_height: float = 0.0


def lighting_for(condition: str, seed: int, drive: int) -> Lighting:
    """Return the light of drive number `drive`: its time of day differs from the other drives'."""
    if condition not in CONDITIONS:
        raise ValueError(f"condition must be one of {', '.join(CONDITIONS)}, not {condition!r}")
    rng = np.random.default_rng([seed, 4, drive])
    time = float(rng.uniform(-1, 1))
    spread = float(rng.uniform(0.85, 1.15))
    if condition == "night":
        return Lighting(condition, seed, 0.0, 1.15 * spread, 0.6, 0.045, 5.0, (0.82, 0.97, 1.08))
    if condition == "cloudy":
        return Lighting(condition, seed, 0.75 * spread, 0.75, 0.9, 0.022, 2.6, (1.03, 1.0, 0.97))
    sun_rad, sun_height = 0.6 + 0.7 * time, 0.75 - 0.3 * abs(time)
    warmth = (0.97, 1.0, 1.03)
    return Lighting(
        condition, seed, 1.5 * spread, 0.25, 0.25, 0.012, 1.8, warmth, sun_rad, sun_height
    )


@dataclass(frozen=True)
class Sources:
    """Points of light: positions (k, 3), strengths (k,) and the room that each lights.

    `ambient` (rooms + 1,) is the light that has been thrown about in each room.
    """

    places: Array
    strengths: Array
    rooms: NDArray[np.int64]
    ambient: Array

    def at(self, points: Array, room: int) -> Floats:
        """Return the brightness at points (…, 3) of a room; 1 is a well-lit white wall."""
        total = np.full(points.shape[:-1], self.ambient[room])
        here = self.rooms == room
        for place, strength in zip(self.places[here], self.strengths[here]):
            total += strength / (0.9 + ((points - place) ** 2).sum(axis=-1))
        return np.asarray(total, dtype=np.float32)


def lamp_places(plan: FloorPlan) -> tuple[Array, NDArray[np.int64]]:
    """Return ceiling lamps on a lattice: positions (k, 3) and their rooms (k,)."""
    places, rooms = [], []
    for room in range(1, len(plan.labels) + 1):
        pitch = 7 if plan.labels[room - 1].startswith("CR") else 6
        rows, columns = np.nonzero(plan.rooms == room)
        if len(rows) == 0:
            continue
        for j in range(int(rows.min()) + 2, int(rows.max()) + 1, pitch):
            for i in range(int(columns.min()) + 2, int(columns.max()) + 1, pitch):
                if plan.rooms[j, i] == room:
                    x, y = (np.array([i, j]) + 0.5) * plan.cell_m + np.array(plan.origin)
                    places.append((x, y, CEILING_M))
                    rooms.append(room)
    return np.array(places).reshape(-1, 3), np.array(rooms, dtype=np.int64)


def sources(
    plan: FloorPlan, lighting: Lighting, windows: Array, window_rooms: NDArray[np.int64]
) -> tuple[Sources, Flags]:
    """Return all light sources of a drive, and which lamps (in the order of `lamp_places`) burn."""
    lamps, lamp_rooms = lamp_places(plan)
    rng = np.random.default_rng([plan.seed, 5, lighting.seed])
    burning = rng.random(len(lamps)) < lighting.lamps_on
    places = np.concatenate([lamps[burning], windows])
    strengths = np.repeat(
        [1.5 * lighting.lamps, 0.9 * lighting.daylight], [int(burning.sum()), len(windows)]
    )
    rooms = np.r_[lamp_rooms[burning], window_rooms]
    glazing = np.minimum(np.bincount(window_rooms, minlength=len(plan.labels) + 1), 3)
    ambient = 0.16 + 0.1 * lighting.lamps + 0.22 * lighting.daylight * glazing / 3
    return Sources(places, strengths, rooms, ambient), burning


class Sunlight:
    """The sun of one drive: rays towards it, and the windows they may leave through."""

    def __init__(
        self, faces: Sequence[Face], windows: Sequence[Sequence[Window]], lighting: Lighting
    ) -> None:
        self._rays, self._windows = WallRays(faces), windows
        self._direction = (np.cos(lighting.sun_rad), np.sin(lighting.sun_rad))
        self._climb = lighting.sun_height

    def band(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return heights (k,), (k,) between which the sun reaches a point; low above high: none."""
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
        """Return the sun's brightness on a face's texture of `size` (width, height) pixels."""
        facing = face.side * self._direction[face.axis]
        if self._climb == 0.0 or facing <= 0.05:
            return None
        steps = max(int(face.length / _WALL_STEP_M), 2)
        spots = np.array([face.along(d) for d in (np.arange(steps) + 0.5) * face.length / steps])
        spots[:, face.axis] += 0.01 * face.side
        low, high = self.band(spots[:, 0], spots[:, 1])
        if not np.any(high > face.bottom):
            return None
        rows = int((face.top - face.bottom) / _WALL_STEP_M)
        z = np.linspace(face.top, face.bottom, rows)[:, None]
        lit = ((z > low) & (z < high)).astype(np.float32) * np.float32(_SUN * facing)
        return np.asarray(cv2.resize(lit, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)

    def on_floor(self, plan: FloorPlan, size: tuple[int, int]) -> Floats | None:
        """Return the sun's brightness on the floor's texture of `size` (width, height) pixels."""
        if self._climb == 0.0:
            return None
        ny, nx = (round(cells * plan.cell_m / _FLOOR_STEP_M) for cells in plan.rooms.shape)
        x = plan.origin[0] + (np.arange(nx) + 0.5) * _FLOOR_STEP_M
        y = plan.origin[1] + (np.arange(ny) + 0.5) * _FLOOR_STEP_M
        lit = np.zeros((ny, nx), dtype=np.float32)
        for row in range(ny):
            inside = plan.room_at(np.stack([x, np.full(nx, y[row])], axis=-1)) > 0
            if inside.any():
                low, high = self.band(x[inside], np.full(int(inside.sum()), y[row]))
                lit[row, inside] = (low < 0) & (high > 0)
        lit = cv2.GaussianBlur(lit, (3, 3), 0) * np.float32(_SUN * self._climb)
        return np.asarray(cv2.resize(lit, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)
