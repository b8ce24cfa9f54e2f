"""Pivoted Cholesky: a low-rank factor Γ of a Gram matrix that is never formed whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.validation import as_square, as_vector


def pivoted_cholesky(
    diagonal: Array, column: Callable[[int], Array], rank: int, tolerance: float = 1e-12
) -> Array:
    """Return Γ (n, r) with G ≈ ΓΓᵀ, r ≤ `rank`, from G's `diagonal` (n,) and columns j ↦ G[:, j].

    Each step takes the column with the largest remaining diagonal, which bounds the largest error
    of G's entries; it ends early where that is below `tolerance` times the largest diagonal.
    """
    residual = as_vector("diagonal", diagonal).copy()
    if rank < 1:
        raise ValueError(f"rank: must be at least 1, got {rank}")
    floor = tolerance * float(residual.max())
    factor = np.zeros((min(rank, len(residual)), len(residual)))
    for step in range(len(factor)):
        pivot = int(residual.argmax())
        largest = float(residual[pivot])
        if largest <= floor:
            return np.asarray(factor[:step].T)
        row = (column(pivot) - factor[:step, pivot] @ factor[:step]) / np.sqrt(largest)
        factor[step] = row
        residual -= row * row
        residual[pivot] = 0.0
    return np.asarray(factor.T)


def low_rank_factor(gram: Array, rank: int, tolerance: float = 1e-12) -> Array:
    """Return `pivoted_cholesky` of a matrix that is at hand."""
    matrix = as_square("gram", gram)
    return pivoted_cholesky(np.diag(matrix), lambda pivot: matrix[:, pivot], rank, tolerance)
