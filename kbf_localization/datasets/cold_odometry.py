"""The wheel odometry of a COLD sequence, `odom.tdf`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.datasets.files import read_lines
from kbf_localization.errors import DatasetError

# Fields of a line, counted from 0.
_SECONDS, _MICROSECONDS, _X, _Y, _HEADING = 3, 4, 8, 9, 11


def read_odometry(path: Path) -> tuple[OdometryLog, list[str]]:
    """The log, by time and each stamp once, with warnings about lines that were passed over.

    Its frame is not that of the images' poses; only increments mean something.
    """
    try:
        lines = read_lines(path)
    except DatasetError as error:
        raise DatasetError(f"{error}; the drive needs its wheel odometry") from error
    readings, unreadable = [], 0
    for line in lines:
        fields = line.split()
        if not fields:
            continue
        try:
            stamp_ns = int(fields[_SECONDS]) * 10**9 + int(fields[_MICROSECONDS]) * 1000
            pose = (float(fields[_X]), float(fields[_Y]), float(fields[_HEADING]))
        except (IndexError, ValueError):
            unreadable += 1
            continue
        if np.isfinite(pose).all() and np.abs(pose).max() < 1e9 and 0 <= stamp_ns < 2**63:
            readings.append((stamp_ns, pose))
        else:
            unreadable += 1
    warnings = [f"{path}: {unreadable} lines hold no reading"] if unreadable else []
    if len(readings) < 2:
        raise DatasetError(f"{path}: {len(readings)} odometry readings; a drive needs two or more")
    stamps = np.array([stamp for stamp, _ in readings], dtype=np.int64)
    poses = np.array([pose for _, pose in readings], dtype=np.float64)
    backward = int((np.diff(stamps) < 0).sum())
    if backward:
        warnings.append(f"{path}: {backward} readings out of time order; read in time order")
    ordered, first = np.unique(stamps, return_index=True)
    if len(ordered) < len(stamps):
        warnings.append(f"{path}: {len(stamps) - len(ordered)} readings repeat another's stamp")
    if len(ordered) < 2:
        raise DatasetError(f"{path}: all odometry readings have the same stamp")
    return OdometryLog(ordered, poses[first]), warnings
