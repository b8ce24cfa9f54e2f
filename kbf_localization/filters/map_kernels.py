"""The kernels k_X on the map's poses, embedded in R⁴, and k_Z between its images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.geometry import embed

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap


COVER_RADIUS = 3.0
"""Balls of this many kernel widths cover the points whose neighbourhood is asked for."""


class PoseSpace:
    """Poses (n, 3), embedded as `points` (n, 4), and the kernel k_X of widths `widths` (4,)."""

    def __init__(self, poses: Array, bandwidth: float, heading_bandwidth: float) -> None:
        self.poses = np.asarray(poses, dtype=np.float64)
        self.points = embed(self.poses)
        position = bandwidth * map_spacing(self.points)
        self.widths = np.array([position, position, heading_bandwidth, heading_bandwidth])
        self.kernel = GaussianKernel(np.diag(self.widths**2))
        self.scaled = self.points / self.widths
        self._tree = cKDTree(self.scaled)

    def __len__(self) -> int:
        return len(self.poses)

    def near(self, points: Array, reach: float) -> NDArray[np.intp]:
        """Rows of the map within `reach` kernel widths of any of the embedded points (m, 4).

        A few more are found: the points are covered by balls, one for each bunch of them.
        """
        scaled = points / self.widths
        found: list[int] = []
        uncovered = np.ones(len(scaled), dtype=bool)
        while uncovered.any():
            centre = scaled[int(np.argmax(uncovered))]
            distances = np.sqrt(((scaled - centre) ** 2).sum(axis=1))
            covered = distances <= COVER_RADIUS
            spread = float(distances[covered].max())
            found += self._tree.query_ball_point(centre, reach + spread)
            uncovered &= ~covered
        return np.unique(np.array(found, dtype=np.intp))

    def nearest(self, points: Array) -> NDArray[np.intp]:
        """Return the row of the map nearest to each of the embedded points (m, 4)."""
        _, rows = self._tree.query(points / self.widths)
        return np.asarray(rows, dtype=np.intp)


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


MIN_SPACING_M = 0.02
"""Repeated poses (a robot that stood still) must not make the kernel a spike."""


def map_spacing(points: Array) -> float:
    """Return the median distance of embedded poses (n, 4) to their third nearest neighbour."""
    if len(points) < 2:
        return 1.0
    neighbour = min(3, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=[neighbour + 1])
    return max(float(np.median(distances)), MIN_SPACING_M)
