"""Held-out images with known poses (probes) along the mapping drives, paired with map images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import embed, wrap_angle
from kbf_localization.mapping.regression import MIN_EXAMPLES, fit_similarity
from kbf_localization.training_map.calibration import SimilarityModel

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import MapObservation, TrainingMap

RUNS = 24
"""Runs of probes, spread over all drives."""

RUN_LENGTH = 10
"""Probes in a run: enough to estimate the correlation of errors along the path."""


@dataclass(frozen=True)
class Probes:
    """Hold p images with known `poses` (p, 3), of drives `source_of` (p,), in runs `run_of` (p,).

    The images of a run are in order along the path; `odometry` (p, 3) is the odometry's pose at
    each, `path_lengths` (p, 2) the length of the drive up to there, in metres and radians.
    """

    poses: Array
    source_of: Rows
    run_of: Rows
    odometry: Array
    path_lengths: Array
    observations: Sequence[MapObservation]

    def __len__(self) -> int:
        return len(self.poses)

    @classmethod
    def of(
        cls,
        runs: Sequence[Sequence[int] | Rows],
        poses: Array,
        source_of: Rows,
        odometry: Array,
        path_lengths: Array,
        observe: Callable[[int], MapObservation],
    ) -> Probes:
        """Take the rows `runs` of frames (t,); `observe` gives the observation of a row."""
        rows = np.array([row for run in runs for row in run], dtype=np.intp)
        run_of = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        observations = [observe(int(row)) for row in rows]
        return cls(
            poses[rows],
            source_of[rows],
            run_of,
            odometry[rows],
            path_lengths[rows],
            observations,
        )


def path_lengths_along(poses: Array) -> Array:
    """Return the path length up to each of `poses` (t, 3), in metres and radians (t, 2)."""
    lengths = np.zeros((len(poses), 2))
    steps = np.diff(poses, axis=0)
    lengths[1:, 0] = np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))
    lengths[1:, 1] = np.cumsum(np.abs(wrap_angle(steps[:, 2])))
    return lengths


def path_lengths_of(poses: Array, source_of: Rows) -> Array:
    """Return the path length of each pose's own drive up to that pose, (t, 2) of poses (t, 3)."""
    lengths = np.zeros((len(poses), 2))
    for number in np.unique(source_of):
        own = source_of == number
        lengths[own] = path_lengths_along(poses[own])
    return lengths


