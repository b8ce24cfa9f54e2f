"""Which map poses an image fits best, sought over the whole map at a bounded cost a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.filters.base import Array, Observation

ROWS_PER_STEP = 2500
"""Similarities that a step may spend on looking round; larger maps are looked over less often."""

MATCHES = 20


@dataclass(frozen=True)
class Matches:
    """The best matching rows of the map and the highest similarity, of power 1."""

    rows: NDArray[np.intp]
    best: float


class WholeMapMatching:
    """Looks over the whole map at every step, or so often that it costs no more than that."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._interval = max(1, -(-count // ROWS_PER_STEP))
        self._waited = 0
        self._usual_best = float("nan")

    def due(self, urgent: bool) -> bool:
        """Whether to look now; `urgent` when the prediction does not fit the image."""
        self._waited += 1
        return urgent or self._waited >= self._interval

    def look(self, similarities: Array) -> Matches:
        """The best of all similarities (n,)."""
        self._waited = 0
        count = min(MATCHES, self._count)
        rows = np.argpartition(-similarities, count - 1)[:count]
        best = float(similarities[rows].max())
        old = best if np.isnan(self._usual_best) else self._usual_best
        self._usual_best = old + 0.1 * (best - old)
        return Matches(np.sort(rows), best)

    def usual_best(self, seen: float) -> float:
        """The best similarity that the map can be expected to offer, at least what was `seen`."""
        return max(seen, 0.0 if np.isnan(self._usual_best) else self._usual_best)


def all_similarities(observation: Observation) -> Array:
    """Similarities with the whole map, what is not finite counting as none."""
    return np.nan_to_num(observation.similarities(), nan=0.0, posinf=0.0, neginf=0.0)
