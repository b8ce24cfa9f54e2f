"""What can go wrong on a drive: pictures, odometry, the map, the place. Each fault makes cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np

from kbf_localization.arrays import Array, Flags, Image
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import FramePool, covered_share, share_near
from kbf_localization.experiments.faults_pictures import (
    covered,
    crowd,
    dimmed,
    in_the_dark,
    mirrored,
    upside_down,
)
from kbf_localization.experiments.recovery_trials import covered_by, joined, kidnappings
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.training_map.build import build_map
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescription

BEGIN_S = 30.0
"""When a fault that passes begins."""

LATE_S = 0.5
SCALE = 1.3
OFF_THE_MAP_S, OFF_THE_MAP = 35.0, 0.05
"""How long the drive is off the map: views with more than this share of the resemblance to one of
that stretch are not in the map."""

FEWEST_POSES = 50
UNCOVERED = 0.2
"""Expected share of the resemblance below which the robot is still off the map."""

KIDNAPPED_BEFORE, KIDNAPPED_AFTER, KIDNAPPED_AT_LEAST = 60, 150, 60
"""Images before and after the robot is carried away, fewer where its drive ends; on the map, it is
at least so many after."""

Disturbance = Callable[[Image, float, np.random.Generator], Image]
"""An image and the seconds since the fault began, to the image that the camera gives instead."""


@dataclass(frozen=True)
class Case:
    """A drive under a fault. `disturbed` (t,) says when; all True for a fault that never ends.

    On another building's map there is no right pose: `no_pose_is_right`.
    """

    drive: DescribedDrive
    training_map: TrainingMap
    disturbed: Flags
    no_pose_is_right: bool = False


@dataclass(frozen=True)
class Building:
    """A building with its map, test drives (described too), and further drives by their fault."""

    name: str
    pool: FramePool
    poses: int
    seed: int
    training_map: TrainingMap
    tests: tuple[Drive, ...]
    described: tuple[DescribedDrive, ...]
    further: Mapping[str, tuple[Drive, ...]]


Fault = Callable[[Building, Building], Iterator[Case]]
"""The cases of one fault in a building, beside which stands another one."""


def seconds_of(drive: DescribedDrive) -> Array:
    """(t,) seconds since the first image."""
    return np.asarray((drive.stamps_ns - drive.stamps_ns[0]) * 1e-9)


def _always(drive: DescribedDrive) -> Flags:
    return np.ones(len(drive), dtype=bool)


def _span(drive: DescribedDrive, seconds: float) -> Flags:
    """From `BEGIN_S` on for so many seconds; always for infinitely many."""
    if np.isinf(seconds):
        return _always(drive)
    clock = seconds_of(drive)
    return np.asarray((clock >= BEGIN_S) & (clock < BEGIN_S + seconds))


# Pictures


def pictures(disturb: Disturbance, seconds: float, here: Building, _: Building) -> Iterator[Case]:
    """Pictures disturbed for so many seconds, before they are described."""
    for number, (drive, described) in enumerate(zip(here.tests, here.described, strict=True)):
        disturbed = _span(described, seconds)
        rows = np.flatnonzero(disturbed).tolist()
        clock = seconds_of(described) - seconds_of(described)[rows[0]]
        rng = np.random.default_rng((here.seed, number))
        describer = here.training_map.described_by
        seen: dict[int, ImageDescription | None] = {}
        for row, image in drive.images(rows):
            if image is not None:
                image = disturb(image, float(clock[row]), rng)
            seen[row] = None if image is None else describer.describe(image)
        yield Case(_seeing(described, seen), here.training_map, disturbed)


def _seeing(drive: DescribedDrive, seen: Mapping[int, ImageDescription | None]) -> DescribedDrive:
    """The drive with other descriptions of some of its images."""
    descriptions = dict(enumerate(drive.descriptions)) | dict(seen)
    return replace(drive, descriptions=tuple(descriptions.values()))


def frozen(seconds: float, here: Building, _: Building) -> Iterator[Case]:
    """The camera repeats one picture."""
    for drive in here.described:
        disturbed = _span(drive, seconds)
        rows = np.flatnonzero(disturbed).tolist()
        seen = dict.fromkeys(rows, drive.descriptions[rows[0]])
        yield Case(_seeing(drive, seen), here.training_map, disturbed)


def late(seconds: float, here: Building, _: Building) -> Iterator[Case]:
    """Pictures bear the stamp of a moment so many seconds after they were taken."""
    for drive in here.described:
        assert drive.truth is not None
        stamps = drive.stamps_ns + round(seconds * 1e9)
        known = stamps <= drive.stamps_ns[-1]
        truth = interpolate(drive.stamps_ns, drive.truth, stamps[known])
        late_drive = replace(drive.part(known), stamps_ns=stamps[known], truth=truth)
        yield Case(late_drive, here.training_map, _always(late_drive))


# Odometry


def odometry(
    factors: Sequence[float], seconds: float, here: Building, _: Building
) -> Iterator[Case]:
    """The readings' increments (x, y, heading) times `factors` for so many seconds."""
    for drive in here.described:
        disturbed = _span(drive, seconds)
        inside = drive.stamps_ns[disturbed]
        stamps, poses = drive.odometry.stamps_ns, drive.odometry.poses
        steps = relative(poses[:-1], poses[1:])
        faulty = (stamps[1:] > inside[0]) & (stamps[1:] <= inside[-1])
        if disturbed.all():
            faulty[:] = True
        steps[faulty] *= factors
        log = OdometryLog(stamps, np.array([*accumulate(steps, compose, initial=poses[0])]))
        yield Case(replace(drive, odometry=log), here.training_map, disturbed)


