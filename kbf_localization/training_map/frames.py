"""The poses that drives know, and the odometry's motion between their frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import MapError
from kbf_localization.geometry import interpolate, relative
from kbf_localization.motion.odometry_model import noise_between

Array = NDArray[np.float64]

LONGEST_STEP_NS = 1_000_000_000
"""A longer pause between two images is a gap in the drive, not a step of it."""


@dataclass(frozen=True)
class Frames:
    """All frames with known poses of all drives, one after the other.

    `drive_of` (t,) and `index_of` (t,) say whose and which image; `poses`, `next_poses` and
    `motions` (t, 3) as in the map.
    """

    drive_of: NDArray[np.intp]
    index_of: NDArray[np.intp]
    poses: Array
    next_poses: Array
    motions: Array

    def motion_variances(self) -> Array:
        """Maximum-likelihood noise (4,) of one frame's motion over all drives."""
        return noise_between(self.poses, self.motions, self.next_poses)


def gather_frames(drives: Sequence[Drive]) -> Frames:
    """The frames of drives; one that knows no poses cannot give a map."""
    parts = []
    for number, drive in enumerate(drives):
        poses = drive.poses
        if poses is None:
            raise MapError(
                f"{drive.path}: has no known poses, so it cannot give a map; name its pose topic"
            )
        following, motions = _steps(drive, poses)
        known = np.flatnonzero(np.isfinite(poses).all(axis=1))
        if len(known) == 0:
            raise MapError(f"{drive.path}: none of its {len(poses)} images has a known pose")
        parts.append(
            (np.full(len(known), number), known, poses[known], following[known], motions[known])
        )
    if not parts:
        raise MapError("a map needs at least one drive")
    frames = Frames(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if not np.isfinite(np.hstack((frames.next_poses, frames.motions))).all(axis=1).any():
        raise MapError(
            f"{drives[0].path}: no two images within a second have known poses, so the motion's "
            "noise cannot be learned"
        )
    return frames


def _steps(drive: Drive, poses: Array) -> tuple[Array, Array]:
    """Next poses and motions (t, 3), NaN at the end and at gaps of images or odometry."""
    stamps, odometry = drive.stamps_ns, drive.odometry
    at_images = interpolate(odometry.stamps_ns, odometry.poses, stamps)
    covered = (stamps >= odometry.stamps_ns[0]) & (stamps <= odometry.stamps_ns[-1])
    following, motions = np.full_like(poses, np.nan), np.full_like(poses, np.nan)
    usable = covered[:-1] & covered[1:] & (np.diff(stamps) <= LONGEST_STEP_NS)
    usable &= np.isfinite(poses[:-1]).all(axis=1) & np.isfinite(poses[1:]).all(axis=1)
    steps = np.flatnonzero(usable)
    following[steps] = poses[steps + 1]
    motions[steps] = relative(at_images[steps], at_images[steps + 1])
    return following, motions
