"""A map's drives held out: localized on the map of the other drives, first fixes, look-alikes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.errors import DatasetError, MapError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import map_coverage
from kbf_localization.evaluation.run import GROSS_ERROR_M, Run, localize_drive, replay
from kbf_localization.evaluation.training_data import are_in
from kbf_localization.filters.kernel_step import LocalKernelBayes, LocalPosterior
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.geometry import compose, relative
from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.result import State
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map.training_map import (
    MapObservation,
    TrainingMap,
    subset,
    without_thumbnails,
)
from kbf_localization.vision.describer import ImageDescriber

MIN_COVERAGE = 0.6
"""Relative similarity to the nearest map image: where it is lower, a robot that starts there seldom
finds its pose (`experiments/map_check.py`)."""

MAX_FRAMES, WINDOW = 2000, 200
"""Of a check: more images than that are sampled, in windows of consecutive images."""

MIN_POSES = 20
"""Of a map: fewer cannot be divided into a map and a test."""

MIN_OVERLAP = 0.3
"""Of a drive's path: where other drives cover less, the drive is held against its own poses."""

METRES_PER_SECOND, RADIANS_PER_SECOND, MIN_STEP_S = 0.5, 0.8, 0.1
"""How fast the drive is taken to have been where its own stamps are not at hand."""

MAX_IMAGES = 60
"""Images that a first fix, or distinguishing two places, may take."""

MIN_APART = 3.0
"""In d₀: nearer places look alike because they are nearly the same."""

BEST_MATCHES = 30
"""Images of the map among which a look-alike is searched."""

JITTER = np.array([0.08, 0.08, 0.14])
"""How far off, in d₀ and φ₀, a hypothesis is while it tracks."""

NEEDED_EVIDENCE = float(np.log(FIRST_PROOF / (1.0 - FIRST_PROOF)))
"""The log odds at which the localizer's state becomes "tracking"."""


def covers(training_map: TrainingMap, poses: Array, rows: Flags | None = None) -> Flags:
    """Return which of the poses (t, 3) the map, or those `rows` (n,) of it, covers well enough."""
    return np.asarray(map_coverage(training_map, poses, rows) >= MIN_COVERAGE)


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
    """Yield each drive with the part of the map that the others gave.

    Of `drives` all images are used, or windows of them where they are many, with their own
    odometry; a drive that the map does not know is held against the whole map. Without `drives` the
    map's own images are replayed, the motion between them with noise of the size that the map has
    learned. Where no drive comes by where another was, each is held against half of its own
    poses. A fold's map is a copy of part of the map, so folds are made one at a time.
    """
    if len(training_map) < MIN_POSES:
        raise MapError(
            f"a map of {len(training_map)} poses is too small to be checked; {MIN_POSES} are needed"
        )
    for drive in drives:
        if not isinstance(drive, DescribedDrive) and drive.poses is None:
            raise DatasetError(f"{drive.path}: has no known poses to check the map against")
    training_map = without_thumbnails(training_map)
    names = [source.name for source in training_map.sources]
    max_count = max(1, MAX_FRAMES // len(drives or names))
    checked: list[tuple[int | None, DescribedDrive, tuple[Rows, ...]]] = []
    if drives:
        describer = training_map.image_describer
        for drive in drives:
            described, windows = _sampled(drive, describer, max_count, progress)
            number = names.index(drive.name) if drive.name in names else None
            checked.append((number, described, windows))
    else:
        rng = np.random.default_rng(seed)
        for number in range(len(names)):
            replayed = _drive_of_map(training_map, number, rng)
            checked.append((number, replayed, _windows(len(replayed), max_count)))
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
    drive: Drive | DescribedDrive, describer: ImageDescriber, max_count: int, progress: Progress
) -> tuple[DescribedDrive, tuple[Rows, ...]]:
    """Describe the drive's images of known pose, of many only windows; return these too."""
    poses = drive.truth if isinstance(drive, DescribedDrive) else drive.poses
    assert poses is not None
    known = np.flatnonzero(np.isfinite(poses).all(axis=1))
    windows = [known[rows] for rows in _windows(len(known), max_count)]
    rows = np.concatenate(windows) if windows else known
    if isinstance(drive, DescribedDrive):
        described = drive.part(rows)
    else:
        described = describe_drive(drive, describer, progress, rows)
    ends = np.cumsum([len(window) for window in windows])
    return described, tuple(np.arange(end - len(window), end) for window, end in zip(windows, ends))


