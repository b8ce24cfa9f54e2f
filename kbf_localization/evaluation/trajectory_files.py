"""Trajectories in TUM format: `seconds x y z qx qy qz qw` a line, as evo and others read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array, Stamps

NANOSECONDS = 10**9


def write_tum(path: Path, stamps_ns: Stamps, poses: Array) -> None:
    """Write planar poses (t, 3); stamps keep all their nanoseconds, rows with NaN are left out."""
    lines = []
    for stamp, (x, y, heading) in zip(stamps_ns.tolist(), poses.tolist(), strict=True):
        if not np.isfinite((x, y, heading)).all():
            continue
        seconds, nanoseconds = divmod(stamp, NANOSECONDS)
        qz, qw = np.sin(heading / 2), np.cos(heading / 2)
        lines.append(f"{seconds}.{nanoseconds:09d} {x:.17g} {y:.17g} 0 0 0 {qz:.17g} {qw:.17g}\n")
    path.write_text("".join(lines), encoding="ascii")
