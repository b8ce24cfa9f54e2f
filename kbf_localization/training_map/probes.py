"""Pictures with known poses along a map's drives, from which the map learns about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import wrap_angle

if TYPE_CHECKING:
    from kbf_localization.training_map.observation import MapObservation

RUN_LENGTH = 10
"""Probes in a run, so that it shows how long errors last."""


@dataclass(frozen=True)
class Probes:
    """p pictures with known `poses` (p, 3), of drives `source_of` (p,), in runs `run_of` (p,).

    The pictures of a run follow each other along the way; `odometry` (p, 3) is the odometry's pose
    at each, `way` (p, 2) how far the drive had come, in metres and radians.
    """

    poses: Array
    source_of: Rows
    run_of: Rows
    odometry: Array
    way: Array
    pictures: Sequence[MapObservation]

    def __len__(self) -> int:
        return len(self.poses)


def way_along(poses: Array) -> Array:
    """How far a drive through `poses` (t, 3) has come at each: metres and radians (t, 2)."""
    ways = np.zeros((len(poses), 2))
    steps = np.diff(poses, axis=0)
    ways[1:, 0] = np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))
    ways[1:, 1] = np.cumsum(np.abs(wrap_angle(steps[:, 2])))
    return ways


def probe_places(ways: Array, spacing: float, runs: int) -> list[Rows]:
    """Runs of frames, spread over a drive with `ways` (t, 2), half a map spacing apart."""
    way = ways.sum(axis=1)
    places = []
    for start in np.linspace(0.02, 0.93, runs) * way[-1]:
        at = start + 0.5 * spacing * np.arange(RUN_LENGTH)
        found = np.unique(np.minimum(np.searchsorted(way, at), len(way) - 1))
        places.append(np.asarray(found, dtype=np.intp))
    return places