def _windows(count: int, max_count: int) -> tuple[Rows, ...]:
    """Return rows of all `count` frames, or of windows spread over them beyond `max_count`."""
    if count <= max_count:
        return (np.arange(count),) if count else ()
    # So far apart that no frame is in two of them.
    number = max(1, max_count // WINDOW)
    starts = np.linspace(0, count - min(WINDOW, max_count), number).astype(np.intp)
    return tuple(start + np.arange(min(WINDOW, max_count)) for start in starts)


def _comes_by(training_map: TrainingMap, number: int, drive: DescribedDrive) -> bool:
    """Return whether the map's other drives cover some of the path of its drive `number`."""
    if len(drive) == 0:
        return False
    by_others = covers(training_map, _truth(drive), training_map.source_of != number)
    return bool(by_others.mean() >= MIN_OVERLAP)


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
    """Return the poses that one source gave to the map, in their order, as a drive."""
    rows = np.flatnonzero(training_map.source_of == number)
    source, poses = training_map.sources[number], training_map.poses[rows]
    motions = relative(poses[:-1], poses[1:])
    noise = training_map.calibration.motion_noise
    odometry, stamps = [np.zeros(3)], [0]
    for motion in motions:
        distance, turn = float(np.hypot(motion[0], motion[1])), abs(float(motion[2]))
        error = rng.normal(size=3) * np.sqrt(noise.variances(distance, turn))
        odometry.append(compose(odometry[-1], motion + error))
        seconds = max(distance / METRES_PER_SECOND, turn / RADIANS_PER_SECOND, MIN_STEP_S)
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


def length_m(poses: Array) -> float:
    """Return the length of a path through poses (t, 3)."""
    return float(np.hypot(*np.diff(poses[:, :2], axis=0).T).sum()) if len(poses) > 1 else 0.0


def scale_m(training_map: TrainingMap) -> float:
    """Return d₀, the distance beyond which two images no longer look alike."""
    return training_map.calibration.similarity.distance_m


@dataclass(frozen=True)
class FirstFix:
    """A start at a random place: the images, metres and seconds until "tracking", and if rightly.

    `images` is None where it never came to that.
    """

    images: int | None
    metres: float
    seconds: float
    right: bool


def first_fixes(
    fold: Fold, starts: int, rng: np.random.Generator, progress: Progress = no_progress
) -> Iterator[FirstFix]:
    """Yield fixes from random starts where the map covers the drive."""
    covered = np.flatnonzero(covers(fold.training_map, fold.truth[:-1]))
    if len(covered) == 0:
        return
    localizer = Localizer(fold.training_map)
    for start in tracked(rng.choice(covered, starts), "starting at random places", progress):
        yield fix_from(fold.drive, localizer, int(start))


def fix_from(
    drive: DescribedDrive, localizer: Localizer, start: int, max_images: int = MAX_IMAGES
) -> FirstFix:
    """Return the first fix of a localizer that knows nothing at image `start` of the drive."""
    localizer.reset()
    part = drive.excerpt(slice(start, start + max_images))
    assert part.truth is not None
    images, right = None, False
    for number, fix, _, _ in localize_drive(part, localizer):
        if fix is not None and fix.state is State.TRACKING:
            error = float(np.hypot(*(fix.pose[:2] - part.truth[number, :2])))
            images, right = number + 1, error <= GROSS_ERROR_M
            break
    path, stamps = part.truth[:images], part.stamps_ns[:images]
    return FirstFix(images, length_m(path), float(stamps[-1] - stamps[0]) * 1e-9, right)


@dataclass(frozen=True)
class LookAlike:
    """The pose `a` (3,) of an image that fits better at the map's pose `b` (3,), far away.

    `images_to_tell_apart` counts images along the path; None: more than could be tried.
    """

    a: Array
    b: Array
    images_to_tell_apart: int | None

    @property
    def order(self) -> int:
        return MAX_IMAGES + 1 if self.images_to_tell_apart is None else self.images_to_tell_apart


def look_alikes(fold: Fold, samples: int, progress: Progress = no_progress) -> Iterator[LookAlike]:
    """Yield images spread over the fold's drive that fit a place far away better than their own."""
    drive, held = fold.drive, fold.training_map
    pair = _Pair(held)
    far = MIN_APART * scale_m(held)
    frames = np.linspace(0, len(drive) - 1, min(samples, len(drive))).astype(int)
    for frame in tracked(frames, "looking for look-alike places", progress):
        description, truth = drive.descriptions[frame], fold.truth[frame]
        if description is None:
            continue
        observation = held.observe(description)
        best = observation.best_rows(BEST_MATCHES)
        away = best[np.hypot(*(held.poses[best, :2] - truth[:2]).T) > far]
        if len(away) == 0:
            continue
        here = pair.posterior(observation, truth)
        there = pair.posterior(observation, held.poses[away[0]])
        if here.coverage < MIN_COVERAGE or pair.ratio(there) <= pair.ratio(here):
            continue
        yield LookAlike(truth, held.poses[away[0]], pair.images(fold, int(frame), int(away[0])))


class _Pair:
    """Evidence for two places from the same images, as the filter weighs it."""

    def __init__(self, training_map: TrainingMap) -> None:
        self._map, self._calibration = training_map, training_map.calibration
        similarity = self._calibration.similarity
        self._kernel = LocalKernelBayes(
            training_map,
            similarity,
            parameters_of(BeliefParameters, "kbf", training_map.parameters),
        )
        self._covariance = np.diag((JITTER * similarity.scales) ** 2)

    def posterior(self, observation: MapObservation, pose: Array) -> LocalPosterior:
        return self._kernel.posterior(
            observation, pose, self._covariance, self._calibration.relative_pose
        )

    def ratio(self, view: LocalPosterior) -> float:
        return view.log_ratio(self._calibration.likelihood_ratio)

    def images(self, fold: Fold, start: int, row: int) -> int | None:
        """Count images from `start` until their evidence for the right place is ahead by enough."""
        drive, evidence = fold.drive, self._calibration.likelihood_ratio
        origin, elsewhere = fold.truth[start], self._map.poses[row]
        ahead, last = 0.0, origin
        for used, frame in enumerate(range(start, min(start + MAX_IMAGES, len(drive))), start=1):
            pose, description = fold.truth[frame], drive.descriptions[frame]
            if description is None:
                continue
            step = relative(last, pose)
            travel = self._calibration.similarity.scaled_distance(
                float(np.hypot(step[0], step[1])), abs(float(step[2]))
            )
            new = 1.0 if frame == start else evidence.information_fraction(travel)
            observation = self._map.observe(description)
            wrong = compose(elsewhere, relative(origin, pose))
            right_ratio = self.ratio(self.posterior(observation, pose))
            ahead += new * (right_ratio - self.ratio(self.posterior(observation, wrong)))
            last = pose
            if ahead >= NEEDED_EVIDENCE:
                return used
        return None


def distinct(found: list[LookAlike], training_map: TrainingMap, max_count: int) -> list[LookAlike]:
    """Return each pair of places once, those that take the most images first."""
    reach = MIN_APART * scale_m(training_map)
    kept: list[LookAlike] = []
    for pair in sorted(found, key=lambda pair: -pair.order):
        same = any(
            max(_apart(pair.a, other.a), _apart(pair.b, other.b)) < reach
            or max(_apart(pair.a, other.b), _apart(pair.b, other.a)) < reach
            for other in kept
        )
        if not same:
            kept.append(pair)
    return kept[:max_count]


def _apart(a: Array, b: Array) -> float:
    return float(np.hypot(*(a[:2] - b[:2])))
