"""Describers that make one vector of an image: their rows, and their kernels.

A row is the vector's direction in eight bits a component, on disk and in memory. It is compared by
the cosine c of the angle between two of them, all rows by one matrix product.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Counts, Floats, Image, Rows
from kbf_localization.vision.describer import Describer, Gallery, ImageDescription

KERNELS = ("gaussian", "cosine")

FIRST_SCALE = {"gaussian": 0.3, "cosine": 16.0}
"""Start of the fit of a map's own scale."""

_LARGEST = 127
_ROWS_AT_ONCE = 1000
_EXACT = 1024

Bytes = NDArray[np.int8]

V = TypeVar("V", bound="VectorDescriber")


class VectorDescriber(Describer):
    """A describer by vectors: whoever derives from it gives `vectors` and `length`.

    The kernel of unit vectors a and b with c = a·b is either "gaussian", exp(−|a − b|²/2σ²) =
    exp((c − 1)/σ²), or "cosine", ((1 + c)/2)^p with a whole p; σ or p is its scale, which a map
    learns. Both are positive definite and 1 for c = 1.
    """

    image_kernel = "gaussian"
    length: int
    _scale: float | None = None

    @abstractmethod
    def vectors(self, images: Sequence[Image]) -> Floats:
        """Return vectors (m, length) of images; their lengths do not matter."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {}

    @property
    def image_size(self) -> tuple[int, int]:
        return 640, 480

    @property
    def width(self) -> int:
        return self.length

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        if not images:
            return []
        vectors = np.asarray(self.vectors(images), dtype=np.float32)
        if vectors.shape != (len(images), self.length) or not np.isfinite(vectors).all():
            raise ValueError(
                f"describer '{self.name}' gave {vectors.shape}, not {len(images)} finite vectors "
                f"of {self.length} numbers"
            )
        return [ImageDescription(row) for row in to_rows(vectors)]

    def gallery(self, features: Counts) -> VectorGallery:
        return VectorGallery(features)

    @property
    def scales(self) -> tuple[float, ...]:
        return (FIRST_SCALE[self.image_kernel] if self._scale is None else self._scale,)

    def with_scales(self: V, scales: Sequence[float]) -> V:
        other = copy.copy(self)
        (other._scale,) = scales
        return other

    def kernel(self, compared: Array) -> Array:
        (scale,) = self.scales
        if self.image_kernel == "gaussian":
            return np.asarray(np.exp((compared[0] - 1.0) / scale**2))
        # Only whole powers of a positive definite kernel are positive definite for sure.
        return np.asarray((0.5 * (1.0 + compared[0])) ** max(1, round(scale)))


def to_rows(vectors: Floats) -> Counts:
    """Return directions (m, length) of vectors in eight bits; of a vector of zeros the diagonal."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    vectors = np.where(largest > 0.0, vectors, 1.0)
    largest = np.where(largest > 0.0, largest, 1.0)
    return np.rint(vectors / largest * _LARGEST).astype(np.int8).view(np.uint8)


class VectorGallery(Gallery):
    """Rows (n, length) from `to_rows`, compared by the cosine of their angle."""

    def __init__(self, features: Counts) -> None:
        self._rows = np.asarray(features).view(np.int8)

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        chosen = self._rows if rows is None else self._rows[rows]
        squares = self._squares if rows is None else self._squares[rows]
        return self._cosines(query.view(np.int8)[None], chosen, squares)

    def coarse_scores(self, query: Counts) -> Array:
        """Compare with all rows: a single pass is quick enough."""
        return self.compare(query)

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        columns = rows_a if rows_b is None else rows_b
        return self._cosines(self._rows[rows_a], self._rows[columns], self._squares[columns])[None]

    def check(self) -> None:
        if not (self._squares > 0.0).all():
            raise ValueError("a vector is empty")

    @cached_property
    def _squares(self) -> Array:
        """Return squared lengths (n,) of the rows."""
        squares = np.empty(len(self._rows))
        for start in range(0, len(squares), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            squares[part] = _squared_lengths(self._rows[part])
        return squares

    @staticmethod
    def _cosines(queries: Bytes, rows: Bytes, squares: Array) -> Array:
        """Return cosines (q, m); a thousand rows at a time become floats, in the cache.

        A product of 1024 components is a whole number below 2²⁴, exact in single precision. So the
        cosine is exact, and 1 for a row with itself: a narrow kernel would magnify an error.
        """
        products = np.zeros((len(queries), len(rows)))
        for first in range(0, queries.shape[1], _EXACT):
            columns = slice(first, first + _EXACT)
            wide = queries[:, columns].astype(np.float32)
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                part = slice(start, start + _ROWS_AT_ONCE)
                products[:, part] += wide @ rows[part, columns].astype(np.float32).T
        lengths = np.sqrt(_squared_lengths(queries)[:, None] * squares)
        return np.asarray(products / np.maximum(lengths, 1e-300))


def _squared_lengths(rows: Bytes) -> Array:
    wide = rows.astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", wide, wide))
