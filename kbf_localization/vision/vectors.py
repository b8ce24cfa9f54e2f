"""Describers that make one vector of an image: their rows, and their kernels.

A row is the vector's direction in eight bits a component, on disk and in memory. It is compared by
the cosine c of the angle between two of them, all rows by one matrix product.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from kbf_localization.arrays import Array, Counts, Floats, Image, Rows
from kbf_localization.vision.describer import Describer, Gallery, ImageDescription

KERNELS = ("gaussian", "cosine")

FIRST_SCALE = {"gaussian": 0.3, "cosine": 16.0}
"""Where learning begins; what is used is what the map learned."""

_LARGEST = 127
_ROWS_AT_ONCE = 1000

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

    def vectors(self, images: Sequence[Image]) -> Floats:
        """Vectors (m, length) of images; their lengths do not matter."""
        raise NotImplementedError

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
    """Directions (m, length) of vectors in eight bits; of a vector of zeros the diagonal."""
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
        norms = self._norms if rows is None else self._norms[rows]
        return self._cosines(query.view(np.int8)[None], chosen, norms)

    def glance(self, query: Counts) -> Array:
        """One pass over all rows is quick enough."""
        return self.compare(query)

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        columns = rows_a if rows_b is None else rows_b
        return self._cosines(self._rows[rows_a], self._rows[columns], self._norms[columns])[None]

    def check(self) -> None:
        if not (self._norms > 0.0).all():
            raise ValueError("a vector is empty")

    @cached_property
    def _norms(self) -> Floats:
        norms = np.empty(len(self._rows), dtype=np.float32)
        for start in range(0, len(norms), _ROWS_AT_ONCE):
            part = self._rows[start : start + _ROWS_AT_ONCE].astype(np.float32)
            norms[start : start + _ROWS_AT_ONCE] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return norms

    @staticmethod
    def _cosines(queries: Any, rows: Any, norms: Floats) -> Array:
        """(q, m); eight bits become floats a thousand rows at a time, in the cache."""
        wide = queries.astype(np.float32)
        wide /= np.maximum(np.sqrt(np.einsum("ij,ij->i", wide, wide)), 1e-30)[:, None]
        products = np.empty((len(wide), len(rows)), dtype=np.float32)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            np.matmul(wide, rows[part].astype(np.float32).T, out=products[:, part])
        return np.clip(products / np.maximum(norms, 1e-30), -1.0, 1.0).astype(np.float64)
