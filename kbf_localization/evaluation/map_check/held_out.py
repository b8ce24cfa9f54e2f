"""A map's drives, each localized on the part of the map that the other drives gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.errors import DatasetError, MapError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.geometry import compose, embed, relative
from kbf_localization.localization.localizer import Localizer
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap, subset, without_thumbnails

LEAST_SHARE = 0.6
"""Of the resemblance: where a map covers a pose less well, a robot that starts there seldom finds
its pose (`experiments/map_prediction.py`)."""

MOST_FRAMES, WINDOW = 2000, 200
"""Of a check: more images than that are sampled, in windows of consecutive ones."""

FEWEST_POSES = 20
METRES_PER_SECOND, RADIANS_PER_SECOND, SHORTEST_STEP_S = 0.5, 0.8, 0.1
"""How fast the drive is taken to have been where its own stamps are not at hand."""


@dataclass(frozen=True)
class Fold:
    """A drive and the map without it; `thinned` where the drive itself gave that map's poses."""

    drive: DescribedDrive
    training_map: TrainingMap
    thinned: bool = False


@dataclass(frozen=True)
class Trial:
    """A fold's frames as they were localized; `frames` (t,) are their numbers in the drive."""

    fold: Fold
    run: Run
    frames: Rows


def make_folds(
    training_map: TrainingMap,
    drives: Sequence[Drive | DescribedDrive] = (),
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[Fold]:
    """Each drive with the part of the map that the others gave.

    Of `drives` all images are used with their own odometry; one that the map does not know is held
    against the whole map. Without `drives` the map's own images are replayed, the motion between
    them with noise of the size that the map has learned. Where no drive comes by where another one
    was, each is held against half of its own poses.
    """
    if len(training_map) < FEWEST_POSES:
        raise MapError(
            f"a map of {len(training_map)} poses is too small to be checked; "
            f"{FEWEST_POSES} are needed"
        )
    bare = without_thumbnails(training_map)
    names = [source.name for source in training_map.sources]
    if not drives:
        rng = np.random.default_rng(seed)
        replayed = {
            number: _drive_of_map(training_map, number, rng) for number in range(len(names))
        }
        return _folds(bare, replayed)
    described = []
    for drive in drives:
        if not isinstance(drive, DescribedDrive):
            if drive.poses is None:
                raise DatasetError(f"{drive.path}: has no known poses to check the map against")
            drive = describe_drive(drive, training_map.describer(), progress)
        described.append(drive)
    own = {names.index(one.name): one for one in described if one.name in names}
    return [
        *_folds(bare, own),
        *(Fold(_with_known_pose(one), bare) for one in described if one.name not in names),
    ]


def _folds(training_map: TrainingMap, drives: Mapping[int, DescribedDrive]) -> list[Fold]:
    folds = []
    for number, drive in drives.items():
        others = np.flatnonzero(training_map.source_of != number)
        if len(others) and len(drive):
            folds.append(Fold(_with_known_pose(drive), subset(training_map, others)))
    if any(
        (covered_share(one.training_map, _truth(one.drive)) >= LEAST_SHARE).mean() >= LEAST_SHARE
        for one in folds
    ):
        return folds
    rows = np.concatenate(
        [
            np.flatnonzero(training_map.source_of == number)[::2]
            for number in range(len(training_map.sources))
        ]
    )
    thinned = subset(training_map, np.sort(rows))
    return [
        Fold(_without(_with_known_pose(drive), thinned), thinned, thinned=True)
        for drive in drives.values()
    ]


def localize_fold(
    fold: Fold, most_frames: int, progress: Progress = no_progress
) -> Iterator[Trial]:
    """Replay the fold's drive, or windows spread over it where it has more than `most_frames`."""
    localizer = Localizer(fold.training_map)
    count = len(fold.drive)
    windows = [np.arange(count)]
    if count > most_frames:
        number = max(1, most_frames // WINDOW)
        starts = np.linspace(0, count - WINDOW, number).astype(np.intp)
        windows = [start + np.arange(WINDOW) for start in starts]
    for frames in windows:
        localizer.reset()
        part = fold.drive.part(frames)
        run = replay(part, localizer, progress=progress)
        places = np.searchsorted(part.stamps_ns, run.stamps_ns)
        yield Trial(fold, run, frames[places])


def truth_of(trial: Trial) -> Array:
    """The true poses (t, 3) of a trial's frames."""
    return _truth(trial.fold.drive)[trial.frames]


def _truth(drive: DescribedDrive) -> Array:
    assert drive.truth is not None
    return drive.truth


def _with_known_pose(drive: DescribedDrive) -> DescribedDrive:
    return drive.part(np.flatnonzero(np.isfinite(_truth(drive)).all(axis=1)))


def _without(drive: DescribedDrive, training_map: TrainingMap) -> DescribedDrive:
    """The frames of a drive that are not themselves in the map."""
    distances, _ = cKDTree(embed(training_map.poses)).query(embed(_truth(drive)))
    return drive.part(np.flatnonzero(distances > 1e-6))


def _drive_of_map(
    training_map: TrainingMap, number: int, rng: np.random.Generator
) -> DescribedDrive:
    """The poses that one source gave to the map, in their order, as a drive."""
    rows = np.flatnonzero(training_map.source_of == number)
    source, poses = training_map.sources[number], training_map.poses[rows]
    motions = relative(poses[:-1], poses[1:])
    noise = training_map.learned.motion_noise
    odometry, stamps = [np.zeros(3)], [0]
    for motion in motions:
        way, turn = float(np.hypot(motion[0], motion[1])), abs(float(motion[2]))
        error = rng.normal(size=3) * np.sqrt(noise.variances(way, turn))
        odometry.append(compose(odometry[-1], motion + error))
        seconds = max(way / METRES_PER_SECOND, turn / RADIANS_PER_SECOND, SHORTEST_STEP_S)
        stamps.append(stamps[-1] + round(seconds * 1e9))
    stamps_ns = np.array(stamps[: len(rows)], dtype=np.int64)
    return DescribedDrive(
        name=source.name,
        condition=source.condition,
        stamps_ns=stamps_ns,
        truth=poses,
        odometry=OdometryLog(stamps_ns, np.array(odometry[: len(rows)])),
        descriptions=tuple(training_map.description(int(row)) for row in rows),
        describe_ms=np.zeros(len(rows)),
    )
