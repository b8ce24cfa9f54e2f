"""The frames of drives: poses, motions between frames, and the choice of a map's poses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.drive import Drive, attitudes_of, check_drive
from kbf_localization.errors import MapError
from kbf_localization.geometry import embed, interpolate, relative
from kbf_localization.limits import MAX_MAP_EXTENT_M
from kbf_localization.mapping.held_out import path_lengths_of

MAX_STEP_NS, MAX_STEP_MEDIANS = 1_000_000_000, 3
"""A pause longer than a second and than three median steps is a gap in the drive."""

TRAJECTORY_STEP_M, TRAJECTORY_STEP_RAD = 0.2, 0.2
"""Between two poses of the trajectory that a map keeps of each drive."""


@dataclass(frozen=True)
class Frames:
    """Hold all frames with known poses of the `drives`, drive after drive.

    `drive_of` (t,) is a frame's drive, `index_of` (t,) its image there; `poses`, `next_poses` and
    `motions` (t, 3) as in the map; `odometry` (t, 3) is the odometry's pose at each image.
    `attitudes` (t, 3) are height, pitch and roll of `attitudes_of`, None where a drive has none.
    """

    drives: Sequence[Drive]
    drive_of: Rows
    index_of: Rows
    poses: Array
    next_poses: Array
    motions: Array
    odometry: Array
    attitudes: Array | None = None

    @cached_property
    def path_lengths(self) -> Array:
        """Return the path length of its drive up to each frame, (t, 2), in metres and radians."""
        return path_lengths_of(self.poses, self.drive_of)

    def part(self, rows: Rows) -> Frames:
        """Return these frames (increasing), with a gap in the drive where some are left out."""
        numbers = np.unique(self.drive_of[rows])
        part = Frames(
            drives=[self.drives[int(number)] for number in numbers],
            drive_of=np.searchsorted(numbers, self.drive_of[rows]),
            index_of=self.index_of[rows],
            poses=self.poses[rows],
            next_poses=self.next_poses[rows],
            motions=self.motions[rows],
            odometry=self.odometry[rows],
            attitudes=None if self.attitudes is None else self.attitudes[rows],
        )
        gaps = np.flatnonzero(np.diff(rows) > 1)
        part.motions[gaps] = part.next_poses[gaps] = np.nan
        return part

    def trajectory(self, drive: int) -> Array:
        """Return a drive's poses (m, 3), thinned, from the first to the last."""
        own = self.drive_of == drive
        poses = self.poses[own]
        steps = (self.path_lengths[own] / (TRAJECTORY_STEP_M, TRAJECTORY_STEP_RAD)).sum(axis=1)
        _, first = np.unique(np.floor(steps), return_index=True)
        return np.asarray(poses[np.union1d(first, len(poses) - 1)])

    def unbroken(self) -> Iterator[Rows]:
        """Yield the rows of segments without a gap, each of a single drive."""
        joined = np.isfinite(self.motions).all(axis=1)
        ends = np.flatnonzero(~joined) + 1
        for segment in np.split(np.arange(len(self.poses)), ends):
            if len(segment) > 1:
                yield segment


