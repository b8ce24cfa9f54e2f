"""Where rays in the plane first meet a wall; all walls are parallel to an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.simulator.floor_plan import Face

MAX_RANGE_M = 60.0


@dataclass(frozen=True)
class Hits:
    """For each ray: its parameter, the number of the face, and metres from the face's left edge."""

    distance: Array
    face: NDArray[np.int64]
    along: Array


class WallRays:
    """Casts rays against the faces that reach from floor to ceiling."""

    def __init__(self, faces: Sequence[Face]) -> None:
        walls = [k for k, face in enumerate(faces) if face.kind != "lintel"]
        self._of_axis = [
            np.array([k for k in walls if faces[k].axis == axis], dtype=np.int64) for axis in (0, 1)
        ]
        self._at = np.array([face.at for face in faces])
        self._low = np.array([face.low for face in faces])
        self._high = np.array([face.high for face in faces])
        self._side = np.array([face.side for face in faces])
        self._right = np.array([face.rightward for face in faces])

    def cast(self, eyes: tuple[Array, Array], ray: tuple[Array, Array]) -> Hits:
        """Return first hits of the rays `eyes` + t `ray`, pairs (x, y) of (k,) or (1,) arrays."""
        count = max(len(values) for values in (*eyes, *ray))
        distance = np.full(count, MAX_RANGE_M)
        face = np.zeros(count, dtype=np.int64)
        hit_at = np.zeros(count)
        every = np.arange(count)
        for axis in (0, 1):
            numbers = self._seen(self._of_axis[axis], eyes[axis], ray[axis])
            if len(numbers) == 0:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                t = (self._at[numbers, None] - eyes[axis]) / ray[axis]
                hit = eyes[1 - axis] + t * ray[1 - axis]
            met = (hit >= self._low[numbers, None]) & (hit <= self._high[numbers, None])
            met &= (t > 0) & (self._side[numbers, None] * ray[axis] < 0)
            t = np.where(met, t, np.inf)
            first = t.argmin(axis=0)
            nearer = t[first, every] < distance
            distance[nearer] = t[first, every][nearer]
            face[nearer] = numbers[first][nearer]
            hit_at[nearer] = hit[first, every][nearer]
        left = np.where(self._right[face] > 0, self._low[face], -self._high[face])
        return Hits(distance, face, self._right[face] * hit_at - left)

    def _seen(self, numbers: NDArray[np.int64], eye: Array, ray: Array) -> NDArray[np.int64]:
        """Return those faces whose front a common eye or a common direction can meet at all."""
        side = self._side[numbers]
        if len(eye) == 1:
            numbers = numbers[side * (eye[0] - self._at[numbers]) > 0]
        elif len(ray) == 1:
            numbers = numbers[side * ray[0] < 0]
        return numbers
