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


class RememberedSimilarities:
    """k_Z(Z_i, z_t) of power 1 for one image; a pass over the whole map is made at most once.

    What is not finite counts as no similarity, and is told by `finite`.
    """

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._all: Array | None = None
        self.finite = True

    def of(self, rows: NDArray[np.intp]) -> Array:
        """Similarities with these rows of the map."""
        return self._checked(rows) if self._all is None else self._all[rows]

    def all(self) -> Array:
        """Similarities with the whole map."""
        if self._all is None:
            self._all = self._checked(None)
        return self._all

    def _checked(self, rows: NDArray[np.intp] | None) -> Array:
        similarities = self._observation.similarities(rows)
        if np.isfinite(similarities).all():
            return similarities
        self.finite = False
        return np.nan_to_num(similarities, nan=0.0, posinf=0.0, neginf=0.0)