def gather_frames(drives: Sequence[Drive]) -> Frames:
    """Return the frames of drives; MapError for a drive without known poses."""
    parts = []
    for number, drive in enumerate(drives):
        poses = drive.poses
        if poses is None:
            raise MapError(
                f"{drive.path}: has no known poses, so it cannot give a map; name its pose topic, "
                "or estimate them: --poses-from odometry"
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
    check_extent(frames.poses)
    frames = replace(frames, attitudes=_attitudes(drives, [part[1] for part in parts]))
    if not np.isfinite(np.hstack((frames.next_poses, frames.motions))).all(axis=1).any():
        raise MapError(
            f"{drives[0].path}: no two consecutive images have known poses and odometry, so the "
            "motion's noise cannot be learned"
        )
    return frames


def check_extent(poses: Array) -> None:
    """Raise a MapError for poses that cannot be in one frame."""
    extent = float(np.max(np.ptp(poses[:, :2], axis=0)))
    if extent > MAX_MAP_EXTENT_M:
        raise MapError(
            f"its poses would be {extent / 1e3:.0f} km apart: the drives are in different frames; "
            "bring them into one first, maps with 'kbf map align'"
        )


def _attitudes(drives: Sequence[Drive], known: Sequence[Rows]) -> Array | None:
    """Return height, pitch and roll (t, 3) of the frames `known` of each drive.

    Heights are relative to their median: a map's landmarks are near zero wherever its world's
    zero is.
    """
    given = [attitudes_of(drive) for drive in drives]
    parts = [part[rows] for part, rows in zip(given, known, strict=True) if part is not None]
    if len(parts) < len(drives):
        return None
    attitudes = np.concatenate(parts)
    attitudes[:, 0] -= np.median(attitudes[:, 0])
    return attitudes if np.isfinite(attitudes).all() else None


def _steps(drive: Drive, poses: Array) -> tuple[Array, Array, Array]:
    """Return next poses and motions, NaN at the end and at gaps, and odometry; (t, 3) each."""
    stamps, odometry = drive.stamps_ns, drive.odometry
    at_images = interpolate(odometry.stamps_ns, odometry.poses, stamps)
    covered = (stamps >= odometry.stamps_ns[0]) & (stamps <= odometry.stamps_ns[-1])
    following, motions = np.full_like(poses, np.nan), np.full_like(poses, np.nan)
    pauses = np.diff(stamps)
    longest = max(MAX_STEP_NS, MAX_STEP_MEDIANS * float(np.median(pauses))) if len(pauses) else 0
    usable = covered[:-1] & covered[1:] & (pauses <= longest)
    usable &= np.isfinite(poses[:-1]).all(axis=1) & np.isfinite(poses[1:]).all(axis=1)
    steps = np.flatnonzero(usable)
    following[steps] = poses[steps + 1]
    motions[steps] = relative(at_images[steps], at_images[steps + 1])
    return following, motions, at_images


SELECTIONS = ("coverage", "random")

ENOUGH_POSES = 200
"""Of a small place: with landmarks more bring little."""
LANDMARK_SPACING = 0.2
"""Metres, or radians, between the poses of a map with landmarks, which bridge twice as much."""
METRES_PER_RADIAN = 1.0
"""Distance that counts as much as a turn by a radian when frames are spread."""


def select_frames(poses: Array, count: int, select: str, seed: int, spacing: float = 0.0) -> Rows:
    """Choose at most `count` of poses (t, 3) by one of `SELECTIONS`; return increasing indices.

    By coverage, once there are `ENOUGH_POSES`, as few as leave no pose farther than `spacing` from
    a chosen one.
    """
    if select == "coverage":
        return cover(poses, count, seed, spacing)
    size = min(count, len(poses))
    return np.sort(np.random.default_rng(seed).choice(len(poses), size, replace=False))


def cover(poses: Array, count: int, seed: int, spacing: float = 0.0) -> Rows:
    """Choose poses by farthest-point sampling; return increasing indices.

    It ends with `count` poses, with `ENOUGH_POSES` or more that leave none farther than `spacing`,
    or when only repetitions are left: a robot that stands still for minutes contributes
    a single pose.
    """
    points = embed(poses) * np.array([1.0, 1.0, METRES_PER_RADIAN, METRES_PER_RADIAN])
    chosen: list[int] = []
    distances = np.full(len(points), np.inf)
    candidate = int(np.random.default_rng(seed).integers(len(points)))
    while len(chosen) < min(count, len(points)) and distances[candidate] > 0.0:
        if len(chosen) >= ENOUGH_POSES and distances[candidate] <= spacing**2:
            break
        chosen.append(candidate)
        difference = points - points[candidate]
        np.minimum(distances, np.einsum("ij,ij->i", difference, difference), out=distances)
        candidate = int(distances.argmax())
    return np.sort(np.array(chosen, dtype=np.intp))
