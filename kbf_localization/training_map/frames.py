"""The poses that drives know, and the odometry's motion between their frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.drive import Drive, check_drive
from kbf_localization.errors import MapError
from kbf_localization.geometry import interpolate, relative
from kbf_localization.training_map.probes import ways_of

LONGEST_STEP_NS, LONGEST_STEPS = 1_000_000_000, 3
"""A pause of more than a second, and of three usual steps, is a gap in the drive, not a step."""

WAY_STEP_M, WAY_STEP_RAD = 0.2, 0.2
"""Between two poses of the way that a map keeps of each drive."""


@dataclass(frozen=True)
class Frames:
    """All frames with known poses of the `drives`, one after the other.

    `drive_of` (t,) and `index_of` (t,) say whose and which image; `poses`, `next_poses` and
    `motions` (t, 3) as in the map; `odometry` (t, 3) is the odometry's pose at each image.
    """

    drives: Sequence[Drive]
    drive_of: Rows
    index_of: Rows
    poses: Array
    next_poses: Array
    motions: Array
    odometry: Array

    @cached_property
    def ways(self) -> Array:
        """How far its drive had come at each frame, (t, 2), in metres and radians."""
        return ways_of(self.poses, self.drive_of)

    def part(self, rows: Rows) -> Frames:
        """These frames (increasing) alone, with a gap in their drive where some are left out."""
        numbers = np.unique(self.drive_of[rows])
        part = Frames(
            drives=[self.drives[int(number)] for number in numbers],
            drive_of=np.searchsorted(numbers, self.drive_of[rows]),
            index_of=self.index_of[rows],
            poses=self.poses[rows],
            next_poses=self.next_poses[rows],
            motions=self.motions[rows],
            odometry=self.odometry[rows],
        )
        gaps = np.flatnonzero(np.diff(rows) > 1)
        part.motions[gaps] = part.next_poses[gaps] = np.nan
        return part

    def way(self, drive: int) -> Array:
        """Where a drive went, (m, 3): its poses, thinned, from the first to the last."""
        own = self.drive_of == drive
        poses = self.poses[own]
        steps = (self.ways[own] / (WAY_STEP_M, WAY_STEP_RAD)).sum(axis=1)
        _, first = np.unique(np.floor(steps), return_index=True)
        return np.asarray(poses[np.union1d(first, len(poses) - 1)])

    def unbroken(self) -> Iterator[Rows]:
        """Rows of stretches without a gap, of one drive each."""
        joined = np.isfinite(self.motions).all(axis=1)
        ends = np.flatnonzero(~joined) + 1
        for stretch in np.split(np.arange(len(self.poses)), ends):
            if len(stretch) > 1:
                yield stretch


def gather_frames(drives: Sequence[Drive]) -> Frames:
    """The frames of drives; one that knows no poses cannot give a map."""
    parts = []
    for number, drive in enumerate(drives):
        poses = drive.poses
        if poses is None:
            raise MapError(
                f"{drive.path}: has no known poses, so it cannot give a map; name its pose topic"
            )
        check_drive(drive)
        following, motions, odometry = _steps(drive, poses)
        known = np.flatnonzero(np.isfinite(poses).all(axis=1))
        if len(known) == 0:
            raise MapError(f"{drive.path}: none of its {len(poses)} images has a known pose")
        parts.append(
            (
                np.full(len(known), number),
                known,
                poses[known],
                following[known],
                motions[known],
                odometry[known],
            )
        )
    if not parts:
        raise MapError("a map needs at least one drive")
    frames = Frames(drives, *(np.concatenate(column) for column in zip(*parts, strict=True)))
    if not np.isfinite(np.hstack((frames.next_poses, frames.motions))).all(axis=1).any():
        raise MapError(
            f"{drives[0].path}: no two consecutive images have known poses and odometry, so the "
            "motion's noise cannot be learned"
        )
    return frames


def _steps(drive: Drive, poses: Array) -> tuple[Array, Array, Array]:
    """Next poses and motions (t, 3), NaN at the end and at gaps; the odometry at the images."""
    stamps, odometry = drive.stamps_ns, drive.odometry
    at_images = interpolate(odometry.stamps_ns, odometry.poses, stamps)
    covered = (stamps >= odometry.stamps_ns[0]) & (stamps <= odometry.stamps_ns[-1])
    following, motions = np.full_like(poses, np.nan), np.full_like(poses, np.nan)
    pauses = np.diff(stamps)
    longest = max(LONGEST_STEP_NS, LONGEST_STEPS * float(np.median(pauses))) if len(pauses) else 0
    usable = covered[:-1] & covered[1:] & (pauses <= longest)
    usable &= np.isfinite(poses[:-1]).all(axis=1) & np.isfinite(poses[1:]).all(axis=1)
    steps = np.flatnonzero(usable)
    following[steps] = poses[steps + 1]
    motions[steps] = relative(at_images[steps], at_images[steps + 1])
    return following, motions, at_images
