"""Lamps, windows and the sun: how bright each surface of an office is in one drive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags, Floats
from kbf_localization.datasets.cold import CONDITIONS
from kbf_localization.simulator.floor_plan import CEILING_M, FloorPlan


@dataclass(frozen=True)
class Lighting:
    """The light of one drive.

    `daylight` and `lamps` are brightnesses, `lamps_on` the share of burning lamps, `exposure_s` the
    shutter time, `grain` the noise's standard deviation in grey levels, `warmth` the colour cast
    (blue, green, red factors), `sun_rad` the azimuth from which the sun shines and `sun_height` the
    tangent of its elevation (0: no sun).
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
    """The light of drive number `drive`: its time of day differs from the other drives'."""
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
    """Points of light: positions (k, 3), strengths (k,) and the room that each lights."""

    places: Array
    strengths: Array
    rooms: NDArray[np.int64]

    def at(self, points: Array, room: int, ambient: float) -> Floats:
        """Brightness at points (…, 3) of a room; 1 is a well-lit white wall."""
        total = np.full(points.shape[:-1], ambient)
        here = self.rooms == room
        for place, strength in zip(self.places[here], self.strengths[here]):
            total += strength / (0.9 + ((points - place) ** 2).sum(axis=-1))
        return np.asarray(total, dtype=np.float32)


def lamp_places(plan: FloorPlan) -> tuple[Array, NDArray[np.int64]]:
    """Ceiling lamps on a lattice: positions (k, 3) and their rooms (k,)."""
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
    """All sources of one drive, and which of the lamps (in the order of `lamp_places`) burn."""
    lamps, lamp_rooms = lamp_places(plan)
    rng = np.random.default_rng([plan.seed, 5, lighting.seed])
    burning = rng.random(len(lamps)) < lighting.lamps_on
    places = np.concatenate([lamps[burning], windows])
    strengths = np.repeat(
        [1.5 * lighting.lamps, 0.9 * lighting.daylight], [int(burning.sum()), len(windows)]
    )
    return Sources(places, strengths, np.r_[lamp_rooms[burning], window_rooms]), burning


def ambient(lighting: Lighting, windows: int) -> float:
    """Light that has been thrown about in a room with so many windows."""
    return 0.16 + 0.1 * lighting.lamps + 0.22 * lighting.daylight * min(windows, 3) / 3
