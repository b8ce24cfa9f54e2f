"""Trajectories in six degrees of freedom, and text files of them in TUM's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array, Stamps
from kbf_localization.datasets.files import LineError, counted, in_time_order, parse_lines
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_COORDINATE_M

NORM_TOLERANCE = 0.01
"""A quaternion further from unit length than this is normalized, and counted."""

MAX_MEDIAN_SPEED_M_S = 60.0
"""Above this median speed a trajectory is hardly in metres."""

MIN_MEDIAN_RATE_HZ = 0.2
"""Poses further apart than this in the median hardly have stamps in seconds."""

COLUMNS = "stamp tx ty tz qx qy qz qw"
EXPECTED = f"expected are the 8 columns '{COLUMNS}' (seconds, metres, unit quaternion)"

LEVEL_RAD, MIN_PATH_M = np.radians(5.0), 0.25
"""Largest tilt of a motion on a floor; least width (standard deviation) of a path with a plane."""

_LATEST_S = 10**11
"""A stamp of so many seconds, thousands of years, is one in another unit."""


@dataclass(frozen=True)
class Trajectory:
    """Poses over time.

    `stamps_ns` (m,) strictly increasing, `positions` (m, 3) in metres, `rotations` (m, 3, 3) from
    the body's axes to the world's.
    """

    stamps_ns: Stamps
    positions: Array
    rotations: Array

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @property
    def length_m(self) -> float:
        """Return the path length."""
        return float(np.linalg.norm(np.diff(self.positions, axis=0), axis=1).sum())

    @property
    def duration_s(self) -> float:
        return float(np.ptp(self.stamps_ns)) * 1e-9 if len(self) else 0.0

    def during(self, stamps_ns: Stamps) -> Trajectory:
        """Return the part in the time of these stamps."""
        part = slice(*np.searchsorted(self.stamps_ns, [stamps_ns[0], stamps_ns[-1] + 1]).tolist())
        return Trajectory(self.stamps_ns[part], self.positions[part], self.rotations[part])


def parse_stamp(text: str) -> int:
    """Return nanoseconds of a decimal number of seconds, exactly; ValueError for what is none.

    In integers: a double keeps only a quarter of a microsecond of a time since 1970.
    """
    seconds, point, fraction = text.strip().partition(".")
    stamp: float
    if point and fraction.isdecimal() and seconds.isdecimal():
        stamp = int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
    elif seconds.isdecimal() and not point:
        # More than 15 digits are nanoseconds, as EuRoC and many recorders write them, except
        # microseconds since 1970.
        nanoseconds = len(seconds) > 15 and not 10**15 < int(seconds) < 2 * 10**15
        stamp = int(seconds) * (1 if nanoseconds else 10**9)
    else:
        stamp = float(text) * 1e9  # such as 1.305031e+09
    if stamp < 0:
        raise LineError(f"the stamp {text.strip()[:40]} is negative; count from an earlier time")
    if _LATEST_S * 10**9 < stamp < _LATEST_S * 10**15:
        unit = "milliseconds" if stamp < _LATEST_S * 10**12 else "microseconds"
        raise LineError(
            f"the stamp {text.strip()[:40]} looks like {unit}; write seconds, such as "
            "1305031526.671473"
        )
    if not stamp < 2**63:
        raise ValueError(f"no time: {text}")
    return round(stamp)


def check_position(position: Sequence[float]) -> None:
    """Refuse coordinates in metres that are beyond every map."""
    farthest = max(map(abs, position))
    if farthest > MAX_COORDINATE_M:
        raise LineError(f"the coordinate {farthest:g} is beyond {MAX_COORDINATE_M:g} m")


def _parse_pose(line: str) -> tuple[int, list[float]]:
    """Stamp, position and quaternion (7 numbers) of a line in TUM's format."""
    fields = line.replace(",", " ").split()
    if len(fields) < 8:
        raise LineError(f"{len(fields)} columns; {EXPECTED}")
    numbers = [float(field) for field in fields[1:8]]
    # A comparison with NaN is false.
    if not all(abs(number) < np.inf for number in numbers):
        raise ValueError
    check_position(numbers[:3])
    return parse_stamp(fields[0]), numbers


