"""Known poses that may be wrong: as anchors of the graph, and what the graph says against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import relative, wrap_angle
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.result import PoseEstimates

ANCHOR_STEP_M = 0.5
"""Path between two known poses that hold the graph: a jump for half a metre is noticed."""
GIVEN_SIGMA = np.array([0.10, 0.10, 0.05])
"""m, m, rad: what AMCL and SLAM err by where they claim nothing."""
CORRELATION_M = 2.0
"""Path over which the errors of a laser's poses are alike: they count once."""
MIN_SIGMA = np.array([0.02, 0.02, 0.005])
MENDED_M, MENDED_RAD = 0.25, np.radians(6.0)
"""Known poses that are off by more spoil landmarks and calibration."""
MIN_MISSING_S = 1.0
JUMP_FRACTION, JUMP_PATH_M = 0.5, 1.0
"""A jump makes more than half of a stretch's largest error within a metre of path where that begins
or ends: odometry between two poses of a laser, 0.25 to 0.5 m apart, spreads it over their images.
Stretches that are nearer to each other are one."""


@dataclass(frozen=True)
class Mended:
    """A stretch of a drive whose known poses were wrong or missing.

    `kind` is "jump", "drift" or "missing"; `metres` and `degrees` are the largest error.
    """

    drive: str
    first_s: float
    last_s: float
    kind: str
    metres: float
    degrees: float

    @property
    def described(self) -> str:
        """One sentence for people."""
        when = f"{self.drive}: from {self.first_s:.1f} to {self.last_s:.1f} s the given poses"
        if self.kind == "missing":
            return f"{when} are missing; estimated"
        verb = "jump" if self.kind == "jump" else "drift"
        return f"{when} {verb} by up to {self.metres:.2f} m and {self.degrees:.0f}°; mended"


def given_anchors(drives: Sequence[Drive], step_m: float = ANCHOR_STEP_M) -> list[Anchor]:
    """Return known poses every `step_m` along the drives that have some, with claimed or default σ.

    They are doubtful: the graph gives up those that all else contradicts.
    """
    found = []
    for number, drive in enumerate(drives):
        if drive.poses is None:
            continue
        claimed = getattr(drive, "pose_covariances", None)
        last: Array | None = None
        for image in np.flatnonzero(np.isfinite(drive.poses).all(axis=1)):
            pose = drive.poses[image]
            if last is not None and np.hypot(*(pose - last)[:2]) < step_m:
                continue
            last = pose
            sigma = GIVEN_SIGMA
            if claimed is not None and np.isfinite(claimed[image]).all():
                sigma = np.maximum(np.sqrt(np.diag(claimed[image])), MIN_SIGMA)
            sigma = sigma * np.sqrt(max(CORRELATION_M / step_m, 1.0))
            x, y, heading = (float(value) for value in pose)
            along, across, turn = (float(value) for value in sigma)
            stamp = int(drive.stamps_ns[image])
            found.append(Anchor(number, stamp, (x, y, heading), (along, across, turn), True))
    return found


def mended_stretches(drives: Sequence[Drive], estimates: PoseEstimates) -> list[Mended]:
    """Return where the estimated poses contradict the given poses, or fill a gap in them."""
    found: list[Mended] = []
    for drive, trajectory in zip(drives, estimates.trajectories):
        if drive.poses is None:
            continue
        known: Flags = np.asarray(np.isfinite(drive.poses).all(axis=1))
        estimated: Flags = np.asarray(np.isfinite(trajectory.poses).all(axis=1))
        seconds = (drive.stamps_ns - drive.stamps_ns[0]) * 1e-9
        away = relative(trajectory.poses, drive.poses)
        metres, turn = np.hypot(away[:, 0], away[:, 1]), np.abs(wrap_angle(away[:, 2]))
        moved = drive.poses[:, :2] - trajectory.poses[:, :2]
        steps = np.hypot(*np.diff(trajectory.odometry[:, :2], axis=0).T)
        path_m = np.r_[0.0, np.cumsum(steps)]
        wrong = known & estimated & ((metres > MENDED_M) | (turn > MENDED_RAD))
        for first, last in _near_stretches(wrong, path_m):
            worst = float(np.nanmax(metres[first : last + 1]))
            degrees = float(np.degrees(np.nanmax(turn[first : last + 1])))
            growth = max(_growth(moved, path_m, end) for end in (first, last))
            kind = "jump" if growth > JUMP_FRACTION * worst else "drift"
            ends = float(seconds[first]), float(seconds[last])
            found.append(Mended(drive.name, *ends, kind, worst, degrees))
        for first, last in _stretches(~known & estimated):
            if seconds[last] - seconds[first] >= MIN_MISSING_S:
                ends = float(seconds[first]), float(seconds[last])
                found.append(Mended(drive.name, *ends, "missing", 0.0, 0.0))
    return found


def _growth(moved: Array, path_m: Array, image: int) -> float:
    """Return by how much errors `moved` (t, 2) of positions change around an image, in m."""
    near = moved[np.abs(path_m - path_m[image]) <= 0.5 * JUMP_PATH_M]
    near = near[np.isfinite(near).all(axis=1)]
    return float(np.hypot(*(near[-1] - near[0])))


def _near_stretches(flags: Flags, path_m: Array) -> Iterator[tuple[int, int]]:
    """Yield the first and last rows of runs of true flags, one for those near each other."""
    joined = flags.copy()
    for first, last in _stretches(~flags):
        inner = first > 0 and last + 1 < len(flags)
        if inner and path_m[last + 1] - path_m[first - 1] <= JUMP_PATH_M:
            joined[first : last + 1] = True
    yield from _stretches(joined)


def _stretches(flags: Flags) -> Iterator[tuple[int, int]]:
    """Yield the first and last rows of runs of true flags."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(np.int8)))
    for first, after in zip(edges[::2], edges[1::2]):
        yield int(first), int(after) - 1
