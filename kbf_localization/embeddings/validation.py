"""Checks of arguments; every failure is a ValueError that names the argument."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array


def as_points(name: str, values: ArrayLike, dimension: int | None = None) -> Array:
    """Return `values` as a non-empty array (n, m) of finite numbers; (n,) are n points of R¹."""
    points = np.asarray(values, dtype=np.float64)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2:
        raise ValueError(f"{name}: expected an array (n, m), got the shape {points.shape}")
    if points.size == 0:
        raise ValueError(f"{name}: the set is empty")
    if dimension is not None and points.shape[1] != dimension:
        raise ValueError(
            f"{name}: expected points in {dimension} dimensions, got {points.shape[1]}"
        )
    return _finite(name, points)


def as_vector(name: str, values: ArrayLike, length: int | None = None) -> Array:
    """Return `values` as a non-empty array (n,) of finite numbers."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"{name}: expected a non-empty array (n,), got the shape {vector.shape}")
    if length is not None and len(vector) != length:
        raise ValueError(f"{name}: expected {length} values, got {len(vector)}")
    return _finite(name, vector)


def as_square(name: str, values: ArrayLike) -> Array:
    """Return `values` as a finite square matrix."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise ValueError(f"{name}: expected a square matrix, got the shape {matrix.shape}")
    return _finite(name, matrix)


def _finite(name: str, values: Array) -> Array:
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: contains values that are not finite")
    return values


def as_scale(name: str, values: ArrayLike) -> Array:
    """Return `values` as a symmetric positive definite matrix; a number is a matrix (1, 1)."""
    matrix = as_square(name, np.atleast_2d(np.asarray(values, dtype=np.float64)))
    if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0):
        raise ValueError(f"{name}: the matrix is not symmetric")
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name}: the matrix is not positive definite") from None
    return matrix


def as_positive(name: str, value: float) -> float:
    """Return `value` as a finite number above zero."""
    number = float(value)
    if not (np.isfinite(number) and number > 0.0):
        raise ValueError(f"{name}: must be a finite number above zero, got {value}")
    return number


def normalized(name: str, weights: ArrayLike) -> Array:
    """Return `weights` divided by their sum."""
    vector = as_vector(name, weights)
    total = float(vector.sum())
    if not np.isfinite(total) or abs(total) <= 1e-14 * float(np.abs(vector).sum()):
        raise ValueError(f"{name}: the weights sum to zero and cannot be normalized")
    return vector / total
