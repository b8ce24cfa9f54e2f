"""A described image, compared with the images of a map."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.landmarks.bearings import Bearings
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.vision.alignment import Alignments
from kbf_localization.vision.describer import ImageDescription

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

MIN_RETRIEVAL_POSES = 1000
"""Maps of more poses are searched by coarse scores first, then by similarity among the best."""

RETRIEVED_FRACTION, MAX_RETRIEVED = 0.2, 1000
"""Fraction of the map that coarse retrieval keeps, and its bound in poses."""

MIN_SIMILARITY = 1e-6
"""Floor of similarities under a logarithm."""


class MapObservation:
    """Compares a described image with the images of `training_map`; keeps what it has computed."""

    def __init__(self, training_map: TrainingMap, description: ImageDescription) -> None:
        self.training_map = training_map
        self.description = description
        self._similarities = np.full(len(training_map), np.nan)
        self._aligned: dict[int, tuple[float, float, float]] = {}

    def similarities(self, rows: Rows | None = None) -> Array:
        """Return k_Z(Z_i, z) with power 1 for these rows, or all; other rows are not touched."""
        wanted = slice(None) if rows is None else rows
        missing = np.isnan(self._similarities[wanted])
        if missing.any():
            missing_rows = np.flatnonzero(missing) if rows is None else rows[missing]
            compared = self.training_map.gallery.compare(self.description.features, missing_rows)
            self._similarities[missing_rows] = self.training_map.described_by.kernel(compared)
        return np.array(self._similarities[wanted])

    def contrasts(self, rows: Rows | None = None) -> Array:
        """Return log k_Z(Z_i, z) less its median over the map, for these rows, or all."""
        return np.log(np.maximum(self.similarities(rows), MIN_SIMILARITY)) - self.background

    @cached_property
    def background(self) -> float:
        """Return the median of log k_Z(Z_i, z) over poses spread over the map."""
        values = self.similarities(self.training_map.spread_rows)
        return float(np.median(np.log(np.maximum(values, MIN_SIMILARITY))))

    def coarse_similarities(self) -> Array:
        """Return cheap approximate similarities (n,) to the whole map."""
        coarse = self.training_map.gallery.coarse_scores(self.description.features)
        return self.training_map.described_by.kernel(coarse)

    def best_rows(self, count: int) -> Rows:
        """Return the `count` rows of the map with the most similar images, best first."""
        rows = np.arange(len(self.training_map))
        if len(rows) > MIN_RETRIEVAL_POSES:
            kept = min(int(RETRIEVED_FRACTION * len(rows)), MAX_RETRIEVED)
            rows = np.sort(np.argpartition(-self.coarse_similarities(), kept)[:kept])
        similarities = self.similarities(rows)
        count = min(count, len(rows))
        best = np.argpartition(-similarities, count - 1)[:count]
        return np.asarray(rows[best[np.argsort(-similarities[best], kind="stable")]])

    def alignments(self, rows: Rows) -> Alignments | None:
        """Align with the images of these rows; None where the map or the image has no word grid."""
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
        """Return contrast and prominence of the alignment with another camera image."""
        describer = self.training_map.described_by
        gallery = describer.gallery(other.description.features[None])
        similarity = float(describer.kernel(gallery.compare(self.description.features))[0])
        contrast = float(np.log(max(similarity, MIN_SIMILARITY))) - self.background
        words, aligner = other.description.words, self.training_map.aligner
        if words is None or aligner is None or self.description.words is None:
            return contrast, 0.0
        found = aligner.align(self._zoomed, words[None])
        return contrast, float(found.prominence[0])

    @property
    def has_landmarks(self) -> bool:
        """Tell whether the pose of the image can be measured by landmarks."""
        return self.bearings is not None

    @cached_property
    def bearings(self) -> Bearings | None:
        """Return the directions of the image's keypoints; None without landmarks."""
        landmarks, keypoints = self.training_map.landmarks, self.description.keypoints
        if landmarks is None or keypoints is None:
            return None
        return landmarks.bearings(keypoints, self.description.image_size)

    def landmark_fix(self, rows: Rows, pose: Array, covariance: Array) -> LandmarkFix | None:
        """Measure the pose on the landmarks of the map's `rows`, starting from a Gaussian there."""
        landmarks, keypoints = self.training_map.landmarks, self.description.keypoints
        if landmarks is None or keypoints is None or self.bearings is None:
            return None
        return landmarks.measure(keypoints, self.bearings, rows, pose, covariance)

    def same_as(self, other: MapObservation) -> bool:
        """Tell whether the two images are equal."""
        return np.array_equal(self.description.features, other.description.features)

    @cached_property
    def _zoomed(self) -> Floats:
        """Return the image's word grid at all zooms."""
        aligner, words = self.training_map.aligner, self.description.words
        assert aligner is not None and words is not None
        return aligner.view(words)
