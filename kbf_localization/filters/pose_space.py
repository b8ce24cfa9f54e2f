"""The map's poses embedded in R⁴, with the kernel k_X on them and a search tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.filters.local_posterior import map_spacing
from kbf_localization.geometry import embed

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
