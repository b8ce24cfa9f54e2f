"""Pictures with known poses along a map's drives, from which the map learns about itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import wrap_angle

if TYPE_CHECKING:
    from kbf_localization.training_map.observation import MapObservation

RUNS = 24
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

    @classmethod
    def of(
        cls,
        runs: Sequence[Sequence[int] | Rows],
        poses: Array,
        source_of: Rows,
        odometry: Array,
        ways: Array,
        observe: Callable[[int], MapObservation],
    ) -> Probes:
        """The rows `runs` of frames (t,), each seen by `observe`."""
        rows = np.array([row for run in runs for row in run], dtype=np.intp)
        run_of = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        pictures = [observe(int(row)) for row in rows]
        return cls(poses[rows], source_of[rows], run_of, odometry[rows], ways[rows], pictures)


def way_along(poses: Array) -> Array:
    """How far a drive through `poses` (t, 3) has come at each: metres and radians (t, 2)."""
    ways = np.zeros((len(poses), 2))
    steps = np.diff(poses, axis=0)
    ways[1:, 0] = np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))
    ways[1:, 1] = np.cumsum(np.abs(wrap_angle(steps[:, 2])))
    return ways


def ways_of(poses: Array, source_of: Rows) -> Array:
    """How far the drive of each pose (t, 3) had come there, (t, 2)."""
    ways = np.zeros((len(poses), 2))
    for number in np.unique(source_of):
        own = source_of == number
        ways[own] = way_along(poses[own])
    return ways


def runs_along(ways: Array, source_of: Rows, spacing: float) -> list[Rows]:
    """Runs of frames with `ways` (t, 2), spread over all drives, half the map's `spacing` apart."""
    numbers = np.unique(source_of)
    runs = []
    for number in numbers:
        own = np.flatnonzero(source_of == number)
        way = ways[own].sum(axis=1)
        for start in np.linspace(0.02, 0.93, max(1, RUNS // len(numbers))) * way[-1]:
            at = start + 0.5 * spacing * np.arange(RUN_LENGTH)
            found = np.unique(np.minimum(np.searchsorted(way, at), len(way) - 1))
            runs.append(own[found])
    return runs
