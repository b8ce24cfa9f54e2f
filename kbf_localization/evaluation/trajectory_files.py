"""Trajectories in TUM format: `seconds x y z qx qy qz qw` a line, as evo and others read it."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbf_localization.errors import KbfError

NANOSECONDS = 10**9
LARGEST_SECONDS = 9_000_000_000
"""More does not fit into 64-bit nanoseconds."""


def write_tum(path: Path, stamps_ns: NDArray[np.int64], poses: NDArray[np.float64]) -> None:
    """Write planar poses (t, 3); stamps keep all their nanoseconds, rows with NaN are left out."""
    lines = []
    for stamp, (x, y, heading) in zip(stamps_ns.tolist(), poses.tolist(), strict=True):
        if not np.isfinite((x, y, heading)).all():
            continue
        seconds, nanoseconds = divmod(stamp, NANOSECONDS)
        qz, qw = np.sin(heading / 2), np.cos(heading / 2)
        lines.append(f"{seconds}.{nanoseconds:09d} {x:.17g} {y:.17g} 0 0 0 {qz:.17g} {qw:.17g}\n")
    path.write_text("".join(lines), encoding="ascii")


def read_tum(path: Path) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Stamps (t,) in nanoseconds and planar poses (t, 3) of a TUM file."""
    stamps, poses = [], []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KbfError(f"{path}: cannot be read as a TUM trajectory ({error})") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            stamp, *fields = line.split()
            x, y, _, qx, qy, qz, qw = map(float, fields)
            stamps.append(_nanoseconds(stamp))
        except (ValueError, InvalidOperation):
            raise KbfError(
                f"{path}: line {number} is not 'seconds x y z qx qy qz qw'; is this a TUM file?"
            ) from None
        poses.append((x, y, np.arctan2(2 * (qw * qz + qx * qy), 1 - 2 * (qy**2 + qz**2))))
    return np.array(stamps, dtype=np.int64), np.array(poses, dtype=np.float64).reshape(-1, 3)


def _nanoseconds(text: str) -> int:
    """Decimal seconds as whole nanoseconds, without the rounding of floating-point numbers."""
    seconds = Decimal(text)
    if not abs(seconds) < LARGEST_SECONDS:
        raise ValueError(text)
    return int(seconds * NANOSECONDS)
