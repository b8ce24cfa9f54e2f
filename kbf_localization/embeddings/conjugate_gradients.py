"""Conjugate gradients, for ridge systems that are large, sparse and well conditioned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbf_localization.arrays import Array

RELATIVE_RESIDUAL = 1e-9
MAX_ITERATIONS = 1000


def conjugate_gradients(product: Callable[[Array], Array], right: Array) -> Array:
    """x (n,) with Ax = `right` (n,), for a positive definite A given by `product`(x) = Ax.

    It ends where the residual is 1e-9 of the right hand side.
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
