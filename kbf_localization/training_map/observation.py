"""One described image, compared with the images of a map."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.vision.alignment import Alignments
from kbf_localization.vision.describer import ImageDescription

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

RETRIEVE_FROM = 1000
"""Maps of more poses are searched at a glance first, and closely where that looks most alike."""

RETRIEVED_SHARE, MOST_RETRIEVED = 0.2, 1000
"""The part of the map that coarse retrieval leaves over for a close look, and its bound."""

LEAST_SIMILARITY = 1e-6
"""Below it a logarithm says nothing."""


class MapObservation:
    """A described image against `training_map`; what was computed once is kept."""

    def __init__(self, training_map: TrainingMap, description: ImageDescription) -> None:
        self.training_map = training_map
        self.description = description
        self._known = np.full(len(training_map), np.nan)
        self._aligned: dict[int, tuple[float, float, float]] = {}

    def similarities(self, rows: Rows | None = None) -> Array:
        """k_Z(Z_i, z) with power 1 for these rows (None: for all); other rows are not touched."""
        wanted = slice(None) if rows is None else rows
        missing = np.isnan(self._known[wanted])
        if missing.any():
            held = self.training_map
            asked = np.flatnonzero(missing) if rows is None else rows[missing]
            self._known[asked] = held.described_by.kernel(
                held.gallery.compare(self.description.features, asked)
            )
        return np.array(self._known[wanted])

    def contrasts(self, rows: Rows | None = None) -> Array:
        """log k_Z(Z_i, z), less its median over the map."""
        return np.log(np.maximum(self.similarities(rows), LEAST_SIMILARITY)) - self.background

    @cached_property
    def background(self) -> float:
        """The median of log k_Z(Z_i, z) over poses spread over the map."""
        values = self.similarities(self.training_map.spread_rows)
        return float(np.median(np.log(np.maximum(values, LEAST_SIMILARITY))))

    def coarse_similarities(self) -> Array:
        """A quick look (n,) at the whole map."""
        held = self.training_map
        return held.described_by.kernel(held.gallery.glance(self.description.features))

    def best_rows(self, count: int) -> Rows:
        """The rows of the map whose images are most similar, the best first."""
        rows = np.arange(len(self.training_map))
        if len(rows) > RETRIEVE_FROM:
            kept = min(int(RETRIEVED_SHARE * len(rows)), MOST_RETRIEVED)
            rows = np.sort(np.argpartition(-self.coarse_similarities(), kept)[:kept])
        similarities = self.similarities(rows)
        count = min(count, len(rows))
        best = np.argpartition(-similarities, count - 1)[:count]
        return np.asarray(rows[best[np.argsort(-similarities[best], kind="stable")]])

    def alignments(self, rows: Rows) -> Alignments | None:
        """With the images of these rows; None where the map or the image has no grid of words."""
        grids, aligner = self.training_map.word_grids, self.training_map.aligner
        if grids is None or aligner is None or self.description.words is None:
            return None
        missing = [int(row) for row in rows if int(row) not in self._aligned]
        if missing:
            found = aligner.align(self._zoomed, grids[missing])
            values = zip(found.shift, found.zoom, found.prominence, strict=True)
            self._aligned.update(zip(missing, values, strict=True))
        table = np.array([self._aligned[int(row)] for row in rows]).reshape(-1, 3)
        return Alignments(*table.T)

    def compared_with(self, other: MapObservation) -> tuple[float, float]:
        """Contrast and prominence of the alignment with another camera image."""
        describer = self.training_map.described_by
        alone = describer.gallery(other.description.features[None])
        similarity = float(describer.kernel(alone.compare(self.description.features))[0])
        contrast = float(np.log(max(similarity, LEAST_SIMILARITY))) - self.background
        words, aligner = other.description.words, self.training_map.aligner
        if words is None or aligner is None or self.description.words is None:
            return contrast, 0.0
        found = aligner.align(self._zoomed, words[None])
        return contrast, float(found.prominence[0])

    def same_as(self, other: MapObservation) -> bool:
        """Whether the two images are the very same picture."""
        return np.array_equal(self.description.features, other.description.features)

    @cached_property
    def _zoomed(self) -> Floats:
        """The picture at all zooms, where there are words to align."""
        aligner, words = self.training_map.aligner, self.description.words
        assert aligner is not None and words is not None
        return aligner.view(words)
