"""Finds drives that a map was built from: errors on them say nothing about a later drive."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import embed
from kbf_localization.training_map.training_map import Source, TrainingMap

MAX_SAME_POSE_M = 1e-6
"""No second drive comes through a pose so exactly; poses that went through a file still do."""

MIN_FRACTION_IN_MAP = 0.02
"""Of a drive's images: a robot that starts on its dock may know a few poses exactly."""


def training_warning(training_map: TrainingMap, drive: Drive) -> str | None:
    """Return a line about a drive whose own images are in the map; None for others.

    It is known by its poses, or by name and stamps: a drive of the same name is another if it
    was recorded before or after the map's, and a drive of another name is the same if it begins and
    ends at the same nanosecond.
    """
    fraction = _fraction_in(training_map, drive)
    source = next((source for source in training_map.sources if _is_of(drive, source)), None)
    if fraction >= MIN_FRACTION_IN_MAP:
        how = f"{100 * fraction:.0f} % of the images of {drive.name} are in the map themselves"
    elif source is not None:
        how = f"{drive.name} was recorded at the time of {source.name}, which is in the map"
    else:
        return None
    return (
        f"EVALUATED ON TRAINING DATA: {how}. The errors say nothing about a later drive; "
        "evaluate on a drive that the map does not know."
    )


def _fraction_in(training_map: TrainingMap, drive: Drive) -> float:
    """Return the fraction of the drive's poses that the map has exactly."""
    if drive.poses is None:
        return 0.0
    known = np.isfinite(drive.poses).all(axis=1)
    return float(are_in(training_map, drive.poses[known]).mean()) if known.any() else 0.0


def are_in(training_map: TrainingMap, poses: Array) -> Flags:
    """Return which of the poses (t, 3) the map has exactly."""
    distances, _ = cKDTree(embed(training_map.poses)).query(embed(poses))
    return np.asarray(distances < MAX_SAME_POSE_M)


def _is_of(drive: Drive, source: Source) -> bool:
    """Return whether name and stamps say that the drive is the map's `source`."""
    if source.stamps_ns is None or len(drive.stamps_ns) == 0:
        return False
    first, last = int(drive.stamps_ns[0]), int(drive.stamps_ns[-1])
    if drive.name == source.name:
        return first <= source.stamps_ns[1] and last >= source.stamps_ns[0]
    return (first, last) == source.stamps_ns
