"""People who walk through the scene, as upright images that face the camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from kbf_localization.arrays import Array, Flags, Image, Stamps

HEIGHT_M = 1.78
WIDTH_M = 0.7
MEETING_S = 22.0
_SKINS = ((130, 160, 210), (90, 120, 170), (60, 85, 125))


@dataclass(frozen=True)
class Look:
    """A person's image: colours (h, w, 3) and where they are opaque (h, w)."""

    colours: Image
    opaque: Flags


class Walker(NamedTuple):
    """A person at one moment: place (x, y) in metres, and which look."""

    place: tuple[float, float]
    look: int


def person_looks(seed: int, pixels: float) -> list[Look]:
    """Return six people, each in two phases of a step."""
    rng = np.random.default_rng([seed, 9])
    looks = []
    for _ in range(6):
        shirt, trousers = (
            tuple(int(c) for c in rng.integers(low, high, 3)) for low, high in ((20, 190), (20, 90))
        )
        skin = _SKINS[int(rng.integers(len(_SKINS)))]
        striped = rng.random() < 0.4
        for spread in (0.06, 0.17):
            looks.append(_draw(pixels, shirt, trousers, skin, striped, spread))
    return looks


def _draw(
    pixels: float,
    shirt: tuple[int, ...],
    trousers: tuple[int, ...],
    skin: tuple[int, ...],
    striped: bool,
    spread: float,
) -> Look:
    height, width = round(HEIGHT_M * pixels), round(WIDTH_M * pixels)
    colours = np.zeros((height, width, 3), dtype=np.uint8)
    opaque = np.zeros((height, width), dtype=np.uint8)

    def spot(across: float, above: float) -> tuple[int, int]:
        return round((WIDTH_M / 2 + across) * pixels), height - 1 - round(above * pixels)

    def limb(
        start: tuple[int, int], end: tuple[int, int], thick: float, ink: tuple[int, ...]
    ) -> None:
        for canvas, colour in ((colours, ink), (opaque, (1,))):
            cv2.line(canvas, start, end, colour, max(round(thick * pixels), 1), cv2.LINE_8)

    for side in (-1, 1):
        limb(spot(side * 0.06, 0.9), spot(side * spread, 0.06), 0.15, trousers)
        limb(spot(side * 0.19, 1.38), spot(side * (0.2 + spread / 2), 0.85), 0.09, shirt)
    limb(spot(0, 1.34), spot(0, 0.95), 0.36, shirt)
    if striped:
        for above in np.arange(0.9, 1.5, 0.12):
            limb(spot(-0.14, above), spot(0.14, above), 0.03, (230, 230, 230))
    limb(spot(0, 1.5), spot(0, 1.45), 0.12, skin)
    head = (round(0.09 * pixels), round(0.13 * pixels))
    for canvas, colour in ((colours, skin), (opaque, (1,))):
        cv2.ellipse(canvas, spot(0, 1.64), head, 0, 0, 360, colour, -1)
    hair = (round(0.095 * pixels), round(0.1 * pixels))
    cv2.ellipse(colours, spot(0, 1.68), hair, 0, 180, 360, (30, 40, 50), -1)
    return Look(colours, opaque > 0)


def walkers_along(stamps_ns: Stamps, poses: Array, seed: int, drive: int) -> list[list[Walker]]:
    """Return who is about at each frame: people come towards the robot along its own path.

    A person sets out 2 s + `MEETING_S` after the last on average, at 1.2 m/s, half a metre to one
    side.
    """
    rng = np.random.default_rng([seed, 10, drive])
    travelled = np.r_[0.0, np.cumsum(np.hypot(*np.diff(poses[:, :2], axis=0).T))]
    clock = (stamps_ns - stamps_ns[0]) * 1e-9
    about: list[list[Walker]] = [[] for _ in clock]
    moment = float(rng.exponential(MEETING_S))
    while moment < clock[-1]:
        look = 2 * int(rng.integers(6))
        side = float(rng.choice([-1, 1]) * rng.uniform(0.4, 0.6))
        start = float(np.interp(moment, clock, travelled)) + float(rng.uniform(5, 10))
        for k in np.flatnonzero((clock >= moment) & (clock < moment + 14)):
            along = start - 1.2 * (clock[k] - moment)
            # Who has come past the robot is behind the camera for good.
            if along < travelled[k] or along > travelled[-1]:
                continue
            spot = [float(np.interp(along, travelled, poses[:, axis])) for axis in (0, 1)]
            ahead = [float(np.interp(along + 0.3, travelled, poses[:, axis])) for axis in (0, 1)]
            heading = np.arctan2(ahead[1] - spot[1], ahead[0] - spot[0])
            place = (spot[0] - side * np.sin(heading), spot[1] + side * np.cos(heading))
            if np.hypot(place[0] - poses[k, 0], place[1] - poses[k, 1]) > 0.8:
                about[k].append(Walker(place, look + int(2.2 * clock[k]) % 2))
        moment += 2.0 + float(rng.exponential(MEETING_S))
    return about
