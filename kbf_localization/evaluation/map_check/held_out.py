"""A map's drives, each localized on the part of the map that the other drives gave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.errors import DatasetError, MapError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.evaluation.training_data import are_in
from kbf_localization.geometry import compose, relative
from kbf_localization.localization.localizer import Localizer
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap, subset, without_thumbnails
from kbf_localization.vision.describer import Describer

LEAST_SHARE = 0.6
"""Of the resemblance: where a map covers a pose less well, a robot that starts there seldom finds
its pose (`experiments/map_prediction.py`)."""

MOST_FRAMES, WINDOW = 2000, 200
"""Of a check: more images than that are sampled, in windows of consecutive ones."""

FEWEST_POSES = 20
SOME = 0.3
"""Of a drive's way: where other drives cover less, the drive is held against its own poses."""

METRES_PER_SECOND, RADIANS_PER_SECOND, SHORTEST_STEP_S = 0.5, 0.8, 0.1
"""How fast the drive is taken to have been where its own stamps are not at hand."""


def covers(training_map: TrainingMap, poses: Array, rows: Flags | None = None) -> Flags:
    """Which of the poses (t, 3) the map, or those `rows` (n,) of it, covers well enough."""
    return np.asarray(covered_share(training_map, poses, rows) >= LEAST_SHARE)


@dataclass(frozen=True)
class Fold:
    """A drive and the map without it; `thinned` where the drive itself gave that map's poses.

    `windows` are the rows of the drive to replay, each from an unknown pose.
    """

    drive: DescribedDrive
    training_map: TrainingMap
    windows: tuple[Rows, ...]
    thinned: bool = False

    @property
    def truth(self) -> Array:
        """(t, 3) true poses of the drive."""
        return _truth(self.drive)


def make_folds(
    training_map: TrainingMap,
    drives: Sequence[Drive | DescribedDrive] = (),
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Iterator[Fold]:
    """Each drive with the part of the map that the others gave.

    Of `drives` all images are used, or windows of them where they are many, with their own
    odometry; one that the map does not know is held against the whole map. Without `drives` the
    map's own images are replayed, the motion between them with noise of the size that the map has
    learned. Where no drive comes by where another one was, each is held against half of its own
    poses. A fold's map is a copy of part of the map, so folds are made one at a time.
    """
    if len(training_map) < FEWEST_POSES:
        raise MapError(
            f"a map of {len(training_map)} poses is too small to be checked; "
            f"{FEWEST_POSES} are needed"
        )
    for drive in drives:
        if not isinstance(drive, DescribedDrive) and drive.poses is None:
            raise DatasetError(f"{drive.path}: has no known poses to check the map against")
    training_map = without_thumbnails(training_map)
    names = [source.name for source in training_map.sources]
    most = max(1, MOST_FRAMES // len(drives or names))
    checked: list[tuple[int | None, DescribedDrive, tuple[Rows, ...]]] = []
    if drives:
        describer = training_map.described_by
        for drive in drives:
            described, windows = _sampled(drive, describer, most, progress)
            number = names.index(drive.name) if drive.name in names else None
            checked.append((number, described, windows))
    else:
        rng = np.random.default_rng(seed)
        for number in range(len(names)):
            replayed = _drive_of_map(training_map, number, rng)
            checked.append((number, replayed, _windows(len(replayed), most)))
    apart = not any(
        number is None or _comes_by(training_map, number, drive) for number, drive, _ in checked
    )
    thinned = _every_second(training_map) if apart else None
    for number, drive, windows in checked:
        if number is None:
            yield Fold(drive, training_map, windows)
        elif thinned is not None:
            left = np.flatnonzero(~are_in(thinned, _truth(drive)))
            kept = [np.flatnonzero(np.isin(left, rows)) for rows in windows]
            own = tuple(rows for rows in kept if len(rows))
            yield Fold(drive.part(left), thinned, own, thinned=True)
        elif (training_map.source_of != number).any():
            others = np.flatnonzero(training_map.source_of != number)
            yield Fold(drive, subset(training_map, others), windows)


def _sampled(
    drive: Drive | DescribedDrive, describer: Describer, most: int, progress: Progress
) -> tuple[DescribedDrive, tuple[Rows, ...]]:
    """The drive's images of known pose, described, of many only windows; and these windows."""
    poses = drive.truth if isinstance(drive, DescribedDrive) else drive.poses
    assert poses is not None
    known = np.flatnonzero(np.isfinite(poses).all(axis=1))
    windows = [known[rows] for rows in _windows(len(known), most)]
    rows = np.concatenate(windows) if windows else known
    if isinstance(drive, DescribedDrive):
        described = drive.part(rows)
    else:
        described = describe_drive(drive, describer, progress, rows)
    ends = np.cumsum([len(one) for one in windows])
    return described, tuple(np.arange(end - len(one), end) for one, end in zip(windows, ends))


def _windows(count: int, most: int) -> tuple[Rows, ...]:
    """Rows of all `count` frames, or of windows spread over them where there are more than most."""
    if count <= most:
        return (np.arange(count),) if count else ()
    # So far apart that no frame is in two of them.
    number = max(1, most // WINDOW)
    starts = np.linspace(0, count - min(WINDOW, most), number).astype(np.intp)
    return tuple(start + np.arange(min(WINDOW, most)) for start in starts)


def _comes_by(training_map: TrainingMap, number: int, drive: DescribedDrive) -> bool:
    """Whether the map's other drives cover some of the way of its drive `number`."""
    if len(drive) == 0:
        return False
    by_others = covers(training_map, _truth(drive), training_map.source_of != number)
    return bool(by_others.mean() >= SOME)


def _every_second(training_map: TrainingMap) -> TrainingMap:
    rows = [
        np.flatnonzero(training_map.source_of == number)[::2]
        for number in range(len(training_map.sources))
    ]
    return subset(training_map, np.sort(np.concatenate(rows)))


def localize_fold(fold: Fold, progress: Progress = no_progress) -> Iterator[Run]:
    """Replay the fold's windows, each from an unknown pose."""
    localizer = Localizer(fold.training_map)
    for rows in fold.windows:
        localizer.reset()
        run = replay(fold.drive.excerpt(rows), localizer, progress=progress)
        if len(run):
            yield run


def _truth(drive: DescribedDrive) -> Array:
    assert drive.truth is not None
    return drive.truth


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