def read_trajectory(path: Path) -> tuple[Trajectory, list[str]]:
    """Return the poses of a text file with "stamp tx ty tz qx qy qz qw" a line, with warnings.

    Lines that begin with # are comments; commas may stand between the fields, and further fields
    may follow. Poses are sorted by time, each stamp once.
    """
    poses, warnings = parse_lines(path, _parse_pose, "hold no pose")
    if not poses:
        raise DatasetError(warnings[0] if warnings else f"{path}: holds no pose; {EXPECTED}")
    table = np.array([numbers for _, numbers in poses], dtype=np.float64).reshape(-1, 7)
    norms = np.linalg.norm(table[:, 3:], axis=1)
    usable = norms > 1e-6
    warnings += counted(path, int((~usable).sum()), "quaternions are zero; left out")
    off = int((np.abs(norms[usable] - 1.0) > NORM_TOLERANCE).sum())
    warnings += counted(path, off, "quaternions are not of unit length; normalized")
    given = np.array([stamp for stamp, _ in poses], dtype=np.int64)[usable]
    stamps_ns, first, more = in_time_order(path, given.tolist(), "poses")
    table = table[usable][first]
    _check_quaternion_order(path, table[:, :3], table[:, 3:])
    trajectory = Trajectory(stamps_ns, table[:, :3], Rotation.from_quat(table[:, 3:]).as_matrix())
    return trajectory, warnings + more + sense_of_scale(path, trajectory)


def _check_quaternion_order(path: Path, positions: Array, quaternions: Array) -> None:
    """Refuse quaternions (m, 4) that keep level only if the scalar is the first of the four.

    A robot on a floor, and a camera fixed to it, turn about the normal of the path's plane.
    """
    variances, axes = np.linalg.eigh(np.cov(positions.T, bias=True))
    if variances[1] < MIN_PATH_M**2 or variances[0] > 0.01 * variances[1]:
        return
    as_read, scalar_first = (
        _tilt_rad(quaternions[:, order], axes[:, 0]) for order in ([0, 1, 2, 3], [1, 2, 3, 0])
    )
    if scalar_first < LEVEL_RAD and as_read > 3.0 * LEVEL_RAD:
        raise DatasetError(
            f"{path}: its quaternions are level (within {np.degrees(LEVEL_RAD):.0f}°) as "
            f"'qw qx qy qz', and tilt by {np.degrees(as_read):.0f}° as 'qx qy qz qw'; {EXPECTED}"
        )


def _tilt_rad(quaternions: Array, normal: Array) -> float:
    """Return the RMS angle by which a direction of the world, `normal`, moves in the body."""
    in_body = np.einsum("mji,j->mi", Rotation.from_quat(quaternions).as_matrix(), normal)
    mean = in_body.mean(axis=0)
    cosines = in_body @ (mean / max(float(np.linalg.norm(mean)), 1e-12))
    return float(np.sqrt(np.mean(np.arccos(np.clip(cosines, -1.0, 1.0)) ** 2)))


def sense_of_scale(path: Path, trajectory: Trajectory) -> list[str]:
    """Warn where length and speed are not those of a robot, a person or a car in metres."""
    steps = np.linalg.norm(np.diff(trajectory.positions, axis=0), axis=1)
    seconds = np.diff(trajectory.stamps_ns) * 1e-9
    speed, period = float(np.median(steps / seconds)), float(np.median(seconds))
    if period > 1.0 / MIN_MEDIAN_RATE_HZ:
        return [
            f"{path}: a pose every {period:.3g} s in the median; are its stamps in milliseconds? "
            "They are read as seconds"
        ]
    if speed > MAX_MEDIAN_SPEED_M_S:
        unit = (
            " (in millimetres it would be plausible)" if speed < 1000 * MAX_MEDIAN_SPEED_M_S else ""
        )
        return [
            f"{path}: {trajectory.length_m:.0f} m at a median of {speed:.0f} m/s{unit}; "
            "are its positions in metres and its stamps in seconds?"
        ]
    if trajectory.length_m < 1e-3:
        return [f"{path}: {trajectory.length_m:.1g} m long; did it move, and in metres?"]
    return []


def write_tum(path: Path, stamps_ns: Stamps, poses: Array) -> None:
    """Write planar poses (t, 3); stamps keep all their nanoseconds, rows with NaN are left out."""
    lines = []
    for stamp, (x, y, heading) in zip(stamps_ns.tolist(), poses.tolist(), strict=True):
        if not np.isfinite((x, y, heading)).all():
            continue
        seconds, nanoseconds = divmod(stamp, 10**9)
        qz, qw = np.sin(heading / 2), np.cos(heading / 2)
        lines.append(f"{seconds}.{nanoseconds:09d} {x:.17g} {y:.17g} 0 0 0 {qz:.17g} {qw:.17g}\n")
    path.write_text("".join(lines), encoding="ascii")
