"""Which frames of the drives become the map's poses."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import embed

SELECTIONS = ("coverage", "random")

METRES_PER_RADIAN = 1.0
"""How far apart two views of one place are that differ by a small angle, for coverage."""


def select_frames(poses: Array, count: int, select: str, seed: int) -> Rows:
    """Indices (at most `count`, increasing) of the chosen among poses (t, 3), by `SELECTIONS`."""
    if select == "coverage":
        return cover(poses, count, seed)
    size = min(count, len(poses))
    return np.sort(np.random.default_rng(seed).choice(len(poses), size, replace=False))


def cover(poses: Array, count: int, seed: int) -> Rows:
    """Farthest-point sampling: each next pose is the one farthest from those chosen already.

    It goes on until `count` poses are chosen or only repetitions of chosen poses are left, so a
    robot that stands still for minutes contributes one pose.
    """
    points = embed(poses) * np.array([1.0, 1.0, METRES_PER_RADIAN, METRES_PER_RADIAN])
    chosen: list[int] = []
    distances = np.full(len(points), np.inf)
    candidate = int(np.random.default_rng(seed).integers(len(points)))
    while len(chosen) < min(count, len(points)) and distances[candidate] > 0.0:
        chosen.append(candidate)
        difference = points - points[candidate]
        np.minimum(distances, np.einsum("ij,ij->i", difference, difference), out=distances)
        candidate = int(distances.argmax())
    return np.sort(np.array(chosen, dtype=np.intp))
