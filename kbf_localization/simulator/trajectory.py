"""Where and when a simulated camera takes its pictures, real trajectories among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbf_localization.errors import DatasetError
from kbf_localization.geometry import wrap_angle

_NAME = re.compile(r"t(\d+)\.(\d+)_x(-?\d+\.\d+)_y(-?\d+\.\d+)_a(-?\d+\.\d+)\.(?:jpe?g|png)$")


@dataclass(frozen=True)
class Trajectory:
    """Poses (t, 3) at `stamps_ns` (t,), the room label and the image's file name of each."""

    stamps_ns: NDArray[np.int64]
    poses: NDArray[np.float64]
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


def image_name(stamp_ns: int, pose: NDArray[np.float64]) -> str:
    """The file name that COLD (Saarbrücken, 7 decimals) gives an image."""
    seconds, rest = divmod(int(stamp_ns), 1_000_000_000)
    x, y, heading = (float(value) for value in pose)
    return f"t{seconds}.{rest // 1000:06d}_x{x:.7f}_y{y:.7f}_a{heading:.7f}.jpeg"


def named(
    stamps_ns: NDArray[np.int64], poses: NDArray[np.float64], labels: tuple[str, ...]
) -> Trajectory:
    """A trajectory whose stamps and poses are what its file names say: microseconds, 7 digits."""
    stamps = stamps_ns // 1000 * 1000
    rounded = poses.copy()
    rounded[:, 2] = np.clip(wrap_angle(poses[:, 2]), -3.1415926, 3.1415926)
    rounded = np.round(rounded, 7)
    names = tuple(image_name(stamp, pose) for stamp, pose in zip(stamps, rounded))
    return Trajectory(stamps, rounded, labels, names)


def read_places(path: Path) -> Trajectory:
    """The trajectory in COLD's `places.lst`: "<image file name> <room label>" a line."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as a list of places: {error}") from error
    stamps, poses, labels, names = [], [], [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        words = line.split()
        match = _NAME.match(words[0])
        if match is None or len(words) != 2:
            raise DatasetError(
                f"{path}: line {number} is not '<image file name> <room label>' with a name like "
                "t1152212857.193444_x0.3068230_y-0.0158034_a-0.0096662.jpeg"
            )
        seconds, fraction, x, y, heading = match.groups()
        stamps.append(int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, "0")))
        poses.append((float(x), float(y), float(heading)))
        labels.append(words[1])
        names.append(words[0])
    if len(names) < 2:
        raise DatasetError(f"{path}: has {len(names)} images; a trajectory needs at least two")
    stamps_ns = np.array(stamps, dtype=np.int64)
    if np.any(np.diff(stamps_ns) <= 0):
        number = int(np.flatnonzero(np.diff(stamps_ns) <= 0)[0]) + 2
        raise DatasetError(f"{path}: times are out of order at image {number}; sort the lines")
    return Trajectory(stamps_ns, np.array(poses), tuple(labels), tuple(names))


def perturbed(
    trajectory: Trajectory,
    rng: np.random.Generator,
    start_ns: int,
    *,
    sideways_m: float = 0.12,
    heading_rad: float = 0.05,
    pace: tuple[float, float] = (0.85, 1.2),
) -> Trajectory:
    """Another drive along the same way: other offsets, headings, pace and moments of exposure.

    Offsets wander smoothly (correlated over some 20 s); gaps of the original are left out, and
    images come every 0.205 s as in the original.
    """
    from scipy.ndimage import gaussian_filter1d

    clock = np.cumsum(np.r_[0, np.minimum(np.diff(trajectory.stamps_ns) * 1e-9, 0.5)])
    factor = rng.uniform(*pace)
    times = np.arange(0.05, clock[-1], 0.2048 * factor)
    unrolled = np.unwrap(trajectory.poses[:, 2])
    poses = np.stack(
        [np.interp(times, clock, column) for column in (*trajectory.poses[:, :2].T, unrolled)], -1
    )
    wander = gaussian_filter1d(rng.standard_normal((3, len(times))), 40.0, axis=1, mode="reflect")
    wander /= max(float(wander.std()), 1e-9)
    poses[:, :2] += sideways_m * 0.7 * np.clip(wander[:2], -2, 2).T
    poses[:, 2] += heading_rad * np.clip(wander[2], -2, 2)
    nearest = np.clip(np.searchsorted(clock, times), 0, len(clock) - 1)
    stamps = start_ns + np.round(times / factor * 1e9 + rng.normal(0, 1.5e6, len(times)))
    labels = tuple(trajectory.labels[k] for k in nearest)
    return named(stamps.astype(np.int64), poses, labels)
