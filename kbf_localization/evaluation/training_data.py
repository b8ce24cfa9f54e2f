"""Finds drives that a map was built from: errors on them say nothing about a later drive."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import embed

SAME_M = 1e-6
"""No second drive comes through a pose so exactly; poses that went through a file still do."""

SHARE = 0.02
"""Of a drive's images: a robot that starts on its dock may know a few poses exactly."""


def training_warnings(map_poses: Array, drives: Iterable[Drive]) -> list[str]:
    """A line for each drive whose own images are in the map of these poses (n, 3)."""
    tree = cKDTree(embed(map_poses))
    found = []
    for drive in drives:
        if drive.poses is None:
            continue
        known = np.isfinite(drive.poses).all(axis=1)
        if not known.any():
            continue
        distances, _ = tree.query(embed(drive.poses[known]))
        share = float(np.mean(distances < SAME_M))
        if share >= SHARE:
            found.append(
                f"EVALUATED ON TRAINING DATA: {100 * share:.0f} % of the images of {drive.name} "
                "are in the map themselves. The errors say nothing about a later drive; evaluate "
                "on a drive that the map does not know."
            )
    return found
