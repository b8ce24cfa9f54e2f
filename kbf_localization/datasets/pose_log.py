"""Poses with stamps as they come out of a bag, and what they say about other moments."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.geometry import compose, interpolate, relative, wrap_angle

if TYPE_CHECKING:
    from kbf_localization.datasets.bag_messages import PlanarPose

LONGEST_GAP_NS = 1_000_000_000
FARTHEST_GAP_M = 0.5
END_TOLERANCE_NS = 100_000_000
SHORT_GAP_NS = 100_000_000
"""Between poses nearer than this, the way need not be asked for."""
FARTHEST_CARRY_M = 3.0
"""So far (a radian counts as a metre) the odometry may carry a pose to the next."""


class PoseLog:
    """Poses in the order of their stamps, 32 bytes each; what comes late or twice is refused."""

    def __init__(self) -> None:
        self.refused = 0
        self._stamps = array("q")
        self._poses = array("d")

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp_ns: int, pose: PlanarPose | None) -> bool:
        """Take the pose, or refuse it and return False."""
        newest = self._stamps[-1] if self._stamps else 0
        if pose is None or stamp_ns <= newest:
            self.refused += 1
            return False
        self._stamps.append(stamp_ns)
        self._poses.extend(pose)
        return True

    @property
    def stamps_ns(self) -> Stamps:
        """(m,) strictly increasing."""
        return np.array(self._stamps, dtype=np.int64)

    @property
    def poses(self) -> Array:
        """(m, 3)."""
        return np.array(self._poses, dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True)
class Gaps:
    """The largest gaps between known poses while images were taken."""

    seconds: float
    metres: float

    def __str__(self) -> str:
        return f"largest gap {self.seconds:.1f} s, {self.metres:.2f} m"


def largest_gaps(stamps_ns: Stamps, poses: Array, at_ns: Stamps) -> Gaps:
    """Between which two known poses an image was taken, at most."""
    before, after = _neighbours(stamps_ns, at_ns)
    metres = np.hypot(*(poses[after] - poses[before])[:, :2].T)
    seconds = (stamps_ns[after] - stamps_ns[before]) * 1e-9
    return Gaps(float(seconds.max()), float(metres.max()))


def carried_poses(stamps_ns: Stamps, poses: Array, odometry: OdometryLog, at_ns: Stamps) -> Array:
    """Poses (t, 3) at the times `at_ns`, carried along the odometry between known poses.

    A pose between two known ones is reached by the odometry's motion from the one before and, back,
    from the one after; the two are blended by the way between. AMCL publishes after every 0.25 m:
    by time alone, a stop would be smeared over the way. Where the two disagree or the odometry is
    not known, poses are those of `known_poses`.
    """
    result = known_poses(stamps_ns, poses, at_ns)
    before, after = _neighbours(stamps_ns, at_ns)
    first, last = stamps_ns[before], stamps_ns[after]
    covered = (first >= odometry.stamps_ns[0]) & (last <= odometry.stamps_ns[-1])
    moved = _way(odometry, last) - _way(odometry, first)
    rows = np.flatnonzero(covered & (last - first > SHORT_GAP_NS) & (moved <= FARTHEST_CARRY_M))
    if len(rows) == 0:
        return result
    here = interpolate(odometry.stamps_ns, odometry.poses, at_ns[rows])
    forward, backward = (
        compose(
            poses[near[rows]],
            relative(interpolate(odometry.stamps_ns, odometry.poses, stamps_ns[near[rows]]), here),
        )
        for near in (before, after)
    )
    way = _way(odometry, at_ns[rows]) - _way(odometry, first[rows])
    time = (at_ns[rows] - first[rows]) / (last[rows] - first[rows])
    share = np.where(moved[rows] > 1e-6, way / np.maximum(moved[rows], 1e-6), time)
    step = backward - forward
    step[:, 2] = wrap_angle(step[:, 2])
    blended = forward + share[:, None] * step
    blended[:, 2] = wrap_angle(blended[:, 2])
    agreed = np.hypot(step[:, 0], step[:, 1]) <= FARTHEST_GAP_M
    result[rows[agreed]] = blended[agreed]
    return result


def _way(odometry: OdometryLog, at_ns: Stamps) -> Array:
    """How far (t,) the odometry had driven at these times, in metres; a radian counts as one."""
    motions = relative(odometry.poses[:-1], odometry.poses[1:])
    steps = np.hypot(motions[:, 0], motions[:, 1]) + np.abs(motions[:, 2])
    driven = np.concatenate([[0.0], np.cumsum(steps)])
    since = (odometry.stamps_ns - odometry.stamps_ns[0]).astype(np.float64)
    return np.asarray(np.interp((at_ns - odometry.stamps_ns[0]).astype(np.float64), since, driven))


def _neighbours(stamps_ns: Stamps, at_ns: Stamps) -> tuple[Rows, Rows]:
    """The rows of the known poses before and after each time; the same one outside."""
    right = np.searchsorted(stamps_ns, at_ns, side="left")
    last = len(stamps_ns) - 1
    return np.clip(right - 1, 0, last), np.clip(right, 0, last)


def known_poses(stamps_ns: Stamps, poses: Array, at_ns: Stamps) -> Array:
    """Poses (t, 3) at the times `at_ns`, interpolated in time, NaN where they are not known.

    Known is what lies between two poses that are near each other in time or in space (a robot that
    stands still may publish nothing for minutes), or within 0.1 s of the first or last pose.
    """
    result = np.full((len(at_ns), 3), np.nan)
    if len(stamps_ns) == 0:
        return result
    before, after = _neighbours(stamps_ns, at_ns)
    gap_ns = stamps_ns[after] - stamps_ns[before]
    gap_m = np.hypot(*(poses[after] - poses[before])[:, :2].T)
    known = (gap_ns <= LONGEST_GAP_NS) | (gap_m <= FARTHEST_GAP_M)
    known |= stamps_ns[after] == at_ns
    known &= at_ns >= stamps_ns[0] - END_TOLERANCE_NS
    known &= at_ns <= stamps_ns[-1] + END_TOLERANCE_NS
    result[known] = interpolate(stamps_ns, poses, at_ns[known])
    return result
