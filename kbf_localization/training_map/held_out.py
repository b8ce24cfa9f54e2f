"""Which map pictures tell about a probe what a new drive's would; and how they resemble it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import embed, wrap_angle
from kbf_localization.training_map.fits import FEWEST, fit_resemblance
from kbf_localization.training_map.learned import Resemblance
from kbf_localization.training_map.probes import Probes

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

REVISIT = 4.0
"""A drive sees a place anew when it has travelled so far, in d/d₀ + φ/φ₀, in between."""

SEEN_ANEW = 0.7
"""Within this separation a place is seen again, and not another one near it."""

REVISITED = 0.3
"""Share of the probes that must be seen anew for the others to be left out."""

OWN_DRIVE = 0.25
"""Without revisits, map poses within this separation of a probe are not compared with it."""

NEAR, HEADING_NEAR = 1.6, 2.7
"""Pairs within 1.6 d₀ and 2.7 φ₀ tell how resemblance falls."""

THINNED = (0.0, 0.4, 0.8, 1.2)
"""Map poses within these separations are left out in turn, to learn what sparse maps are like."""

MOST_RESEMBLING = 4000
LARGE_MAP, LARGE_MAP_ROWS = 4000, 1000


class HeldOutPairs:
    """The p probes beside the m rows of the map that they are compared with.

    `distances`, `angles`, `contrasts` and `separations` (p, m) are those of the pairs, `other` says
    which are of two drives and `independent` which may be compared; `revisits` whether that is so
    because places were seen anew.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        ways: Array,
        probes: Probes,
        generator: np.random.Generator,
    ) -> None:
        """`ways` (n, 2) is how far the map's drives had come."""
        self.training_map = training_map
        self.probes = probes
        self.generator = generator
        self.rows = self._compared_rows()
        self.poses = training_map.poses[self.rows]
        self.other = probes.source_of[:, None] != training_map.source_of[self.rows][None]
        self._along = np.abs(probes.way[:, None] - ways[self.rows][None])
        offsets = probes.poses[:, None] - self.poses[None]
        self.distances = np.hypot(offsets[..., 0], offsets[..., 1])
        self.angles = np.abs(wrap_angle(offsets[..., 2]))
        self.contrasts = np.array([one.contrasts(self.rows) for one in probes.pictures])
        self.resemblance, self.revisits = self._fit_resemblance()
        self.separations = self._separations(self.resemblance)
        self.independent = self._independent_pairs(self.resemblance, self.revisits)

    def hidden(self, number: int, radius: float) -> Rows:
        """Rows that a probe must not be compared with, those within `radius` among them."""
        near = self.separations[number] < radius
        return np.asarray(self.rows[~self.independent[number] | near])

    def _separations(self, found: Resemblance) -> Array:
        return np.hypot(self.distances / found.distance_m, self.angles / found.angle_rad)

    def _compared_rows(self) -> Rows:
        """All rows of a map, or of a large one those near the probes and a random sample."""
        count = len(self.training_map)
        if count <= LARGE_MAP:
            return np.arange(count)
        from scipy.spatial import cKDTree

        _, near = cKDTree(embed(self.training_map.poses)).query(embed(self.probes.poses), k=20)
        sample = self.generator.choice(count, LARGE_MAP_ROWS, replace=False)
        return np.unique(np.concatenate((near.reshape(-1), sample)))

    def _independent_pairs(self, resemblance: Resemblance, revisits: bool) -> NDArray[np.bool_]:
        """(p, n): which map pictures tell about a probe what a new drive's would."""
        if revisits:
            scale = np.array([resemblance.distance_m, resemblance.angle_rad])
            return np.asarray(self.other | ((self._along / scale).sum(axis=-1) > REVISIT))
        return np.asarray(self.other | (self._separations(resemblance) >= OWN_DRIVE))

    def _fit_resemblance(self) -> tuple[Resemblance, bool]:
        """h by robust least squares on pairs within its own reach, again and again.

        At first the neighbours along the way teach the scales; where these show that places were
        seen anew, only such pairs count, for a new drive's pictures will not be neighbours.
        """
        extent = float(np.hypot(*np.ptp(self.training_map.poses[:, :2], axis=0))) + 1e-3
        found = Resemblance(0.8, 0.1 * extent, 0.5, 1.5)
        for _ in range(3):
            found = self._refitted(found, False, extent)
        anew = self._independent_pairs(found, True) & (self._separations(found) < SEEN_ANEW)
        revisits = bool(anew.sum() >= FEWEST and anew.any(axis=1).mean() > REVISITED)
        if revisits:
            for _ in range(2):
                found = self._refitted(found, True, extent)
        return found, revisits

    def _refitted(self, found: Resemblance, revisits: bool, extent: float) -> Resemblance:
        near = self._independent_pairs(found, revisits)
        near &= self.distances < NEAR * found.distance_m
        near &= self.angles < HEADING_NEAR * found.angle_rad
        pairs = np.flatnonzero(near)
        if len(pairs) < FEWEST:
            return replace(found, distance_m=min(2.0 * found.distance_m, extent))
        pairs = self.generator.choice(pairs, min(len(pairs), MOST_RESEMBLING), replace=False)
        return fit_resemblance(
            self.distances.reshape(-1)[pairs],
            self.angles.reshape(-1)[pairs],
            self.contrasts.reshape(-1)[pairs],
            found,
            extent,
        )
