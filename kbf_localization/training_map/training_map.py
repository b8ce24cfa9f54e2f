"""The training map: poses X_i with the images Z_i seen there, and what was learned from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kbf_localization.vision.describer import ImageDescriber
from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary

Array = NDArray[np.float64]
Counts = NDArray[np.uint8]


@dataclass(frozen=True)
class Source:
    """A drive that gave poses to the map: `frames` images, of which `chosen` are in the map."""

    name: str
    kind: str
    condition: str | None
    frames: int
    chosen: int


@dataclass(frozen=True, repr=False)
class TrainingMap:
    """n poses with their images' histograms.

    `poses` (n, 3); `histograms` (n, bins); `next_poses` (n, 3) the true pose one frame later in
    its drive and `motions` (n, 3) the odometry's motion to it, NaN where the drive ends or has a
    gap; `motion_variances` (4,) of one frame's motion noise; `source_of` (n,) the index in
    `sources` of each pose's drive; `thumbnails` JPEG bytes a pose, empty where there is none.
    `parameters` and `thresholds` are what tuning found; empty means: derive them from the map.
    """

    poses: Array
    histograms: Counts
    next_poses: Array
    motions: Array
    vocabulary: Vocabulary
    describer_settings: DescriberSettings
    motion_variances: Array
    sources: tuple[Source, ...]
    source_of: NDArray[np.intp]
    thumbnails: Sequence[bytes]
    parameters: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.poses)

    def __repr__(self) -> str:
        drives = ", ".join(source.name for source in self.sources[:3])
        more = ", …" if len(self.sources) > 3 else ""
        return f"TrainingMap({len(self)} poses of {drives}{more})"

    def __getstate__(self) -> dict[str, object]:
        """Only what was given; worker processes compute again what they need of the rest."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @cached_property
    def identity(self) -> str:
        """A checksum of poses, images and words: maps that differ in tuning alone share it."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr(self.describer_settings).encode())
        for array in (self.poses, self.histograms, self.vocabulary.words):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def describer(self) -> ImageDescriber:
        """What describes a camera's images as the map's were described."""
        return ImageDescriber(self.vocabulary, self.describer_settings)

    @cached_property
    def kernel(self) -> PyramidKernel:
        return PyramidKernel(self.describer_settings)

    @cached_property
    def self_similarities(self) -> Array:
        """Unnormalized k(Z_i, Z_i) (n,), so that a query need not touch rows for it."""
        return self.kernel.self_similarities(self.histograms)

    @cached_property
    def top_level(self) -> Counts:
        """The whole-image bins (n, words) side by side: a twentieth of the map."""
        return self.kernel.top_level(self.histograms)

    @cached_property
    def top_level_sums(self) -> Array:
        """Counts (n,) in each row of `top_level`."""
        return self.kernel.top_level_sums(self.top_level)

    def observe(self, histogram: NDArray[np.integer]) -> MapObservation:
        """The described image as an observation against this map."""
        return MapObservation(self, np.asarray(histogram, dtype=np.uint8))

    def image_gram(self, rows_a: NDArray[np.intp], rows_b: NDArray[np.intp] | None = None) -> Array:
        """k_Z with power 1 between the map's images, (len rows_a, len rows_b or len rows_a)."""
        known = self.self_similarities
        if rows_b is None:
            return self.kernel.gram(self.histograms[rows_a], None, known[rows_a])
        return self.kernel.gram(self.histograms[rows_a], self.histograms[rows_b], known[rows_b])


@dataclass(frozen=True)
class MapObservation:
    """One described image, asked for its similarity with the map's images."""

    training_map: TrainingMap
    histogram: Counts

    def similarities(self, rows: NDArray[np.intp] | None = None) -> Array:
        """k_Z(Z_i, z) with power 1 for these rows (None: for all); other rows are not touched."""
        known = self.training_map.self_similarities
        histograms = self.training_map.histograms
        if rows is not None:
            histograms, known = histograms[rows], known[rows]
        return self.training_map.kernel.similarities(self.histogram, histograms, known)

    def top_level_similarities(self) -> Array:
        """A quick first look (n,) at the whole map, by the words of the whole image alone."""
        held = self.training_map
        return held.kernel.top_level_similarities(
            self.histogram, held.top_level, held.top_level_sums
        )


def with_parameters(
    training_map: TrainingMap,
    parameters: Mapping[str, float],
    thresholds: Mapping[str, float] | None = None,
) -> TrainingMap:
    """The same map with other hyper-parameters, and other thresholds where they are given."""
    return replace(
        training_map,
        parameters=dict(parameters),
        thresholds=dict(training_map.thresholds if thresholds is None else thresholds),
    )


def subset(training_map: TrainingMap, rows: NDArray[np.intp]) -> TrainingMap:
    """A map of some of the poses."""
    return replace(
        training_map,
        poses=training_map.poses[rows],
        histograms=training_map.histograms[rows],
        next_poses=training_map.next_poses[rows],
        motions=training_map.motions[rows],
        source_of=training_map.source_of[rows],
        thumbnails=[training_map.thumbnails[int(row)] for row in rows],
    )
