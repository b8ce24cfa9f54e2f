"""All frames of some drives, described once, for many trials on maps chosen from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.geometry import embed
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.build import build_map, map_of_frames
from kbf_localization.training_map.describing import Described, describe_frames
from kbf_localization.training_map.frames import Frames, gather_frames
from kbf_localization.training_map.learned import Resemblance
from kbf_localization.training_map.selection import select_frames
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.training_map.view import view_parameters
from kbf_localization.vision.describer import Describer

MAPS_KEPT = 16
"""Random maps of a pool, each of some megabytes, that are kept to be used again."""


@dataclass(frozen=True)
class FramePool:
    """The frames of several drives with their descriptions, of words that some of them taught."""

    frames: Frames
    described: Mapping[int, Described]
    describer: Describer
    _maps: dict[object, TrainingMap] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Worker processes need no thumbnails and choose their own maps."""
        slim = {row: replace(one, thumbnail=b"") for row, one in self.described.items()}
        return {**self.__dict__, "described": slim, "_maps": {}}

    def rows_of(self, drive: int) -> Rows:
        """The rows of one drive's frames."""
        return np.flatnonzero(self.frames.drive_of == drive)

    def drive(self, number: int) -> DescribedDrive:
        """One of the drives, to be replayed."""
        drive, rows = self.frames.drives[number], self.rows_of(number)
        stamps = np.asarray(drive.stamps_ns)[self.frames.index_of[rows]]
        described = [self.described.get(int(row)) for row in rows]
        return DescribedDrive(
            name=drive.name,
            condition=drive.condition,
            stamps_ns=stamps,
            truth=self.frames.poses[rows],
            odometry=drive.odometry,
            descriptions=tuple(None if one is None else one.image for one in described),
            describe_ms=np.zeros(len(rows)),
        )

    def random_map(
        self,
        drives: Sequence[int],
        count: int,
        seed: int,
        parameters: Mapping[str, float] | None = None,
    ) -> TrainingMap:
        """A map of `count` frames of these drives, chosen at random.

        Of the parameters only those of the view change what a map learns, which takes long: methods
        and settings that are compared on the same frames share it.
        """
        key = (tuple(drives), count, seed, view_parameters(parameters or {}))
        found = self._maps.get(key)
        if found is None:
            own = np.flatnonzero(np.isin(self.frames.drive_of, drives))
            found = self.map_of(own, count, "random", seed, parameters)
            while len(self._maps) >= MAPS_KEPT:
                del self._maps[next(iter(self._maps))]
            self._maps[key] = found
        return replace(found, parameters=parameters or {})

    def map_of(
        self,
        own: Rows,
        count: int,
        select: str,
        seed: int,
        parameters: Mapping[str, float] | None = None,
    ) -> TrainingMap:
        """A map of `count` of the frames `own` (increasing) that has learned from them alone."""
        part = self.frames.part(own)
        described = {
            place: self.described[int(row)]
            for place, row in enumerate(own)
            if int(row) in self.described
        }
        usable = np.array(sorted(described), dtype=np.intp)
        rows = usable[select_frames(part.poses[usable], count, select, seed)]
        return map_of_frames(part, described, rows, self.describer, parameters, seed)


def describe_drives(
    training: Sequence[Drive],
    test: Sequence[Drive] = (),
    *,
    seed: int = 0,
    words: int = 200,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> FramePool:
    """Describe all frames with words learned from the training drives alone."""
    workers = workers or Serial()
    model = build_map(training, poses=1, seed=seed, words=words, workers=workers, progress=progress)
    frames = gather_frames([*training, *test])
    rows = np.arange(len(frames.poses))
    described = describe_frames(frames, rows, model.described_by, workers, progress)
    return FramePool(frames, described, model.described_by)


def covered_share(training_map: TrainingMap, poses: Array, rows: Flags | None = None) -> Array:
    """How well a map, or `rows` (n,) of it, covers each of the poses (t, 3), in [0, 1]."""
    own = training_map.poses if rows is None else training_map.poses[rows]
    return share_near(training_map.learned.resemblance, own, poses)


def share_near(resemblance: Resemblance, map_poses: Array, poses: Array) -> Array:
    """How well some poses (n, 3) of a map cover each of the poses (t, 3)."""
    tree = cKDTree(in_scales(resemblance, map_poses))
    distances, _ = tree.query(in_scales(resemblance, poses))
    return np.asarray(resemblance.share(distances))


def in_scales(resemblance: Resemblance, poses: Array) -> Array:
    """Poses (t, 3) as points (t, 4) whose distances are in d₀ and φ₀."""
    return embed(poses) / resemblance.scales[[0, 1, 2, 2]]
