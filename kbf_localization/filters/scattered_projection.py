"""Map weights of a belief that is in many places at once, at a cost in proportion to the places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.linear_solver import conjugate_gradients
from kbf_localization.filters.pose_space import PoseSpace

KERNEL_REACH = 6.0
"""Kernel widths beyond which k_X is left out: it is 2e-8 of its highest value there."""


def scattered_weights(
    space: PoseSpace, ridge: float, mean: KernelMean, rows: NDArray[np.intp], reach: float
) -> Array:
    """β (m,) on these rows (m,) of the map: (G_X + nεI)⁻¹ (m(X_i)), `ridge` being nε.

    Pairs farther apart than `reach` kernel widths are never looked at, in the mean as in G_X: a
    global belief on a map of 100,000 poses spreads over thousands of rows in hundreds of places.
    """
    tree = cKDTree(space.scaled[rows])
    points = space.points[rows]
    pairs = tree.sparse_distance_matrix(
        cKDTree(mean.points / space.widths), reach, output_type="ndarray"
    )
    shares = mean.profile(points[pairs["i"]] - mean.points[pairs["j"]])
    weighted = mean.weights[pairs["j"]] * shares
    values = np.bincount(pairs["i"], weighted, len(rows)).astype(np.float64)
    near = tree.sparse_distance_matrix(tree, KERNEL_REACH, output_type="ndarray")
    kernel = space.kernel.at_zero() * np.exp(-0.5 * near["v"] ** 2)
    gram = csr_matrix((kernel, (near["i"], near["j"])), shape=(len(rows), len(rows)))
    return conjugate_gradients(lambda weights: gram @ weights + ridge * weights, values)
