"""Where and when a simulated camera takes its pictures, real trajectories among them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.cold import read_places
from kbf_localization.errors import DatasetError
from kbf_localization.geometry import wrap_angle

SIDEWAYS_M, HEADING_RAD, PACE = 0.12, 0.05, (0.85, 1.2)
"""How another drive along the same way differs from the first."""


@dataclass(frozen=True)
class Trajectory:
    """Poses (t, 3) at `stamps_ns` (t,), the room label and the image's file name of each."""

    stamps_ns: Stamps
    poses: Array
    labels: tuple[str, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def first(self, frames: int | None) -> Trajectory:
        """Only the first `frames` frames (all for None)."""
        if frames is None or frames >= len(self):
            return self
        return Trajectory(
            self.stamps_ns[:frames], self.poses[:frames], self.labels[:frames], self.names[:frames]
        )


def image_name(stamp_ns: int, pose: Array) -> str:
    """The file name that COLD (Saarbrücken, 7 decimals) gives an image."""
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    x, y, heading = (float(value) for value in pose)
    return f"t{seconds}.{rest // 1000:06d}_x{x:.7f}_y{y:.7f}_a{heading:.7f}.jpeg"


def named(stamps_ns: Stamps, poses: Array, labels: tuple[str, ...]) -> Trajectory:
    """A trajectory whose stamps and poses are what its file names say: microseconds, 7 digits."""
    stamps = stamps_ns // 1000 * 1000
    rounded = poses.copy()
    rounded[:, 2] = np.clip(wrap_angle(poses[:, 2]), -3.1415926, 3.1415926)
    rounded = np.round(rounded, 7)
    names = tuple(image_name(stamp, pose) for stamp, pose in zip(stamps, rounded))
    return Trajectory(stamps, rounded, labels, names)


def read_trajectory(path: Path) -> Trajectory:
    """The trajectory in a COLD `places.lst`; unlike a data set's, it must be without a fault."""
    frames, faults = read_places(path)
    if faults:
        raise DatasetError(faults[0])
    for frame in frames:
        if frame.label is None:
            raise DatasetError(f"{path}: {frame.name} has no room label")
    if len(frames) < 2:
        raise DatasetError(f"{path}: has {len(frames)} images; a trajectory needs at least two")
    stamps_ns = np.array([frame.stamp_ns for frame in frames], dtype=np.int64)
    if np.any(np.diff(stamps_ns) <= 0):
        number = int(np.flatnonzero(np.diff(stamps_ns) <= 0)[0]) + 2
        raise DatasetError(f"{path}: times are out of order at image {number}; sort the lines")
    poses = np.array([frame.pose for frame in frames])
    labels = tuple(frame.label or "" for frame in frames)
    return Trajectory(stamps_ns, poses, labels, tuple(frame.name for frame in frames))


def perturbed(trajectory: Trajectory, rng: np.random.Generator, start_ns: int) -> Trajectory:
    """Another drive along the same way: other offsets, headings, pace and moments of exposure.

    Offsets wander smoothly (correlated over some 20 s); gaps of the original are left out, and
    images come every 0.205 s as in the original.
    """
    from scipy.ndimage import gaussian_filter1d

    clock = np.cumsum(np.r_[0, np.minimum(np.diff(trajectory.stamps_ns) * 1e-9, 0.5)])
    factor = rng.uniform(*PACE)
    times = np.arange(0.05, clock[-1], 0.2048 * factor)
    unrolled = np.unwrap(trajectory.poses[:, 2])
    poses = np.stack(
        [np.interp(times, clock, column) for column in (*trajectory.poses[:, :2].T, unrolled)], -1
    )
    wander = gaussian_filter1d(rng.standard_normal((3, len(times))), 40.0, axis=1, mode="reflect")
    wander /= max(float(wander.std()), 1e-9)
    poses[:, :2] += SIDEWAYS_M * 0.7 * np.clip(wander[:2], -2, 2).T
    poses[:, 2] += HEADING_RAD * np.clip(wander[2], -2, 2)
    nearest = np.clip(np.searchsorted(clock, times), 0, len(clock) - 1)
    stamps = start_ns + np.round(times / factor * 1e9 + rng.normal(0, 1.5e6, len(times)))
    labels = tuple(trajectory.labels[k] for k in nearest)
    return named(stamps.astype(np.int64), poses, labels)
