"""Visual words: their vocabulary, spatial pyramids of their counts, the alignment of two images.

The pyramid counts words in ever smaller regions; it is that of Lazebnik, Schmid and Ponce (2006).

Their kernel k_Z is the weighted histogram intersection, normalized to k(z, z) = 1. Σ min(a, b) is a
positive definite kernel of counts; sums of such with positive weights are; and dividing by the root
of both self-similarities keeps it so. Dense SIFT, visual words and the pyramid make the describer
that needs nothing but the images.

A turn shifts an image sideways, a step forward zooms it: two grids of words are aligned over both.
Words are compared by their centres, reduced to a few dimensions, so that two words for nearly the
same patch count as nearly the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Array, Counts, Flags, Floats, Image, Rows
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.dense_sift import LEVEL_WEIGHTS, DescriberSettings, dense_sift
from kbf_localization.vision.describer import (
    Describer,
    Gallery,
    ImageDescription,
    WordGrid,
    prepare_image,
    reduced_size,
)

_ROWS_AT_ONCE = 64
_TOP_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class Vocabulary:
    """Centres (words, length) of clusters of descriptors."""

    words: Floats

    @cached_property
    def _half_squares(self) -> Floats:
        return np.asarray(0.5 * np.einsum("ij,ij->i", self.words, self.words))

    def assign(self, descriptors: Floats) -> Rows:
        """Return the number (n,) of the word nearest to each descriptor (n, length)."""
        # |d - w|² is least where d·w - |w|²/2 is greatest: one matrix product.
        closeness = descriptors @ self.words.T
        closeness -= self._half_squares
        return np.asarray(closeness.argmax(axis=1))


def learn_vocabulary(
    descriptors: Floats,
    words: int = 200,
    seed: int = 0,
    iterations: int = 30,
    progress: Progress = no_progress,
) -> Vocabulary:
    """Cluster descriptors (n, length) by k-means, started by k-means++ from `seed`."""
    if len(descriptors) == 0:
        raise ValueError("descriptors must not be empty")
    from scipy.sparse import csr_matrix  # Processes that only describe images start sooner.

    rng = np.random.default_rng(seed)
    centres = _spread_start(descriptors, words, rng)
    previous: Rows | None = None
    for iteration in range(iterations):
        progress(iteration, iterations, "learning the visual words")
        nearest = Vocabulary(centres).assign(descriptors)
        if previous is not None and np.array_equal(nearest, previous):
            break
        previous = nearest
        counts = np.bincount(nearest, minlength=words)
        members = csr_matrix(
            (np.ones(len(nearest), np.float32), (nearest, np.arange(len(nearest)))),
            shape=(words, len(nearest)),
        )
        sums = np.asarray(members @ descriptors)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None].astype(np.float32)
        empty = np.flatnonzero(~filled)
        if len(empty):
            # An empty cluster restarts at a random descriptor.
            centres[empty] = descriptors[rng.integers(len(descriptors), size=len(empty))]
    progress(iterations, iterations, "learning the visual words")
    return Vocabulary(centres)


def _spread_start(descriptors: Floats, words: int, rng: np.random.Generator) -> Floats:
    """Return starting centres by k-means++: each drawn in proportion to its squared distance."""
    sample = descriptors
    if len(sample) > 100 * words:
        sample = sample[np.sort(rng.choice(len(sample), 100 * words, replace=False))]
    squares = np.einsum("ij,ij->i", sample, sample, dtype=np.float64)
    centres = np.empty((words, sample.shape[1]), dtype=np.float32)
    distances = np.full(len(sample), np.inf)
    chosen = int(rng.integers(len(sample)))
    for word in range(words):
        centres[word] = sample[chosen]
        to_new = squares - 2.0 * (sample @ centres[word]) + squares[chosen]
        np.minimum(distances, np.maximum(to_new, 0.0), out=distances)
        cumulative = np.cumsum(distances)
        if cumulative[-1] > 0.0:
            drawn = rng.random() * cumulative[-1]
            chosen = min(int(np.searchsorted(cumulative, drawn)), len(sample) - 1)
        else:
            chosen = int(rng.integers(len(sample)))
    return centres


def pyramid_histogram(words: Rows, settings: DescriberSettings) -> Counts:
    """Return counts (bins,) of the patches' words (patches,) in the regions of all levels.

    Level 0, the whole image, comes first; then the regions of each level, row by row. Counts are
    divided by the level's divisor and saturate at 255.
    """
    finest = settings.regions_per_side(settings.levels - 1)
    counts = np.bincount(
        words + _first_bins(settings), minlength=finest * finest * settings.words
    ).reshape(finest, finest, settings.words)
    levels = [counts]
    while len(levels) < settings.levels:
        fine = levels[-1]
        half = fine.shape[0] // 2
        levels.append(fine.reshape(half, 2, half, 2, settings.words).sum(axis=(1, 3)))
    histogram = np.empty(settings.bins, dtype=np.uint8)
    for columns, divisor, level in zip(
        settings.level_columns(), settings.level_divisors(), reversed(levels), strict=True
    ):
        rounded = (level.ravel() + divisor // 2) // divisor
        histogram[columns] = np.minimum(rounded, 255)
    return histogram


@lru_cache(maxsize=8)
def _first_bins(settings: DescriberSettings) -> Rows:
    """Return for each patch the first bin (patches,) of its region on the finest level."""
    side = settings.regions_per_side(settings.levels - 1)
    rows, columns = settings.grid_shape
    down = np.arange(rows) * side // rows
    right = np.arange(columns) * side // columns
    return np.asarray(((down[:, None] * side + right) * settings.words).ravel(), dtype=np.intp)


class PyramidGallery(Gallery):
    """Histograms (n, bins) with what is computed once for all queries."""

    def __init__(self, settings: DescriberSettings, histograms: Counts) -> None:
        self._histograms = histograms
        self._words = settings.words
        self._blocks = _weighted_blocks(settings)

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        wanted = slice(None) if rows is None else rows
        return self._similarities(query, self._histograms[wanted], self._self_similarities[wanted])[
            None
        ]

    def coarse_scores(self, query: Counts) -> Array:
        """Compare by the words of the whole image alone, a twentieth of a row."""
        own = query[: self._words]
        common = _intersections(own, self._top_level, _row_sums, _TOP_ROWS_AT_ONCE)
        return _normalized(common, _row_sums(own[None])[0] * self._top_level_sums)[None]

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        columns = rows_a if rows_b is None else rows_b
        histograms, own = self._histograms[columns], self._self_similarities[columns]
        matrix = np.empty((len(rows_a), len(columns)))
        for place, row in enumerate(rows_a):
            first = place if rows_b is None else 0
            matrix[place, first:] = self._similarities(
                self._histograms[row], histograms[first:], own[first:]
            )
            if rows_b is None:
                matrix[place:, place] = matrix[place, place:]
        return matrix[None]

    def check(self) -> None:
        if not (self._self_similarities > 0.0).all():
            raise ValueError("a histogram is empty")

    def _similarities(self, query: Counts, histograms: Counts, own: Array) -> Array:
        """Return k_Z (m,) of a query with histograms (m, bins); `own` (m,) are their k(z, z)."""
        common = _intersections(query, histograms, self._weighted_sums, _ROWS_AT_ONCE)
        return _normalized(common, self._weighted_sums(query[None])[0] * own)

    def _weighted_sums(self, counts: Counts) -> Array:
        """Return Σ of counts (m, bins), each with its level's weight and divisor."""
        total = np.zeros(len(counts))
        for columns, weight in self._blocks:
            total += weight * _row_sums(counts[:, columns])
        return total

    @cached_property
    def _self_similarities(self) -> Array:
        """Return unnormalized k(Z_i, Z_i) (n,), so that a query need not touch rows for it."""
        total = np.zeros(len(self._histograms))
        for start in range(0, len(total), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            total[rows] = self._weighted_sums(self._histograms[rows])
        return total

    @cached_property
    def _top_level(self) -> Counts:
        """Return the whole-image bins (n, words) side by side."""
        return np.ascontiguousarray(self._histograms[:, : self._words])

    @cached_property
    def _top_level_sums(self) -> Array:
        return _row_sums(self._top_level)


def _intersections(
    query: Counts, histograms: Counts, sums: Callable[[Counts], Array], at_once: int
) -> Array:
    """Return `sums` (m,) of min(query, row) over the rows.

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


def _normalized(common: Array, squared_scale: Array) -> Array:
    return np.asarray(common / np.sqrt(np.maximum(squared_scale, 1e-300)))


def _row_sums(counts: Counts) -> Array:
    """Return Σ (m,) over the columns; OpenCV adds bytes up several times as fast as NumPy."""
    sums = cv2.reduce(counts, 1, cv2.REDUCE_SUM, dtype=cv2.CV_32S)
    return np.asarray(sums, dtype=np.float64).reshape(-1)


@lru_cache(maxsize=8)
def _weighted_blocks(settings: DescriberSettings) -> tuple[tuple[slice, float], ...]:
    """Return columns and their common weight; neighbouring levels of equal weight are one block."""
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
    return tuple(blocks)


_log = logging.getLogger(__name__)


class PyramidDescriber(Describer):
    """Describes images of any size, grey or colour, as the map's images were described.

    A row is the pyramid's histogram. Images of another size than the map's are resized, which is
    logged once.
    """

    name = "sift"
    version = 1

    def __init__(self, vocabulary: Vocabulary, layout: DescriberSettings) -> None:
        if vocabulary.words.shape[0] != layout.words:
            raise ValueError(
                f"vocabulary has {vocabulary.words.shape[0]} words, settings say {layout.words}"
            )
        self.vocabulary = vocabulary
        self.layout = layout
        self._resizes = False

    @property
    def settings(self) -> Mapping[str, Any]:
        """All but the vocabulary, which a map keeps as an array."""
        return asdict(self.layout)

    @property
    def image_size(self) -> tuple[int, int]:
        return self.layout.image_width, self.layout.image_height

    @property
    def width(self) -> int:
        return self.layout.bins

    @property
    def pyramid(self) -> PyramidDescriber:
        return self

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        return [self.describe(image) for image in images]

    def describe(self, image: Image) -> ImageDescription:
        """Return the description of an image (h, w), (h, w, 1), (h, w, 3) BGR or (h, w, 4) BGRA."""
        grey = prepare_image(image, self.image_size)
        size = image.shape[1], image.shape[0]
        if self.image_size not in (size, reduced_size(size)) and not self._resizes:
            self._resizes = True
            sizes = (*size, *self.image_size)
            _log.warning("images of %dx%d are resized to the map's %dx%d", *sizes)
        words = self.vocabulary.assign(dense_sift(grey, self.layout))
        step = self.layout.reduced_grid_step
        grid = words.reshape(self.layout.grid_shape)[::step, ::step]
        return ImageDescription(
            features=pyramid_histogram(words, self.layout),
            words=grid.reshape(-1).astype(self.layout.word_type),
        )

    def gallery(self, features: Counts) -> PyramidGallery:
        return PyramidGallery(self.layout, features)

    def kernel(self, compared: Array) -> Array:
        return np.asarray(compared[0])


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
        embedding = _word_embedding(vocabulary)
        # The last row is what lies outside of a zoomed image.
        self._embedding = np.concatenate((embedding, np.zeros_like(embedding[:1])))
        rows, columns = self.shape
        self._rows = np.arange(0, rows, ROW_STEP)
        self._max_shift = min(round(MAX_SHIFT * columns), max(columns - MIN_OVERLAP_COLUMNS, 0))
        sources = [self._zoomed_indices(zoom) for zoom in ZOOMS]
        self._cells = np.concatenate([self._zoomed_cells(source) for source in sources])
        self._diagonals = np.stack([self._diagonal_means(source) for source in sources])

    def view(self, grid: WordGrid) -> Floats:
        """Return the embedded image at all zooms, (zooms · columns, features)."""
        words = np.append(np.reshape(grid, -1).astype(np.intp), len(self._embedding) - 1)
        found: Floats = self._embedding[words[self._cells]]
        return found.reshape(len(self._cells), -1)

    def align(self, view: Floats, grids: WordGrid) -> Alignments:
        """Align a `view` with images (m, rows · columns)."""
        count, columns = len(grids), self.shape[1]
        words = np.reshape(grids, (count, *self.shape))[:, self._rows]
        embedded = self._embedding[words].transpose(0, 2, 1, 3)
        others = embedded.reshape(count * columns, view.shape[1])
        products = (view @ others.T).reshape(len(ZOOMS), columns, count, columns)
        pairs = products.transpose(0, 2, 1, 3).reshape(len(ZOOMS), count, columns**2)
        return self._peaks(np.matmul(pairs, self._diagonals).transpose(1, 0, 2))

    def _peaks(self, scores: Floats) -> Alignments:
        """Return the maxima of scores (m, zooms, shifts), refined by parabolas."""
        count, zooms, shifts = scores.shape
        flat = scores.reshape(count, zooms * shifts)
        best = flat.argmax(axis=1)
        at_zoom, at_shift = np.divmod(best, shifts)
        # Among the scores of all images, side by side.
        at = np.arange(0, flat.size, zooms * shifts) + best
        every = flat.reshape(-1)
        across = _vertices(every, at, 1, (at_shift > 0) & (at_shift < shifts - 1))
        along = _vertices(every, at, shifts, (at_zoom > 0) & (at_zoom < zooms - 1))
        step = float(ZOOMS[1] - ZOOMS[0])
        return Alignments(
            shift=(at_shift + across - self._max_shift) / self.shape[1],
            zoom=float(ZOOMS[0]) + step * (at_zoom + along),
            prominence=np.asarray(every[at] - scores.mean(axis=(1, 2)), dtype=np.float64),
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

    def _zoomed_cells(self, source: tuple[Rows, Rows]) -> Rows:
        """Return cells (columns, rows) of the flat grid; -1 for outside."""
        down, right = source
        inside = (right >= 0)[:, None] & (down >= 0)
        return np.where(inside, right[:, None] + down * self.shape[1], -1)

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


def _vertices(scores: Floats, at: Rows, step: int, inner: Flags) -> Array:
    """Return offsets (m,) in (-½, ½) of the parabolas' tops from the highest scores, `at` (m,).

    The neighbours are `step` before and after in scores (k,), where `inner` (m,) says so.
    """
    offsets = np.zeros(len(at))
    if not inner.any():
        return offsets
    places = at[inner]
    low, top, high = scores[places - step], scores[places], scores[places + step]
    bend = low - 2.0 * top + high
    peaked = bend < 0.0
    found = 0.5 * (low - high) / np.where(peaked, bend, -1.0)
    offsets[inner] = np.where(peaked, np.minimum(np.maximum(found, -0.5), 0.5), 0.0)
    return offsets
