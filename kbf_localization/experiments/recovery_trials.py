"""Pieces of test drives as trials: global starts, kidnappings, whole drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import covered_share
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.training_map import TrainingMap

CARRIED_AT_LEAST_M = 3.0
MOST_DRAWS = 100_000
COVERED = 0.3
"""Expected share of the resemblance from which on the map counts as knowing a place."""


@dataclass(frozen=True)
class Piece:
    """`count` consecutive images of the test drive with this number, from `first` on."""

    drive: int
    first: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.count)


Trial = tuple[Piece, ...]
"""Pieces that are driven one after the other, as if the robot were carried between them."""

Covered = Sequence[Flags]
"""For each test drive (t,), where the map covers it."""


def covered_by(training_map: TrainingMap, drives: Sequence[DescribedDrive]) -> Covered:
    truths = (drive.truth for drive in drives if drive.truth is not None)
    return [covered_share(training_map, truth) >= COVERED for truth in truths]


def joined(drives: Sequence[DescribedDrive], trial: Trial) -> DescribedDrive:
    """The pieces of a trial as one drive, whose odometry feels no motion at the seams."""
    parts = [drives[piece.drive].part(piece.rows) for piece in trial]
    stamps, readings = [parts[0].stamps_ns], [_odometry_at_images(parts[0])]
    for part in parts[1:]:
        pause = int(np.median(np.diff(part.stamps_ns)))
        stamps.append(part.stamps_ns - part.stamps_ns[0] + stamps[-1][-1] + pause)
        own = _odometry_at_images(part)
        readings.append(compose(readings[-1][-1], relative(own[0], own)))
    truth = [part.truth for part in parts if part.truth is not None]
    all_stamps = np.concatenate(stamps)
    return DescribedDrive(
        name=parts[0].name,
        condition=parts[0].condition,
        stamps_ns=all_stamps,
        truth=np.concatenate(truth) if len(truth) == len(parts) else None,
        odometry=OdometryLog(all_stamps, np.concatenate(readings)),
        descriptions=tuple(one for part in parts for one in part.descriptions),
        describe_ms=np.concatenate([part.describe_ms for part in parts]),
    )


def _odometry_at_images(drive: DescribedDrive) -> Array:
    return interpolate(drive.odometry.stamps_ns, drive.odometry.poses, drive.stamps_ns)


def global_starts(
    drives: Sequence[DescribedDrive], covered: Covered, count: int, images: int, seed: int
) -> list[Trial]:
    """Starts at random times with no hint of the place, `images` long, where the map covers all."""
    rng = np.random.default_rng((seed, 1))

    def start(number: int) -> Trial | None:
        piece = Piece(number, int(rng.integers(max(len(drives[number]) - images, 1))), images)
        known = len(drives[number]) >= images and covered[number][piece.rows].all()
        return (piece,) if known else None

    none = f"the map covers no {images} consecutive images of the test drives"
    return _drawn(start, len(drives), count, rng, none)


def kidnappings(
    drives: Sequence[DescribedDrive],
    count: int,
    seed: int,
    *,
    before: int,
    after: int,
    covered: Covered,
) -> list[Trial]:
    """Drives that go on elsewhere, as if the robot had been carried there with wheels at rest."""
    rng = np.random.default_rng((seed, 2))

    def kidnapping(number: int) -> Trial | None:
        drive = drives[number]
        if drive.truth is None or len(drive) <= max(before, after):
            return None
        first = Piece(number, int(rng.integers(len(drive) - before)), before)
        then = Piece(number, int(rng.integers(len(drive) - after)), after)
        here = drive.truth[first.first + before - 1, :2]
        carried_m = float(np.hypot(*(drive.truth[then.first, :2] - here)))
        known = covered[number][first.rows].all() and covered[number][then.rows].all()
        return (first, then) if known and carried_m >= CARRIED_AT_LEAST_M else None

    none = f"no two pieces of the test drives are {CARRIED_AT_LEAST_M} m apart and covered"
    return _drawn(kidnapping, len(drives), count, rng, none)


def _drawn(
    draw: Callable[[int], Trial | None],
    drives: int,
    count: int,
    rng: np.random.Generator,
    none: str,
) -> list[Trial]:
    """So many trials, each drawn on a random drive; an error, `none`, where there are too few."""
    trials: list[Trial] = []
    for _ in range(MOST_DRAWS):
        if len(trials) == count:
            return trials
        trial = draw(int(rng.integers(drives)))
        if trial is not None:
            trials.append(trial)
    raise KbfError(none)


def whole_drives(drives: Sequence[DescribedDrive]) -> list[Trial]:
    """Each drive from its beginning to its end, undisturbed."""
    return [(Piece(number, 0, len(drive)),) for number, drive in enumerate(drives)]
