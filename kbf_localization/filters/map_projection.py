"""The weights on map poses that stand for a kernel mean: β = (G_X + nεI)⁻¹ (m(X_1), …, m(X_n))."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.filters.base import Weights
from kbf_localization.filters.pose_space import PoseSpace
from kbf_localization.filters.scattered_projection import scattered_weights

REACH = 7.0
"""Kernel widths beyond which a kernel mean's weights on the map are taken to be zero."""

MARGIN = 4.0
"""Kernel widths by which a kept neighbourhood is larger, so that it serves for many steps."""

WHOLE_MAP_LIMIT = 2500
"""Up to this many poses one inverse of the whole matrix is kept: 50 MB, and it is faster."""


DENSE_LIMIT = 800
"""On a larger map, beliefs that reach more poses than this are solved for sparsely."""


class MapProjection:
    """Solves the sum rule's system on the poses near a kernel mean, `ridge` being nε.

    What is solved is local: far from the mean β vanishes. Either the inverse of the whole matrix
    is kept, or that of a neighbourhood of the robot, made anew when the robot leaves it; a belief
    that is all over a large map is solved for without any inverse.
    """

    def __init__(self, space: PoseSpace, ridge: float, exact: bool = False) -> None:
        self._space = space
        self._ridge = ridge
        self._exact = exact
        self._rows = np.zeros(0, dtype=np.intp)
        self._inverse: Array = np.zeros((0, 0))

    @property
    def _keeps_whole_map(self) -> bool:
        return self._exact or len(self._space) <= WHOLE_MAP_LIMIT

    def weights(self, mean: KernelMean) -> Weights:
        """β on the rows of the map where it is not zero, not normalized."""
        if self._exact:
            rows = np.arange(len(self._space))
        else:
            rows = self._space.near(mean.points, REACH)
        if len(rows) == 0:
            return Weights(rows, np.zeros(0))
        if len(rows) > DENSE_LIMIT and not self._keeps_whole_map:
            return Weights(rows, scattered_weights(self._space, self._ridge, mean, rows, REACH))
        values = mean.evaluate(self._space.points[rows])
        inside = self._positions(rows, mean)
        if 3 * len(inside) > len(self._rows):
            # Gathering a large block costs more than a product with zeros in it.
            padded = np.zeros(len(self._rows))
            padded[inside] = values
            return Weights(rows, (self._inverse @ padded)[inside])
        return Weights(rows, self._inverse[np.ix_(inside, inside)] @ values)

    def _positions(self, rows: NDArray[np.intp], mean: KernelMean) -> NDArray[np.intp]:
        """Where `rows` stand in the kept neighbourhood, which is moved when they are not in it."""
        inside = np.searchsorted(self._rows, rows)
        held = len(self._rows) > 0 and inside[-1] < len(self._rows)
        if held and np.array_equal(self._rows[inside], rows):
            return inside
        if self._keeps_whole_map:
            self._rows = np.arange(len(self._space))
        else:
            wider = self._space.near(mean.points, REACH + MARGIN)
            self._rows = wider if len(wider) <= 2 * DENSE_LIMIT else rows
        points = self._space.points[self._rows]
        solver = RidgeSolver(self._space.kernel.gram(points, points), self._ridge)
        self._inverse = solver.solve(np.eye(len(points)))
        return np.searchsorted(self._rows, rows)
