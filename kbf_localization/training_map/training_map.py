"""The training map: poses X_i with the images Z_i seen there, and what was learned from them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from kbf_localization.arrays import Array, Counts, Rows
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.training_map.learned import Learned
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.vision.alignment import WordAligner
from kbf_localization.vision.describer import Describer, Gallery, ImageDescription, WordGrid
from kbf_localization.vision.registry import identity_of

SPREAD_ROWS = 256
"""Poses, spread over the map, whose images are the background of every contrast."""


@dataclass(frozen=True)
class Source:
    """A drive that gave poses to the map: `frames` images, of which `chosen` are in the map.

    `stamps_ns` are those of its first and its last image; None in old maps.
    """

    name: str
    kind: str
    condition: str | None
    frames: int
    chosen: int
    stamps_ns: tuple[int, int] | None = None


@dataclass(frozen=True, repr=False)
class TrainingMap:
    """n poses with their images' descriptions.

    `poses` (n, 3); `features` (n, width), a row of bytes an image, and `described_by` what made
    them, knows what they mean and describes a camera's images alike; `next_poses` (n, 3) the true
    pose one frame later in its drive and `motions` (n, 3) the odometry's motion to it, NaN where
    the drive ends or has a gap; `motion_variances` (4,) of one frame's motion noise; `source_of`
    (n,) the index in `sources` of each pose's drive; `thumbnails` JPEG bytes a pose, empty where
    there is none. `word_grids` (n, cells) are the images' grids of words, None in old maps and in
    maps of a describer without words. `known` is what the map has learned about itself,
    `parameters` what tuning found; empty means: the defaults. `floor_plan` is what pictures of the
    map are drawn on. `ways` (m, 3) are where each source went, whether its images are in the map
    or not; empty in old maps.
    """

    poses: Array
    features: Counts
    next_poses: Array
    motions: Array
    described_by: Describer
    motion_variances: Array
    sources: tuple[Source, ...]
    source_of: Rows
    thumbnails: Sequence[bytes]
    parameters: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    word_grids: WordGrid | None = None
    known: Learned | None = None
    floor_plan: FloorPlanImage | None = None
    ways: tuple[Array, ...] = ()

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
        digest.update(identity_of(self.described_by).encode())
        arrays = [self.poses, self.features]
        if self.described_by.pyramid is not None:
            arrays.append(self.described_by.pyramid.vocabulary.words)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @cached_property
    def gallery(self) -> Gallery:
        """The map's images, ready to be compared."""
        return self.described_by.gallery(self.features)

    @cached_property
    def aligner(self) -> WordAligner | None:
        """What aligns grids of words; None where the describer has none."""
        pyramid = self.described_by.pyramid
        return None if pyramid is None else WordAligner(pyramid.vocabulary, pyramid.layout)

    @cached_property
    def spread_rows(self) -> Rows:
        """Rows evenly spread over the map."""
        count = min(SPREAD_ROWS, len(self))
        return np.linspace(0, len(self) - 1, count).astype(np.intp)

    @cached_property
    def learned(self) -> Learned:
        """What the map knows about itself; a map that was given nothing learns it from itself."""
        from kbf_localization.training_map.learning import learn_from_map

        return learn_from_map(self) if self.known is None else self.known

    def observe(self, description: ImageDescription) -> MapObservation:
        """The described image as an observation against this map."""
        return MapObservation(self, description)

    def description(self, row: int) -> ImageDescription:
        """The description of one of the map's own images."""
        words = None if self.word_grids is None else self.word_grids[row]
        return ImageDescription(self.features[row], words)

    def way(self, source: int) -> Array:
        """Where a source went, (m, 3): in old maps no more is known than its poses in the map."""
        return self.ways[source] if self.ways else self.poses[self.source_of == source]

    def image_gram(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        """k_Z with power 1 between the map's images, (len rows_a, len rows_b or len rows_a)."""
        return self.described_by.kernel(self.gallery.compare_rows(rows_a, rows_b))


def subset(training_map: TrainingMap, rows: Rows) -> TrainingMap:
    """The map of these rows (increasing) alone; what it knows about itself stays as it is.

    A source that has given none of them is dropped.
    """
    kept = np.unique(training_map.source_of[rows])
    source_of = np.searchsorted(kept, training_map.source_of[rows])
    chosen = np.bincount(source_of, minlength=len(kept))
    grids = training_map.word_grids
    return replace(
        training_map,
        poses=training_map.poses[rows],
        features=training_map.features[rows],
        next_poses=training_map.next_poses[rows],
        motions=training_map.motions[rows],
        sources=tuple(
            replace(training_map.sources[int(number)], chosen=int(count))
            for number, count in zip(kept, chosen, strict=True)
        ),
        source_of=source_of,
        thumbnails=[training_map.thumbnails[int(row)] for row in rows],
        word_grids=None if grids is None else grids[rows],
        known=training_map.learned,
        ways=tuple(training_map.ways[int(number)] for number in kept) if training_map.ways else (),
    )


def without_thumbnails(training_map: TrainingMap) -> TrainingMap:
    """The same map without its small camera images."""
    return replace(training_map, thumbnails=[b""] * len(training_map), known=training_map.learned)
