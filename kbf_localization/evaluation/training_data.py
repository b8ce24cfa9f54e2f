"""Finds drives that a map was built from: errors on them say nothing about a later drive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import embed
from kbf_localization.training_map.sources import Source
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import ImageDescription

MAX_POSE_DIFFERENCE_M = 1e-6
"""No second drive comes through a pose so exactly; poses that went through a file still do."""

MIN_FRACTION_IN_MAP = 0.02
"""Of a drive's images: a covered lens, or a dock seen without noise, gives a few equal images."""


def training_warning(
    training_map: TrainingMap, drive: Drive, descriptions: Sequence[ImageDescription | None] = ()
) -> str | None:
    """Return a line about a drive whose own images are in the map; None for others.

    Images are compared by content: two with the same description, to the last bit, are the same
    image. A drive is also known by name and recording time together. `descriptions` are those of
    the drive's images by the map's descriptor; without any, stamps and names alone are compared.
    """
    images = {description.features.tobytes() for description in descriptions if description}
    in_map = images & {row.tobytes() for row in training_map.features} if images else set()
    same_name = _recorded_as(training_map, drive, same_name=True)
    copy = _recorded_as(training_map, drive, same_name=False)
    if len(in_map) > MIN_FRACTION_IN_MAP * len(images) or (in_map and copy):
        how = (
            f"{len(in_map)} of {len(images)} different images of {drive.name} are in the map "
            "(compared by content)"
        )
    elif same_name is not None:
        how = (
            f"{drive.name} has the name and the recording time of a drive in the map "
            "(compared by name and stamps)"
        )
    elif copy is not None and not images:
        how = (
            f"{drive.name} begins and ends at the same nanosecond as {copy.name}, which is in the "
            "map (compared by stamps)"
        )
    else:
        return None
    return (
        f"EVALUATED ON TRAINING DATA: {how}. The errors say nothing about a later drive; "
        "evaluate on a drive that the map does not know."
    )


def are_in(training_map: TrainingMap, poses: Array) -> Flags:
    """Return which of the poses (t, 3) the map has exactly."""
    distances, _ = cKDTree(embed(training_map.poses)).query(embed(poses))
    return np.asarray(distances < MAX_POSE_DIFFERENCE_M)


def _recorded_as(training_map: TrainingMap, drive: Drive, same_name: bool) -> Source | None:
    """Return the map's source that was recorded with the drive.

    Of the same name: at overlapping times. Of any name: from the same first to the same last stamp.
    """
    if len(drive.stamps_ns) == 0:
        return None
    first, last = int(drive.stamps_ns[0]), int(drive.stamps_ns[-1])
    for source in training_map.sources:
        if source.stamps_ns is None:
            continue
        overlaps = first <= source.stamps_ns[1] and last >= source.stamps_ns[0]
        if same_name and source.name == drive.name and overlaps:
            return source
        if not same_name and (first, last) == source.stamps_ns:
            return source
    return None
