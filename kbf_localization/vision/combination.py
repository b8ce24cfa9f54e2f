"""Describers joined into one: the product, or the weighted sum, of their kernels.

Both are positive definite where the parts are, and 1 for an image with itself: the product of ones,
and a sum with weights that add up to one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from kbf_localization.arrays import Array, Counts, Image, Rows
from kbf_localization.vision.describer import Describer, Gallery, ImageDescription, specification
from kbf_localization.vision.visual_words import PyramidDescriber

MAX_PARTS = 8

C = TypeVar("C", bound="_Combination")


class _Combination(Describer):
    """Rows of the parts side by side."""

    version = 1

    def __init__(self, parts: Sequence[Describer]) -> None:
        if not 2 <= len(parts) <= MAX_PARTS:
            raise ValueError(f"a combination needs 2 to {MAX_PARTS} describers, not {len(parts)}")
        if sum(part.pyramid is not None for part in parts) > 1:
            raise ValueError("a combination can have one pyramid ('sift') at most")
        self.parts = tuple(parts)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"parts": [specification(part) for part in self.parts]}

    @property
    def image_size(self) -> tuple[int, int]:
        """Return the pyramid's size, else the first part's."""
        return (self.pyramid or self.parts[0]).image_size

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def pyramid(self) -> PyramidDescriber | None:
        return next((part.pyramid for part in self.parts if part.pyramid is not None), None)

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        each = [part.describe_all(images) for part in self.parts]
        return [
            ImageDescription(
                np.concatenate([item.features for item in together]),
                next((item.words for item in together if item.words is not None), None),
            )
            for together in zip(*each, strict=True)
        ]

    def gallery(self, features: Counts) -> CombinedGallery:
        return CombinedGallery(self.parts, features)

    @property
    def scales(self) -> tuple[float, ...]:
        return tuple(scale for part in self.parts for scale in part.scales)

    def with_scales(self: C, scales: Sequence[float]) -> C:
        other, left = copy.copy(self), iter(scales)
        other.parts = tuple(
            part.with_scales(list(islice(left, len(part.scales)))) for part in self.parts
        )
        return other

    def _kernels(self, compared: Array) -> Array:
        """Return the kernel of each part, (parts, …)."""
        ends = np.cumsum([_compared(part) for part in self.parts])
        each = zip(self.parts, np.split(compared, ends[:-1]), strict=True)
        return np.stack([part.kernel(own) for part, own in each])


def _compared(describer: Describer) -> int:
    """Return how many comparisons a gallery of this describer gives."""
    if isinstance(describer, _Combination):
        return sum(_compared(part) for part in describer.parts)
    return 1


class Product(_Combination):
    """k(z, z') = Π_j k_j(z, z'): alike only where all parts find it so."""

    name = "product"

    def kernel(self, compared: Array) -> Array:
        return np.asarray(np.prod(self._kernels(compared), axis=0))


class WeightedSum(_Combination):
    """k(z, z') = Σ_j w_j k_j(z, z'), Σ_j w_j = 1: alike where one part finds it so.

    Given `weights` are fixed. Otherwise they are scales among the others, which a map learns: the
    odds w_j/w_1 of all parts but the first.
    """

    name = "sum"

    def __init__(self, parts: Sequence[Describer], weights: Sequence[float] | None = None) -> None:
        super().__init__(parts)
        if weights is not None and (
            len(weights) != len(parts) or not all(0.0 < weight < 1e6 for weight in weights)
        ):
            raise ValueError("a weighted sum needs a positive weight for each of its describers")
        self.fixed = None if weights is None else tuple(float(item) for item in weights)
        self._odds = (1.0,) * (len(parts) - 1)

    @property
    def weights(self) -> Array:
        """Return the weights (parts,), which add up to one."""
        weights = np.array((1.0, *self._odds) if self.fixed is None else self.fixed)
        return np.asarray(weights / weights.sum())

    @property
    def settings(self) -> Mapping[str, Any]:
        fixed = None if self.fixed is None else list(self.fixed)
        return {**super().settings, "weights": fixed}

    @property
    def scales(self) -> tuple[float, ...]:
        return (*super().scales, *(self._odds if self.fixed is None else ()))

    def with_scales(self, scales: Sequence[float]) -> WeightedSum:
        count = len(super().scales)
        other = super().with_scales(scales[:count])
        if self.fixed is None:
            other._odds = tuple(scales[count:])
        return other

    def kernel(self, compared: Array) -> Array:
        return np.asarray(np.tensordot(self.weights, self._kernels(compared), 1))


class CombinedGallery(Gallery):
    """The galleries of the parts, side by side."""

    def __init__(self, parts: Sequence[Describer], features: Counts) -> None:
        self._ends = np.cumsum([part.width for part in parts])[:-1]
        columns = np.split(features, self._ends, axis=1)
        self._parts = [part.gallery(own) for part, own in zip(parts, columns, strict=True)]

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        return np.concatenate([part.compare(own, rows) for part, own in self._of(query)])

    def coarse_scores(self, query: Counts) -> Array:
        return np.concatenate([part.coarse_scores(own) for part, own in self._of(query)])

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        return np.concatenate([part.compare_rows(rows_a, rows_b) for part in self._parts])

    def check(self) -> None:
        for part in self._parts:
            part.check()

    def _of(self, query: Counts) -> Iterator[tuple[Gallery, Counts]]:
        """Return each part with its bytes of a query."""
        return zip(self._parts, np.split(query, self._ends), strict=True)
