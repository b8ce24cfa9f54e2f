"""The spatial pyramid kernel k_Z: weighted histogram intersection, normalized to k(z, z) = 1."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from kbf_localization.arrays import Array, Counts
from kbf_localization.vision.settings import LEVEL_WEIGHTS, DescriberSettings

_ROWS_AT_ONCE = 64
_TOP_ROWS_AT_ONCE = 1000


class PyramidKernel:
    """Similarities of stored pyramids, with power 1.

    The intersection Σ min(a, b) is a positive definite kernel of counts; sums of such with
    positive weights are; and dividing by the root of both self-similarities keeps it so.
    """

    def __init__(self, settings: DescriberSettings) -> None:
        self.settings = settings
        self._blocks = _weighted_blocks(settings)
        self._top = slice(0, settings.words)

    def self_similarities(self, histograms: Counts) -> Array:
        """Unnormalized k(z, z) (m,) of histograms (m, bins); worth keeping for a map."""
        total = np.zeros(len(histograms))
        for start in range(0, len(histograms), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            total[rows] = self._weighted_sums(histograms[rows])
        return total

    def similarities(
        self, query: Counts, histograms: Counts, self_similarities: Array | None = None
    ) -> Array:
        """k_Z(z, Z_i) (m,) of one histogram (bins,) with histograms (m, bins).

        Known self-similarities (m,) of the histograms save a pass over them.
        """
        if self_similarities is None:
            self_similarities = self.self_similarities(histograms)
        own = self._weighted_sums(query[None])[0] if len(query) else 0.0
        common = _intersections(query, histograms, self._weighted_sums, _ROWS_AT_ONCE)
        return np.asarray(common / np.sqrt(np.maximum(own * self_similarities, 1e-300)))

    def gram(
        self, a: Counts, b: Counts | None = None, self_similarities: Array | None = None
    ) -> Array:
        """The kernel matrix (len a, len b) of histograms; symmetric (len a, len a) without b.

        `self_similarities`, where they are known, are those of the columns.
        """
        columns = a if b is None else b
        selfs = self.self_similarities(columns) if self_similarities is None else self_similarities
        matrix = np.empty((len(a), len(columns)))
        for row, histogram in enumerate(a):
            first = row if b is None else 0
            matrix[row, first:] = self.similarities(histogram, columns[first:], selfs[first:])
            if b is None:
                matrix[row:, row] = matrix[row, row:]
        return matrix

    def _weighted_sums(self, counts: Counts) -> Array:
        """Σ of counts (m, bins), each with its level's weight and divisor."""
        total = np.zeros(len(counts))
        for columns, weight in self._blocks:
            total += weight * _row_sums(counts[:, columns])
        return total

    def top_level(self, histograms: Counts) -> Counts:
        """The bins (m, words) of the whole image, which a first pass over a big map needs."""
        return np.ascontiguousarray(histograms[:, self._top])

    def top_level_sums(self, top: Counts) -> Array:
        """Counts (m,) in each row from `top_level`; worth keeping for a map."""
        return _row_sums(top)

    def top_level_similarities(
        self, query: Counts, top: Counts, sums: Array | None = None
    ) -> Array:
        """Normalized intersection (m,) of the query's top level with rows from `top_level`.

        Known `sums` (m,) of the rows save half of the work.
        """
        own = query[self._top]
        sums = _row_sums(top) if sums is None else sums
        common = _intersections(own, top, _row_sums, _TOP_ROWS_AT_ONCE)
        scale = _row_sums(own[None])[0] * sums
        return np.asarray(common / np.sqrt(np.maximum(scale, 1e-300)))


def _intersections(
    query: Counts, histograms: Counts, sums: Callable[[Counts], Array], at_once: int
) -> Array:
    """`sums` (m,) of min(query, row) over the rows.

    A few rows at a time stay in the cache between the minimum and the sums.
    """
    common = np.empty(len(histograms))
    least = np.empty((min(at_once, len(histograms)), len(query)), dtype=np.uint8)
    for start in range(0, len(histograms), at_once):
        rows = histograms[start : start + at_once]
        part = least[: len(rows)]
        np.minimum(rows, query, out=part)
        common[start : start + len(rows)] = sums(part)
    return common


def _row_sums(counts: Counts) -> Array:
    """Σ (m,) over the columns; OpenCV adds bytes up several times as fast as NumPy."""
    sums = cv2.reduce(counts, 1, cv2.REDUCE_SUM, dtype=cv2.CV_32S)
    return np.asarray(sums, dtype=np.float64).reshape(-1)


def _weighted_blocks(settings: DescriberSettings) -> list[tuple[slice, float]]:
    """Columns and their common weight; neighbouring levels of equal weight are one block."""
    blocks: list[tuple[slice, float]] = []
    for columns, divisor, weight in zip(
        settings.level_columns(),
        settings.level_divisors(),
        LEVEL_WEIGHTS[settings.levels],
        strict=True,
    ):
        scaled = weight * divisor
        if blocks and blocks[-1][1] == scaled:
            blocks[-1] = (slice(blocks[-1][0].start, columns.stop), scaled)
        else:
            blocks.append((columns, scaled))
    return blocks
