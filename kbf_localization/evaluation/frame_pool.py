"""All frames of some drives, described once, for many trials on maps chosen from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.geometry import embed
from kbf_localization.limits import ParameterValue
from kbf_localization.mapping.build import build_map, map_of_frames
from kbf_localization.mapping.describing import Described, describe_frames
from kbf_localization.mapping.frames import Frames, gather_frames, select_frames
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.calibration import SimilarityModel
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import Describer

MAX_MAPS_KEPT = 16
"""Random maps of a pool, each of some megabytes, that are kept to be used again."""


@dataclass(frozen=True)
class FramePool:
    """The frames of several drives with their descriptions, of words that some of them taught."""

    frames: Frames
    described: Mapping[int, Described]
    describer: Describer
    _maps: dict[object, TrainingMap] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Leave out thumbnails and maps, which worker processes do not need."""
        slim = {row: replace(frame, thumbnail=b"") for row, frame in self.described.items()}
        return {**self.__dict__, "described": slim, "_maps": {}}

    def rows_of(self, drive: int) -> Rows:
        """Return the rows of one drive's frames."""
        return np.flatnonzero(self.frames.drive_of == drive)

    def drive(self, number: int) -> DescribedDrive:
        """Return one of the drives, to be replayed."""
        drive, rows = self.frames.drives[number], self.rows_of(number)
        stamps = np.asarray(drive.stamps_ns)[self.frames.index_of[rows]]
        described = [self.described.get(int(row)) for row in rows]
        return DescribedDrive(
            name=drive.name,
            condition=drive.condition,
            stamps_ns=stamps,
            truth=self.frames.poses[rows],
            odometry=drive.odometry,
            descriptions=tuple(None if frame is None else frame.image for frame in described),
            describe_ms=np.zeros(len(rows)),
        )

    def random_map(
        self,
        drives: Sequence[int],
        count: int,
        seed: int,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> TrainingMap:
        """Return a map of `count` frames of these drives, chosen at random.

        Of the parameters only those of the view change what a map learns, which takes long: methods
        and settings that are compared on the same frames use the same map.
        """
        key = (tuple(drives), count, seed, parameters_of(BeliefParameters, "kbf", parameters or {}))
        found = self._maps.get(key)
        if found is None:
            own = np.flatnonzero(np.isin(self.frames.drive_of, drives))
            found = self.map_of(own, count, "random", seed, parameters)
            while len(self._maps) >= MAX_MAPS_KEPT:
                del self._maps[next(iter(self._maps))]
            self._maps[key] = found
        return replace(found, parameters=parameters or {})

    def part(self, own: Rows) -> tuple[Frames, dict[int, Described], Rows]:
        """Return the frames `own` (increasing), their descriptions, and the described rows."""
        described = {
            place: self.described[int(row)]
            for place, row in enumerate(own)
            if int(row) in self.described
        }
        return self.frames.part(own), described, np.array(sorted(described), dtype=np.intp)

    def map_of(
        self,
        own: Rows,
        count: int,
        select: str,
        seed: int,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> TrainingMap:
        """Return a map of `count` of the frames `own` (increasing), calibrated on them alone."""
        part, described, usable = self.part(own)
        rows = usable[select_frames(part.poses[usable], count, select, seed)]
        keypoints = {
            row: item.image.keypoints
            for row, item in described.items()
            if item.image.keypoints is not None
        }
        return map_of_frames(
            part,
            described,
            rows,
            self.describer,
            parameters,
            seed,
            keypoints=keypoints or None,
        )


def describe_drives(
    training: Sequence[Drive],
    test: Sequence[Drive] = (),
    *,
    seed: int = 0,
    words: int = 200,
    landmarks: bool = True,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> FramePool:
    """Describe all frames with words learned from the training drives alone."""
    workers = workers or Serial()
    model = build_map(
        training,
        poses=1,
        seed=seed,
        words=words,
        landmarks=False,
        workers=workers,
        progress=progress,
    )
    frames = gather_frames([*training, *test])
    rows = np.arange(len(frames.poses))
    described = describe_frames(
        frames, rows, model.described_by, workers, progress, detect=landmarks
    )
    return FramePool(frames, described, model.described_by)


def map_coverage(training_map: TrainingMap, poses: Array, rows: Flags | None = None) -> Array:
    """Return how well a map, or `rows` (n,) of it, covers each of the poses (t, 3), in [0, 1]."""
    own = training_map.poses if rows is None else training_map.poses[rows]
    return pose_coverage(training_map.calibration.similarity, own, poses)


def pose_coverage(similarity: SimilarityModel, map_poses: Array, poses: Array) -> Array:
    """Return how well some poses (n, 3) of a map cover each of the poses (t, 3)."""
    tree = cKDTree(in_scales(similarity, map_poses))
    distances, _ = tree.query(in_scales(similarity, poses))
    return np.asarray(similarity.relative_similarity(distances))


def in_scales(similarity: SimilarityModel, poses: Array) -> Array:
    """Return poses (t, 3) as points (t, 4) whose distances are in d₀ and φ₀."""
    return embed(poses) / similarity.scales[[0, 1, 2, 2]]
