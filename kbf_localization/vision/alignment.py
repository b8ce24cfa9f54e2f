"""Aligns two images: a turn shifts the image sideways, a step forward zooms it.

Both images are grids of visual words. Words are compared by their centres, reduced to a few
dimensions, so that two words for nearly the same patch count as nearly the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import WordGrid
from kbf_localization.vision.pyramid import Vocabulary

RANK = 8
"""Dimensions of an embedded word: 16 distinguish places no better."""

ROW_STEP = 2
"""Every second row of a grid is compared, with all columns."""

ZOOMS = np.linspace(-0.25, 0.25, 7)
"""Logarithms of the zooms that are tried: a step forward by a quarter of the scene's depth."""

MAX_SHIFT = 0.31
"""The largest shift that is tried, as a fraction of the image's width."""

MIN_OVERLAP_COLUMNS = 6
"""Columns that must overlap for a shift to be scored."""


@dataclass(frozen=True)
class Alignments:
    """The best alignments of an image with m others.

    `shift` (m,) in image widths, positive where its content lies further right in the
    other; `zoom` (m,) the logarithm of the magnification; `prominence` (m,) how far the best
    alignment's score stands out from the mean over all alignments.
    """

    shift: Array
    zoom: Array
    prominence: Array


class WordAligner:
    """Aligns grids of words (rows, columns) of one vocabulary over shifts and zooms."""

    def __init__(self, vocabulary: Vocabulary, settings: DescriberSettings) -> None:
        self.shape = settings.reduced_grid_shape
        self._embedding = _word_embedding(vocabulary)
        rows, columns = self.shape
        self._rows = np.arange(0, rows, ROW_STEP)
        self._max_shift = min(round(MAX_SHIFT * columns), max(columns - MIN_OVERLAP_COLUMNS, 0))
        self._sources = [self._zoomed_indices(zoom) for zoom in ZOOMS]
        self._diagonals = np.stack([self._diagonal_means(source) for source in self._sources])

    def view(self, grid: WordGrid) -> Floats:
        """Return the embedded image at all zooms, (zooms · columns, features)."""
        words = np.reshape(grid, self.shape)
        parts = []
        for down, right in self._sources:
            inside = (down >= 0)[:, None] & (right >= 0)[None, :]
            zoomed = self._embedding[words[np.ix_(down, right)]] * inside[:, :, None]
            parts.append(zoomed.transpose(1, 0, 2).reshape(self.shape[1], -1))
        return np.concatenate(parts)

    def align(self, view: Floats, grids: WordGrid) -> Alignments:
        """Align a `view` with images (m, rows · columns)."""
        count, columns = len(grids), self.shape[1]
        words = np.reshape(grids, (count, *self.shape))[:, self._rows]
        embedded = self._embedding[words].transpose(0, 2, 1, 3)
        others = embedded.reshape(count * columns, view.shape[1])
        products = (view @ others.T).reshape(len(ZOOMS), columns, count, columns)
        pairs = products.transpose(0, 2, 1, 3).reshape(len(ZOOMS), count, columns**2)
        return self._peaks(np.matmul(pairs, self._diagonals).transpose(1, 0, 2))

    def _peaks(self, scores: NDArray[np.floating[Any]]) -> Alignments:
        """Return the maxima of scores (m, zooms, shifts), refined by parabolas."""
        count, _, shifts = scores.shape
        best = scores.reshape(count, -1).argmax(axis=1) if count else np.zeros(0, dtype=np.intp)
        at_zoom, at_shift = np.divmod(best, shifts)
        each = np.arange(count)
        shift = at_shift + _vertex(scores[each, at_zoom], at_shift) - self._max_shift
        zoom = at_zoom + _vertex(scores[each, :, at_shift], at_zoom)
        step = float(ZOOMS[1] - ZOOMS[0])
        return Alignments(
            shift=shift / self.shape[1],
            zoom=float(ZOOMS[0]) + step * zoom,
            prominence=np.asarray(
                scores[each, at_zoom, at_shift] - scores.mean(axis=(1, 2)), dtype=np.float64
            ),
        )

    def _zoomed_indices(self, zoom: float) -> tuple[Rows, Rows]:
        """Return the source rows and columns of the zoomed image; -1 for outside."""
        indices = []
        for places, length in zip((self._rows, np.arange(self.shape[1])), self.shape, strict=True):
            centre = (length - 1) / 2.0
            source = np.rint(centre + (places - centre) * np.exp(-zoom)).astype(np.intp)
            source[(source < 0) | (source >= length)] = -1
            indices.append(source)
        return indices[0], indices[1]

    def _diagonal_means(self, source: tuple[Rows, Rows]) -> Floats:
        """Return weights (columns², shifts) that average column products along diagonals."""
        down, right = source
        columns = self.shape[1]
        weights = np.zeros((columns, columns, 2 * self._max_shift + 1), dtype=np.float32)
        for shift in range(-self._max_shift, self._max_shift + 1):
            ours = np.arange(max(0, -shift), min(columns, columns - shift))
            ours = ours[right[ours] >= 0]
            if len(ours) >= min(MIN_OVERLAP_COLUMNS, columns):
                weight = 1.0 / (len(ours) * max(int((down >= 0).sum()), 1))
                weights[ours, ours + shift, shift + self._max_shift] = weight
        return weights.reshape(columns * columns, -1)


def _word_embedding(vocabulary: Vocabulary) -> Floats:
    """Return unit vectors (words, RANK): the centres' leading principal components."""
    centred = vocabulary.words - vocabulary.words.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    reduced = centred @ axes[:RANK].T
    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    return np.asarray(reduced / np.maximum(lengths, 1e-12), dtype=np.float32)


def _vertex(scores: NDArray[np.floating[Any]], at: Rows) -> Array:
    """Return offsets (m,) in (-½, ½) of the parabola's top from the highest of scores (m, k)."""
    count, length = scores.shape
    offsets = np.zeros(count)
    inner = np.flatnonzero((at > 0) & (at < length - 1))
    low, top, high = (scores[inner, at[inner] + step] for step in (-1, 0, 1))
    bend = low - 2.0 * top + high
    offsets[inner] = np.where(
        bend < 0.0, np.clip(0.5 * (low - high) / np.where(bend < 0.0, bend, -1.0), -0.5, 0.5), 0.0
    )
    return offsets
