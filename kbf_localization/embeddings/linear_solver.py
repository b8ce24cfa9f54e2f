"""Solutions of (G + ridge·I) w = v for a Gram matrix G: factorized once, or by iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from kbf_localization.arrays import Array

RELATIVE_RESIDUAL = 1e-9
MAX_ITERATIONS = 1000


class RidgeSolver:
    """Holds a factorization of G + ridge·I, G symmetric positive semi-definite (n, n).

    Where the matrix is not positive definite to working precision, because the ridge is lost
    beside G's largest eigenvalue, eigenvalues are floored at that precision instead.
    """

    def __init__(self, gram: Array, ridge: float) -> None:
        matrix = np.array(gram, dtype=np.float64, order="F")
        matrix.flat[:: len(matrix) + 1] += ridge
        self._inverse_factor: Array | None = None
        try:
            self._factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            if not np.isfinite(np.diag(self._factor[0])).all():
                raise np.linalg.LinAlgError
        except np.linalg.LinAlgError:
            values, vectors = eigh(np.asarray(gram, dtype=np.float64))
            floor = len(values) * np.finfo(np.float64).eps * float(np.abs(values).max())
            self._inverse_factor = vectors / np.sqrt(np.maximum(values + ridge, floor))

    def solve(self, values: Array) -> Array:
        """Return w for the right-hand side `values` (n,) or (n, k)."""
        if self._inverse_factor is not None:
            return np.asarray(self._inverse_factor @ (self._inverse_factor.T @ values))
        return np.asarray(cho_solve(self._factor, values, check_finite=False))


def relative_solver(gram: Array, regularization: float) -> RidgeSolver:
    """Return a solver of (G + nεk(x, x)·I) w = v: ε in units of G's largest diagonal entry.

    The paper writes (G + nεI) for kernels that are 1 at zero; for those it is the same.
    """
    return RidgeSolver(gram, len(gram) * regularization * float(np.diag(gram).max()))


def conjugate_gradients(product: Callable[[Array], Array], right: Array) -> Array:
    """Return x (n,) with Ax = `right` (n,), for a positive definite A given by `product`(x) = Ax.

    For an A that is large, sparse and well conditioned. It ends where the residual is 1e-9 of the
    right hand side.
    """
    solution = np.zeros(len(right))
    residual = np.array(right, dtype=np.float64)
    direction = residual.copy()
    squared = float(residual @ residual)
    enough = RELATIVE_RESIDUAL**2 * squared
    for _ in range(MAX_ITERATIONS):
        if not squared > enough:
            break
        image = product(direction)
        length = squared / float(direction @ image)
        solution += length * direction
        residual -= length * image
        previous, squared = squared, float(residual @ residual)
        direction = residual + (squared / previous) * direction
    return solution