def runs_along(path_lengths: Array, source_of: Rows, spacing: float) -> list[Rows]:
    """Return runs of frames, spread over all drives, with half the map's `spacing` between frames.

    `path_lengths` (t, 2) are the frames'.
    """
    numbers = np.unique(source_of)
    runs = []
    for number in numbers:
        own = np.flatnonzero(source_of == number)
        length = path_lengths[own].sum(axis=1)
        for start in np.linspace(0.02, 0.93, max(1, RUNS // len(numbers))) * length[-1]:
            at = start + 0.5 * spacing * np.arange(RUN_LENGTH)
            found = np.unique(np.minimum(np.searchsorted(length, at), len(length) - 1))
            runs.append(own[found])
    return runs


MIN_REVISIT_DISTANCE = 4.0
"""Scaled distance d/d₀ + φ/φ₀ between two visits of a place by one drive."""

MAX_REVISIT_SEPARATION = 0.7
"""Separation within which two poses are visits of the same place."""

MIN_REVISITED_FRACTION = 0.3
"""Fraction of revisited probes from which on pairs of one visit are left out."""

MIN_OWN_SEPARATION = 0.25
"""Separation within which, without revisits, map poses of a probe's own drive are left out."""

FIT_DISTANCE, FIT_ANGLE = 1.6, 2.7
"""In d₀ and φ₀: pairs within them determine how the similarity falls with the separation."""

HOLD_OUT_RADII = (0.0, 0.4, 0.8, 1.2)
"""Separations within which map poses are left out in turn, to learn about sparse maps too."""

MAX_FIT_PAIRS = 4000
"""Pairs, drawn at random, to which the similarity is fitted."""

LARGE_MAP, LARGE_MAP_ROWS = 4000, 1000
"""Poses from which on only the probes' neighbours and so many random rows are compared."""


class HeldOutPairs:
    """Pair p probes with the m rows of the map that they are compared with.

    `distances`, `angles`, `contrasts` and `separations` (p, m) are those of the pairs; `other`
    (p, m) marks pairs of two drives, `independent` (p, m) the pairs that may be compared.
    `revisits` tells whether the drives revisit enough places to compare different visits only.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        path_lengths: Array,
        probes: Probes,
        generator: np.random.Generator,
    ) -> None:
        """Compare all pairs; `path_lengths` (n, 2) are those of the map's poses."""
        self.training_map = training_map
        self.probes = probes
        self.generator = generator
        self.rows = self._compared_rows()
        self.poses = training_map.poses[self.rows]
        self.other = probes.source_of[:, None] != training_map.source_of[self.rows][None]
        self._along = np.abs(probes.path_lengths[:, None] - path_lengths[self.rows][None])
        offsets = probes.poses[:, None] - self.poses[None]
        self.distances = np.hypot(offsets[..., 0], offsets[..., 1])
        self.angles = np.abs(wrap_angle(offsets[..., 2]))
        self.contrasts = np.array([seen.contrasts(self.rows) for seen in probes.observations])
        self.similarity, self.revisits = self._fit_similarity()
        self.separations = self._separations(self.similarity)
        self.independent = self._independent_pairs(self.similarity, self.revisits)

    def hidden(self, number: int, radius: float) -> Rows:
        """Return the rows that a probe must not be compared with, with those within `radius`."""
        near = self.separations[number] < radius
        return np.asarray(self.rows[~self.independent[number] | near])

    def _separations(self, found: SimilarityModel) -> Array:
        return np.hypot(self.distances / found.distance_m, self.angles / found.angle_rad)

    def _compared_rows(self) -> Rows:
        """Return all rows, or of a large map those near the probes and a random sample."""
        count = len(self.training_map)
        if count <= LARGE_MAP:
            return np.arange(count)
        from scipy.spatial import cKDTree

        _, near = cKDTree(embed(self.training_map.poses)).query(embed(self.probes.poses), k=20)
        sample = self.generator.choice(count, LARGE_MAP_ROWS, replace=False)
        return np.unique(np.concatenate((near.reshape(-1), sample)))

    def _independent_pairs(self, similarity: SimilarityModel, revisits: bool) -> NDArray[np.bool_]:
        """Mark the pairs (p, m) whose images are as independent as those of a new drive."""
        if revisits:
            scale = np.array([similarity.distance_m, similarity.angle_rad])
            return np.asarray(
                self.other | ((self._along / scale).sum(axis=-1) > MIN_REVISIT_DISTANCE)
            )
        return np.asarray(self.other | (self._separations(similarity) >= MIN_OWN_SEPARATION))

    def _fit_similarity(self) -> tuple[SimilarityModel, bool]:
        """Fit h by robust least squares to pairs within its own reach, iterated.

        The first passes use the neighbours along the path too. Where the scales so found show
        revisits, only these count, since the images of a new drive are no neighbours.
        """
        extent = float(np.hypot(*np.ptp(self.training_map.poses[:, :2], axis=0))) + 1e-3
        found = SimilarityModel(0.8, 0.1 * extent, 0.5, 1.5)
        for _ in range(3):
            found = self._refit(found, False, extent)
        revisited = self._independent_pairs(found, True)
        revisited &= self._separations(found) < MAX_REVISIT_SEPARATION
        revisits = bool(
            revisited.sum() >= MIN_EXAMPLES
            and revisited.any(axis=1).mean() > MIN_REVISITED_FRACTION
        )
        if revisits:
            for _ in range(2):
                found = self._refit(found, True, extent)
        return found, revisits

    def _refit(self, found: SimilarityModel, revisits: bool, extent: float) -> SimilarityModel:
        near = self._independent_pairs(found, revisits)
        near &= self.distances < FIT_DISTANCE * found.distance_m
        near &= self.angles < FIT_ANGLE * found.angle_rad
        pairs = np.flatnonzero(near)
        if len(pairs) < MIN_EXAMPLES:
            return replace(found, distance_m=min(2.0 * found.distance_m, extent))
        pairs = self.generator.choice(pairs, min(len(pairs), MAX_FIT_PAIRS), replace=False)
        return fit_similarity(
            self.distances.reshape(-1)[pairs],
            self.angles.reshape(-1)[pairs],
            self.contrasts.reshape(-1)[pairs],
            found,
            extent,
        )
