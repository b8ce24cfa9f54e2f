"""G_Z between the map's images that are in use, each entry computed once while it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

SMALL_MAP = 2500
"""Maps up to this size keep all that was ever computed (50 MB)."""

KEPT_ROWS = 800
"""Rows kept of a larger map: a few times what a tracking step needs."""


class ImageGramCache:
    """Blocks of the image kernel's Gram matrix, raised to `power`.

    Tracking moves slowly over the map: from step to step only a few rows are new, and only
    their similarities are computed.
    """

    def __init__(self, training_map: TrainingMap, power: float) -> None:
        self._map = training_map
        self._power = power
        count = len(training_map.poses)
        self._capacity = count if count <= SMALL_MAP else KEPT_ROWS
        self._rows: Rows = np.zeros(0, dtype=np.intp)
        self._slot_of = np.full(count, -1, dtype=np.intp)
        self._block: Array = np.zeros((0, 0))

    def fill(self) -> None:
        """Compute all of a small map's matrix now; of a large map nothing is kept ahead."""
        if self._capacity == len(self._slot_of):
            self.block(np.arange(self._capacity))

    def block(self, rows: Rows) -> Array:
        """Return k_Z(Z_i, Z_j)^power for i, j in `rows`, as an array (len rows, len rows)."""
        new = rows[self._slot_of[rows] < 0]
        if len(new):
            if len(self._rows) + len(new) > self._capacity:
                self._keep_only(rows[self._slot_of[rows] >= 0])
            self._add(new)
        slots = self._slot_of[rows]
        return self._block[np.ix_(slots, slots)]

    def _keep_only(self, rows: Rows) -> None:
        slots = self._slot_of[rows]
        held = len(rows)
        self._block[:held, :held] = self._block[np.ix_(slots, slots)]
        self._slot_of[self._rows] = -1
        self._rows = rows
        self._slot_of[rows] = np.arange(held)

    def _add(self, new: Rows) -> None:
        held = len(self._rows)
        total = held + len(new)
        if total > len(self._block):
            # Doubling keeps the copying, over a whole drive, in proportion to what is held.
            size = max(total, min(2 * total, self._capacity))
            larger = np.zeros((size, size))
            larger[:held, :held] = self._block[:held, :held]
            self._block = larger
        self._block[held:total, held:total] = self._map.image_gram(new) ** self._power
        if held:
            similarities = self._map.image_gram(new, self._rows) ** self._power
            self._block[held:total, :held] = similarities
            self._block[:held, held:total] = similarities.T
        self._rows = np.concatenate((self._rows, new))
        self._slot_of[new] = np.arange(held, total)
