"""Takes drives and places out of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Rows
from kbf_localization.errors import MapError
from kbf_localization.training_map.learning import learn_from_map
from kbf_localization.training_map.training_map import TrainingMap, subset


def remove_sources(training_map: TrainingMap, names: Sequence[str]) -> TrainingMap:
    """The map without the poses of these drives."""
    known = [source.name for source in training_map.sources]
    for name in names:
        if name not in known:
            raise MapError(f"the map has no drive '{name}': it has {', '.join(known)}")
    gone = [number for number, name in enumerate(known) if name in names]
    return _left(training_map, np.flatnonzero(~np.isin(training_map.source_of, gone)))


def remove_box(training_map: TrainingMap, box: tuple[float, float, float, float]) -> TrainingMap:
    """The map without the poses between the corners (x0, y0) and (x1, y1), in metres."""
    corners = np.array(box, dtype=np.float64).reshape(2, 2)
    low, high = corners.min(axis=0), corners.max(axis=0)
    positions = training_map.poses[:, :2]
    inside = ((positions >= low) & (positions <= high)).all(axis=1)
    if not inside.any():
        (west, south), (east, north) = positions.min(axis=0), positions.max(axis=0)
        raise MapError(
            f"no pose lies within the box; the map reaches from ({west:.1f}, {south:.1f}) to "
            f"({east:.1f}, {north:.1f})"
        )
    return _left(training_map, np.flatnonzero(~inside))


def _left(training_map: TrainingMap, rows: Rows) -> TrainingMap:
    """What is left learns about itself anew; the odometry's noise stays known."""
    if len(rows) == 0:
        raise MapError("nothing would be left of the map; delete its file instead")
    left = subset(training_map, rows)
    noise = training_map.learned.motion_noise
    return replace(left, known=replace(learn_from_map(left), motion_noise=noise))
