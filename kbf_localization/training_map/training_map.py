"""The training map: poses X_i with their images Z_i, and a camera image compared with them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import overload

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Counts, Floats, Rows
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.errors import MapError
from kbf_localization.landmarks.bearings import Bearings
from kbf_localization.landmarks.landmark_map import LandmarkMap
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.landmarks.table import FileRows
from kbf_localization.limits import ParameterValue
from kbf_localization.training_map.calibration import Calibration
from kbf_localization.training_map.sources import Source
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.describer import (
    Describer,
    Gallery,
    ImageDescriber,
    ImageDescription,
    WordGrid,
)
from kbf_localization.vision.keypoints import mutual_matches, squared_distances
from kbf_localization.vision.registry import identity_of
from kbf_localization.vision.visual_words import Alignments, WordAligner

SPREAD_ROWS = 256
"""Poses, spread over the map, whose images define the background level of every contrast."""

MIN_COMPARED_KEYPOINTS = 100
"""Of each of two images, to tell by their matches whether they show one view."""

MIN_RETRIEVAL_POSES = 1000
"""Maps of more poses are searched by coarse scores first, then by similarity among the best."""

RETRIEVED_FRACTION, MAX_RETRIEVED = 0.2, 1000
"""Fraction of the map that coarse retrieval keeps, and its bound in poses."""

MIN_SIMILARITY = 1e-6
"""Floor of similarities under a logarithm."""


@dataclass(frozen=True)
class FileThumbnails(Sequence[bytes]):
    """JPEG bytes a pose, which stand one after the other in a file: `data` (total,) bytes.

    `ends` (n,) says where each ends. Where the file has gone or has been replaced since, a
    thumbnail is empty.
    """

    data: FileRows
    ends: Rows
    checksums: Rows

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        start = int(self.ends[row - 1]) if row else 0
        data = self.data[start : int(self.ends[row])].tobytes()
        return data if zlib.crc32(data) == self.checksums[row] else b""


@dataclass(frozen=True, repr=False)
class TrainingMap:
    """Hold n poses with the descriptions of their images.

    - `poses` (n, 3); `features` (n, width), a row of bytes for each image, made and compared by
      `described_by`, which describes the camera's images too.
    - `next_poses` (n, 3): the true pose one frame later in the drive; `motions` (n, 3): the
      odometry's motion to it; NaN where the drive ends or has a gap.
    - `motion_variances` (4,): variances of one frame's motion noise, of embedded poses.
    - `source_of` (n,): the index in `sources` of each pose's drive.
    - `thumbnails`: JPEG bytes for each pose, empty where there is none.
    - `parameters`: tuned hyper-parameters; defaults where missing.
    - `word_grids` (n, cells): the images' grids of words; None in old maps and without a pyramid.
    - `fitted`: the calibration; None before it is made.
    - `floor_plan`: the background of plots of the map.
    - `trajectories`: the poses (m, 3) of each source, in the map or not; empty in old maps.
    - `landmarks` measure poses precisely; None where the map has none.
    - `own_frame`: the poses were estimated, and no known pose says where their frame lies.
    - `reference_poses` (n, 3): poses of the images that were known beside the estimated, to
      compare with; NaN where one was not, None where none was.
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
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    word_grids: WordGrid | None = None
    fitted: Calibration | None = None
    floor_plan: FloorPlanImage | None = None
    trajectories: tuple[Array, ...] = ()
    landmarks: LandmarkMap | None = None
    own_frame: bool = False
    reference_poses: Array | None = None

    def __len__(self) -> int:
        return len(self.poses)

    def __repr__(self) -> str:
        drives = ", ".join(source.name for source in self.sources[:3])
        more = ", …" if len(self.sources) > 3 else ""
        return f"TrainingMap({len(self)} poses of {drives}{more})"

    def __getstate__(self) -> dict[str, object]:
        """Pickle the fields alone; worker processes compute cached properties again."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @cached_property
    def identity(self) -> str:
        """Return a checksum of poses, images and words; tuning does not change it."""
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
        """Return the map's images, prepared for comparison."""
        return self.described_by.gallery(self.features)

    @property
    def image_describer(self) -> ImageDescriber:
        """Return what describes a camera's images for this map."""
        return ImageDescriber(self.described_by, detect=self.landmarks is not None)

    @cached_property
    def aligner(self) -> WordAligner | None:
        """Return the aligner of word grids; None where the describer has no words."""
        pyramid = self.described_by.pyramid
        return None if pyramid is None else WordAligner(pyramid.vocabulary, pyramid.layout)

    @cached_property
    def spread_rows(self) -> Rows:
        """Return rows evenly spread over the map."""
        count = min(SPREAD_ROWS, len(self))
        return np.linspace(0, len(self) - 1, count).astype(np.intp)

    @cached_property
    def lowest_background(self) -> float:
        """Return the lowest background of the map's own images, those of `spread_rows`."""
        return float(np.median(_log(self.image_gram(self.spread_rows)), axis=1).min())

    @property
    def calibration(self) -> Calibration:
        """Return the models fitted to the mapping drives; MapError where there are none."""
        if self.fitted is None:
            raise MapError("the map is not calibrated: calibrate it with mapping.calibrate")
        return self.fitted

    def distance_m(self, pose: Array) -> float:
        """Return the distance from a pose (3,) to the nearest of the map's poses."""
        return float(np.hypot(*(self.poses[:, :2] - pose[:2]).T).min())

    def with_camera(self, camera: Camera | None, mount: Mount | None) -> TrainingMap:
        """Return the map for images of another camera; None keeps the map's own."""
        if self.landmarks is None or (camera is None and mount is None):
            return self
        return replace(self, landmarks=self.landmarks.with_camera(camera, mount))

    def observe(self, description: ImageDescription) -> MapObservation:
        """Return the described image as an observation against this map."""
        return MapObservation(self, description)

    def description(self, row: int) -> ImageDescription:
        """Return the description of the map's image `row`."""
        words = None if self.word_grids is None else self.word_grids[row]
        return ImageDescription(self.features[row], words)

    def trajectory(self, source: int) -> Array:
        """Return the poses (m, 3) of a source; in old maps those in the map."""
        if self.trajectories:
            return self.trajectories[source]
        return np.asarray(self.poses[self.source_of == source])

    def image_gram(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        """Return k_Z with power 1 between images of the map, (len rows_a, len rows_b)."""
        return self.described_by.kernel(self.gallery.compare_rows(rows_a, rows_b))


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
        return _log(self.similarities(rows)) - self.background

    @cached_property
    def background(self) -> float:
        """Return the median of log k_Z(Z_i, z) over poses spread over the map.

        It is not below that of the map's own images: an image unlike all of them, such as of a
        covered lens, has no background, against which any place would stand out.
        """
        values = self.similarities(self.training_map.spread_rows)
        return max(float(np.median(_log(values))), self.training_map.lowest_background)

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
        contrast = float(_log(np.array(similarity))) - self.background
        words, aligner = other.description.words, self.training_map.aligner
        if words is None or aligner is None or self.description.words is None:
            return contrast, 0.0
        found = aligner.align(self._zoomed, words[None])
        return contrast, float(found.prominence[0])

    def matched_fraction(self, other: MapObservation) -> float | None:
        """Return which fraction of the keypoints matches another camera image's.

        None where one of the two has too few to tell.
        """
        first, second = self.description.keypoints, other.description.keypoints
        if first is None or second is None:
            return None
        fewest = min(len(first), len(second))
        if fewest < MIN_COMPARED_KEYPOINTS:
            return None
        distances = squared_distances(first.descriptors, second.descriptors)
        return len(mutual_matches(distances)[0]) / fewest

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

    def landmarks_shown(self, rows: Rows) -> int:
        """Return the most landmarks that an image of the map's `rows` has, 0 without bearings."""
        landmarks = self.training_map.landmarks
        if landmarks is None or not self.has_landmarks:
            return 0
        return landmarks.table.max_count(rows)

    def landmark_fix(self, rows: Rows, pose: Array, covariance: Array) -> LandmarkFix | None:
        """Measure the pose on the landmarks of the map's `rows`, starting from a Gaussian there."""
        landmarks, keypoints = self.training_map.landmarks, self.description.keypoints
        if landmarks is None or keypoints is None or self.bearings is None:
            return None
        return landmarks.measure(keypoints, self.bearings, rows, pose, covariance)

    def camera_tilt(self, rows: Rows, pose: Array) -> Array | None:
        """Return the camera's pitch and roll (2,) by the landmarks of the map's `rows`, if any."""
        landmarks, keypoints = self.training_map.landmarks, self.description.keypoints
        if landmarks is None or keypoints is None or self.bearings is None:
            return None
        return landmarks.tilt(keypoints, self.bearings, rows, pose)

    def same_as(self, other: MapObservation) -> bool:
        """Tell whether the two images are equal."""
        return np.array_equal(self.description.features, other.description.features)

    @cached_property
    def _zoomed(self) -> Floats:
        """Return the image's word grid at all zooms."""
        aligner, words = self.training_map.aligner, self.description.words
        assert aligner is not None and words is not None
        return aligner.view(words)


def subset(training_map: TrainingMap, rows: Rows) -> TrainingMap:
    """Return the map of these rows (increasing) with the same calibration.

    Sources without any of these rows are dropped.
    """
    kept = np.unique(training_map.source_of[rows])
    source_of = np.searchsorted(kept, training_map.source_of[rows])
    chosen = np.bincount(source_of, minlength=len(kept))
    grids, references = training_map.word_grids, training_map.reference_poses
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
        fitted=training_map.fitted,
        trajectories=tuple(training_map.trajectories[int(number)] for number in kept)
        if training_map.trajectories
        else (),
        landmarks=None if training_map.landmarks is None else training_map.landmarks.subset(rows),
        reference_poses=None if references is None else references[rows],
    )


