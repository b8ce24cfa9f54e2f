"""Poses with stamps as they come out of a bag, and what they say about other moments."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.geometry import compose, heading_of, interpolate, relative, wrap_angle
from kbf_localization.limits import FARTHEST_M

PlanarPose = tuple[float, float, float]

LONGEST_GAP_NS = 1_000_000_000
FARTHEST_GAP_M = 0.5
END_TOLERANCE_NS = 100_000_000
SHORT_GAP_NS = 100_000_000
"""Between poses nearer than this, odometry is not needed."""
FARTHEST_CARRY_M = 3.0
"""So far (a radian counts as a metre) the odometry may carry a pose to the next."""


def pose_of(position: Any, orientation: Any) -> PlanarPose | None:
    """(x, y, heading) of a position and a quaternion; None where they mean no pose."""
    heading = heading_of(orientation.x, orientation.y, orientation.z, orientation.w)
    x, y = float(position.x), float(position.y)
    # A comparison with NaN is false.
    if heading is None or not (abs(x) <= FARTHEST_M and abs(y) <= FARTHEST_M):
        return None
    return x, y, heading


def pose_of_message(message: Any) -> PlanarPose | None:
    """Return the pose in a PoseStamped, PoseWithCovarianceStamped or Odometry."""
    pose = getattr(message.pose, "pose", message.pose)
    return pose_of(pose.position, pose.orientation)


class PoseLog:
    """Poses in the order of their stamps, 32 bytes each, and what further numbers come with them.

    What comes late or twice is refused.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._stamps = array("q")
        self._poses, self._further = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp_ns: int, pose: PlanarPose | None, further: Iterable[float] = ()) -> None:
        """Take the pose, or refuse it; `further` numbers are equally many for each."""
        newest = self._stamps[-1] if self._stamps else 0
        if pose is None or stamp_ns <= newest:
            self.refused += 1
            return
        self._stamps.append(stamp_ns)
        self._poses.extend(pose)
        self._further.extend(further)

    @property
    def further(self) -> Array:
        """(m, k) of the m poses."""
        return np.array(self._further).reshape(len(self), len(self._further) // max(len(self), 1))

    @property
    def log(self) -> OdometryLog:
        """Return the poses so far."""
        poses = np.array(self._poses, dtype=np.float64).reshape(-1, 3)
        return OdometryLog(np.array(self._stamps, dtype=np.int64), poses)


def largest_gaps(known: OdometryLog, at_ns: Stamps) -> str:
    """Describe the largest gap, in time and space, between known poses round an image."""
    before, after = _neighbours(known.stamps_ns, at_ns)
    metres = np.hypot(*(known.poses[after] - known.poses[before])[:, :2].T).max()
    seconds = (known.stamps_ns[after] - known.stamps_ns[before]).max() * 1e-9
    return f"largest gap {seconds:.1f} s, {metres:.2f} m"


def carried_poses(known: OdometryLog, odometry: OdometryLog, at_ns: Stamps) -> Array:
    """Return poses (t, 3) at the times `at_ns`, carried along the odometry between known poses.

    A pose between two known ones is reached by the odometry's motion from the one before and, back,
    from the one after; the two are blended by the path length between. AMCL publishes after every
    0.25 m: by time alone, a stop would be smeared over the path. Where the two disagree or the
    odometry is not known, poses are those of `known_poses`.
    """
    stamps_ns, poses = known.stamps_ns, known.poses
    result = known_poses(known, at_ns)
    before, after = _neighbours(stamps_ns, at_ns)
    first, last = stamps_ns[before], stamps_ns[after]
    covered = (first >= odometry.stamps_ns[0]) & (last <= odometry.stamps_ns[-1])
    moved = _path_length(odometry, last) - _path_length(odometry, first)
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
    path = _path_length(odometry, at_ns[rows]) - _path_length(odometry, first[rows])
    time = (at_ns[rows] - first[rows]) / (last[rows] - first[rows])
    fraction = np.where(moved[rows] > 1e-6, path / np.maximum(moved[rows], 1e-6), time)
    step = backward - forward
    step[:, 2] = wrap_angle(step[:, 2])
    blended = forward + fraction[:, None] * step
    blended[:, 2] = wrap_angle(blended[:, 2])
    agreed = np.hypot(step[:, 0], step[:, 1]) <= FARTHEST_GAP_M
    result[rows[agreed]] = blended[agreed]
    return result


def _path_length(odometry: OdometryLog, at_ns: Stamps) -> Array:
    """Return the odometry's path length (t,) at these times, in metres; a radian counts as one."""
    motions = relative(odometry.poses[:-1], odometry.poses[1:])
    steps = np.hypot(motions[:, 0], motions[:, 1]) + np.abs(motions[:, 2])
    driven = np.concatenate([[0.0], np.cumsum(steps)])
    since = (odometry.stamps_ns - odometry.stamps_ns[0]).astype(np.float64)
    return np.asarray(np.interp((at_ns - odometry.stamps_ns[0]).astype(np.float64), since, driven))


def _neighbours(stamps_ns: Stamps, at_ns: Stamps) -> tuple[Rows, Rows]:
    """Return the rows of the known poses before and after each time; the same one outside."""
    right = np.searchsorted(stamps_ns, at_ns, side="left")
    last = len(stamps_ns) - 1
    return np.clip(right - 1, 0, last), np.clip(right, 0, last)


def known_poses(log: OdometryLog, at_ns: Stamps) -> Array:
    """Return poses (t, 3) at the times `at_ns`, interpolated in time, NaN where they are not known.

    Known is what lies between two poses that are near each other in time or in space (a robot that
    stands still may publish nothing for minutes), or within 0.1 s of the first or last pose.
    """
    stamps_ns, poses = log.stamps_ns, log.poses
    result = np.full((len(at_ns), 3), np.nan)
    before, after = _neighbours(stamps_ns, at_ns)
    gap_ns = stamps_ns[after] - stamps_ns[before]
    gap_m = np.hypot(*(poses[after] - poses[before])[:, :2].T)
    known = (gap_ns <= LONGEST_GAP_NS) | (gap_m <= FARTHEST_GAP_M)
    known |= stamps_ns[after] == at_ns
    known &= at_ns >= stamps_ns[0] - END_TOLERANCE_NS
    known &= at_ns <= stamps_ns[-1] + END_TOLERANCE_NS
    result[known] = interpolate(stamps_ns, poses, at_ns[known])
    return result