# The map and the place


def undisturbed(here: Building, _: Building) -> Iterator[Case]:
    """Nothing is wrong."""
    for one in here.described:
        yield Case(one, here.training_map, _always(one))


def other_drives(which: str, here: Building, _: Building) -> Iterator[Case]:
    """Further drives, such as those by night, on the map as it is."""
    for one in here.further[which]:
        described = describe_drive(one, here.training_map.described_by)
        yield Case(described, here.training_map, _always(described))


def wrong_map(here: Building, there: Building) -> Iterator[Case]:
    """Another building's map, with its own words."""
    for one in here.tests:
        described = describe_drive(one, there.training_map.described_by)
        yield Case(described, there.training_map, _always(described), no_pose_is_right=True)


def wrong_map_same_words(here: Building, there: Building) -> Iterator[Case]:
    """Another building's map, built like this building's."""
    drives, like = there.pool.frames.drives, here.training_map
    wrong = build_map(drives, poses=there.poses, seed=there.seed, like=like)
    for one in here.described:
        yield Case(one, wrong, _always(one), no_pose_is_right=True)


def off_the_map(begin_s: float, here: Building, _: Building) -> Iterator[Case]:
    """The map has no view like those of a stretch of the drive.

    A drive of whose building that leaves nearly nothing is left out; the table counts the runs.
    """
    resemblance = here.training_map.learned.resemblance
    for drive in here.described:
        assert drive.truth is not None
        clock = seconds_of(drive)
        stretch = (clock >= begin_s) & (clock < begin_s + OFF_THE_MAP_S)
        shares = share_near(resemblance, drive.truth[stretch], here.pool.frames.poses)
        away = np.flatnonzero(shares < OFF_THE_MAP)
        if len(away) < FEWEST_POSES:
            continue
        rest = here.pool.map_of(away, here.poses, "coverage", here.seed)
        uncovered = covered_share(rest, drive.truth) < UNCOVERED
        last = int(np.flatnonzero(stretch)[-1])
        while last + 1 < len(drive) and uncovered[last + 1]:
            last += 1
        stretch[: last + 1] |= clock[: last + 1] >= begin_s
        yield Case(drive, rest, stretch)


def kidnapped(times: int, here: Building, _: Building) -> Iterator[Case]:
    """Carried elsewhere on the map with the wheels at rest, so many times in each building."""
    drives = here.described
    for before, after in kidnappings(
        drives,
        times,
        here.seed,
        before=KIDNAPPED_BEFORE,
        after=KIDNAPPED_AT_LEAST,
        covered=covered_by(here.training_map, drives),
    ):
        count = min(KIDNAPPED_AFTER, len(drives[after.drive]) - after.first)
        drive = joined(drives, (before, replace(after, count=count)))
        disturbed = np.arange(len(drive)) == KIDNAPPED_BEFORE
        yield Case(drive, here.training_map, disturbed)


def all_faults(kidnappings_each: int) -> Mapping[str, Fault]:
    """The faults by name; the robot is kidnapped so many times in each building."""
    forever = float("inf")
    return {
        "undisturbed": undisturbed,
        "covered": partial(pictures, covered, 20.0),
        "lights_out": partial(pictures, in_the_dark, 30.0),
        "dim": partial(pictures, dimmed, 30.0),
        "frozen_picture": partial(frozen, 30.0),
        "late_pictures": partial(late, LATE_S),
        "mirrored": partial(pictures, mirrored, forever),
        "upside_down": partial(pictures, upside_down, forever),
        "turned_20_degrees": partial(other_drives, "turned_20_degrees"),
        "wrong_map": wrong_map,
        "wrong_map_same_words": wrong_map_same_words,
        "off_the_map": partial(off_the_map, BEGIN_S),
        "crowd_50": partial(pictures, partial(crowd, 0.5), 30.0),
        "crowd_70": partial(pictures, partial(crowd, 0.7), 30.0),
        "odometry_frozen": partial(odometry, (0.0, 0.0, 0.0), 30.0),
        "odometry_scaled": partial(odometry, (SCALE, SCALE, 1.0), forever),
        "odometry_heading_inverted": partial(odometry, (1.0, 1.0, -1.0), forever),
        "odometry_backwards": partial(odometry, (-1.0, -1.0, 1.0), forever),
        "kidnapped": partial(kidnapped, kidnappings_each),
        "night": partial(other_drives, "night"),
        "start_off_the_map": partial(off_the_map, 0.0),
    }
