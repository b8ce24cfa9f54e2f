"""Which map poses an image fits best, sought over the whole map at a bounded cost a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.filters.base import Array, Observation, SearchableObservation

Rows = NDArray[np.intp]

ROWS_PER_STEP = 2500
"""Similarities that a step may spend on looking round; larger maps are looked over less often."""

MATCHES = 20

RETRIEVE_FROM = 5000
"""Maps of more poses are looked over by a cheap first look, and closer where that found most."""

RETRIEVED = 1000
"""Poses that a first look leaves over: twice as many as an update takes."""

FIRST_LOOK_COST = 10
"""As many poses can be given a first look in the time of one similarity."""


@dataclass(frozen=True)
class Similarities:
    """`values` (m,) of power 1 with these rows (m,) of the map, which increase."""

    rows: Rows
    values: Array


@dataclass(frozen=True)
class Matches:
    """The best matching rows of the map and the highest similarity, of power 1."""

    rows: Rows
    best: float


class WholeMapMatching:
    """Looks over the whole map at every step, or so often that it costs no more than that."""

    def __init__(self, count: int) -> None:
        cost = count if count <= RETRIEVE_FROM else count // FIRST_LOOK_COST + RETRIEVED
        self._interval = max(1, -(-cost // ROWS_PER_STEP))
        self._waited = 0
        self._usual_best = float("nan")

    def due(self, urgent: bool) -> bool:
        """Whether to look now; `urgent` when the prediction does not fit the image."""
        self._waited += 1
        return urgent or self._waited >= self._interval

    def look(self, found: Similarities) -> Matches:
        """The best of what was found over the map."""
        self._waited = 0
        count = min(MATCHES, len(found.rows))
        places = np.argpartition(-found.values, count - 1)[:count]
        best = float(found.values[places].max())
        old = best if np.isnan(self._usual_best) else self._usual_best
        self._usual_best = old + 0.1 * (best - old)
        return Matches(np.sort(found.rows[places]), best)

    def usual_best(self, seen: float) -> float:
        """The best similarity that the map can be expected to offer, at least what was `seen`."""
        return max(seen, 0.0 if np.isnan(self._usual_best) else self._usual_best)


class RememberedSimilarities:
    """k_Z(Z_i, z_t) of power 1 for one image on a map of `count` poses, each computed once.

    What is not finite counts as no similarity, and is told by `finite`. Over a large map, what is
    looked at closely is what a first look retrieves (`retrieves`), unless `exact`.
    """

    def __init__(self, observation: Observation, count: int, exact: bool = False) -> None:
        self._observation = observation
        self._searchable: SearchableObservation | None = None
        if count > RETRIEVE_FROM and not exact and isinstance(observation, SearchableObservation):
            self._searchable = observation
        self._count = count
        self._known = Similarities(np.zeros(0, dtype=np.intp), np.zeros(0))
        self._over_map: Similarities | None = None
        self.finite = True

    @property
    def retrieves(self) -> bool:
        return self._searchable is not None

    def of(self, rows: Rows) -> Array:
        """Similarities with these rows of the map."""
        if len(self._known.rows) == self._count:
            return self._known.values[rows]
        missing = rows[~_contains(self._known.rows, rows)]
        if len(missing):
            self._remember(missing)
        return self._known.values[np.searchsorted(self._known.rows, rows)]

    def over_map(self) -> Similarities:
        """Similarities with the whole map, or with the best that a first look retrieves of it."""
        if self._over_map is None:
            if self._searchable is None:
                rows = np.arange(self._count)
                self._known = Similarities(rows, self._checked(self._observation.similarities()))
            else:
                first_look = self._checked(self._searchable.top_level_similarities())
                rows = np.sort(np.argpartition(-first_look, RETRIEVED)[:RETRIEVED])
            self._over_map = Similarities(rows, self.of(rows))
        return self._over_map

    def _remember(self, missing: Rows) -> None:
        values = self._checked(self._observation.similarities(missing))
        rows = np.concatenate((self._known.rows, missing))
        order = np.argsort(rows, kind="stable")
        self._known = Similarities(rows[order], np.concatenate((self._known.values, values))[order])

    def _checked(self, similarities: Array) -> Array:
        if np.isfinite(similarities).all():
            return similarities
        self.finite = False
        return np.nan_to_num(similarities, nan=0.0, posinf=0.0, neginf=0.0)


def _contains(sorted_rows: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Which of `rows` are among the sorted ones."""
    if len(sorted_rows) == 0:
        return np.zeros(len(rows), dtype=bool)
    places = np.minimum(np.searchsorted(sorted_rows, rows), len(sorted_rows) - 1)
    return np.asarray(sorted_rows[places] == rows)