def without_thumbnails(training_map: TrainingMap) -> TrainingMap:
    """Return the map without thumbnails."""
    return replace(training_map, thumbnails=[b""] * len(training_map), fitted=training_map.fitted)


def _log(similarities: Array) -> Array:
    """Return the logarithms of similarities, bounded below."""
    return np.asarray(np.log(np.maximum(similarities, MIN_SIMILARITY)))


SMALL_MAP = 2500
"""Maps up to this size keep all that was ever computed (50 MB)."""
MAX_KEPT_ROWS = 800
"""Rows kept of a larger map: a few times what a tracking step needs."""


class ImageGramCache:
    """Blocks of the image kernel's Gram matrix, raised to `power`.

    Tracking moves slowly over the map: from step to step only a few rows are new, and only
    their similarities are computed.
    """

    def __init__(self, training_map: TrainingMap, power: float) -> None:
        self._map = training_map
        self._power = power
        count = len(training_map.poses)
        self._capacity = count if count <= SMALL_MAP else MAX_KEPT_ROWS
        self._rows: Rows = np.zeros(0, dtype=np.intp)
        self._slot_of = np.full(count, -1, dtype=np.intp)
        self._block: Array = np.zeros((0, 0))

    def fill(self) -> None:
        """Compute all of a small map's matrix now; of a large map nothing is kept ahead."""
        if self._capacity == len(self._slot_of):
            self.block(np.arange(self._capacity))

    def block(self, rows: Rows) -> Array:
        """Return k_Z(Z_i, Z_j)^power for i, j in `rows`, as an array (len rows, len rows)."""
        new = rows[self._slot_of[rows] < 0]
        if len(new):
            if len(self._rows) + len(new) > self._capacity:
                self._keep_only(rows[self._slot_of[rows] >= 0])
            self._add(new)
        slots = self._slot_of[rows]
        return self._block[np.ix_(slots, slots)]

    def _keep_only(self, rows: Rows) -> None:
        slots = self._slot_of[rows]
        held = len(rows)
        self._block[:held, :held] = self._block[np.ix_(slots, slots)]
        self._slot_of[self._rows] = -1
        self._rows = rows
        self._slot_of[rows] = np.arange(held)

    def _add(self, new: Rows) -> None:
        held = len(self._rows)
        total = held + len(new)
        if total > len(self._block):
            # Doubling keeps the copying, over a whole drive, in proportion to what is held.
            size = max(total, min(2 * total, self._capacity))
            larger = np.zeros((size, size))
            larger[:held, :held] = self._block[:held, :held]
            self._block = larger
        self._block[held:total, held:total] = self._map.image_gram(new) ** self._power
        if held:
            similarities = self._map.image_gram(new, self._rows) ** self._power
            self._block[held:total, :held] = similarities
            self._block[:held, held:total] = similarities.T
        self._rows = np.concatenate((self._rows, new))
        self._slot_of[new] = np.arange(held, total)


MIN_SPACING_M = 0.02
"""Repeated poses (a robot that stood still) must not make the kernel a spike."""


def map_spacing(points: Array) -> float:
    """Return the median distance of embedded poses (n, 4) to their third nearest neighbour."""
    if len(points) < 2:
        return 1.0
    neighbour = min(3, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=[neighbour + 1])
    return max(float(np.median(distances)), MIN_SPACING_M)
