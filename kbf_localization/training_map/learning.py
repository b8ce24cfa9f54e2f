"""Learns from a map's own drives how its pictures resemble each other and how far to trust them.

Probes, pictures of the drives with known poses, are compared with map pictures of other times, as
a new drive's pictures will be: of other drives, or of the same drive when it came by again. Where a
drive never does, map poses near the probe are left out instead, and the map remembers that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, embed, relative, wrap_angle
from kbf_localization.training_map.fits import (
    FEWEST,
    fit_correlation,
    fit_evidence,
    fit_resemblance,
    fit_variances,
    robust_ridge,
)
from kbf_localization.training_map.learned import (
    SAME_VIEW,
    Evidence,
    Learned,
    MotionNoise,
    Readout,
    Resemblance,
    triple,
)
from kbf_localization.training_map.probes import RUN_LENGTH, Probes, runs_along, ways_of
from kbf_localization.training_map.view import (
    MapViews,
    View,
    ViewParameters,
    map_spacing,
    offsets_to,
)

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

NEAR, HEADING_NEAR, APART = 1.6, 2.7, 0.8
"""Pairs within 1.6 d₀ and 2.7 φ₀ tell how resemblance falls; beyond 0.8 d₀ is elsewhere."""

READ_WITHIN, READ_HEADING = 0.42, 1.15
"""Pairs within 0.42 d₀ and 1.15 φ₀ teach the read-out: farther ones cannot be aligned."""

JITTER = np.array([0.08, 0.08, 0.14])
"""How far off, in d₀ and φ₀, a right hypothesis is while it tracks."""

THINNED = (0.0, 0.4, 0.8, 1.2)
"""Map poses within these separations are left out in turn, to learn what sparse maps are like."""

LEAST_SIGMA = np.array([0.03, 0.07, 0.07])
"""In d₀ and φ₀: drives along one path teach little about driving beside it."""

LEAST_SHARE = 0.3
"""Of the resemblance: a pose that the map covers less well tells little about evidence."""

MOST_PAIRS, MOST_RESEMBLING = 800, 4000
RANDOM_PLACES, FILM_OTHERS = 2, 4
LARGE_MAP, LARGE_MAP_ROWS = 4000, 1000


def learn_from_map(training_map: TrainingMap) -> Learned:
    """What a map can learn with no more than itself, its own poses being the probes."""
    poses, source_of = training_map.poses, training_map.source_of
    ways = ways_of(poses, source_of)
    runs = runs_along(ways, source_of, map_spacing(embed(poses)))
    variances = np.maximum(training_map.motion_variances, 0.0)
    step = np.nanmedian(np.hypot(training_map.motions[:, 0], training_map.motions[:, 1]))
    per_metre = np.array([variances[0], variances[1], variances[2] + variances[3]])
    per_metre = per_metre / max(float(np.nan_to_num(step)), 0.05) + 4e-4
    probes = Probes.of(
        runs,
        poses,
        source_of,
        poses,
        ways,
        lambda row: training_map.observe(training_map.description(row)),
    )
    noise = MotionNoise(triple(per_metre), triple(per_metre))
    return learn(training_map, ways, probes, lambda _: noise)


def learn(
    training_map: TrainingMap,
    ways: Array,
    probes: Probes,
    motion_noise: Callable[[Resemblance], MotionNoise],
    parameters: ViewParameters = ViewParameters(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Learned:
    """What the map learns from its probes; `ways` (n, 2) is how far its drives had come.

    `motion_noise` estimates the odometry's noise over the map's own scales.
    """
    return _Lesson(training_map, ways, probes, parameters, seed).learned(motion_noise)


def held_out_pairs(
    training_map: TrainingMap, ways: Array, probes: Probes, parameters: ViewParameters, seed: int
) -> tuple[Rows, Array, NDArray[np.bool_]]:
    """Rows (m,) of the map, their separations (p, m) from the probes, and which may be compared."""
    return _Lesson(training_map, ways, probes, parameters, seed).pairs()


class _Lesson:
    """The probes beside the part of the map that they may be compared with."""

    def __init__(
        self,
        training_map: TrainingMap,
        ways: Array,
        probes: Probes,
        parameters: ViewParameters,
        seed: int,
    ) -> None:
        self._map = training_map
        self._probes = probes
        self._rng = np.random.default_rng(seed)
        self._rows = self._compared_rows()
        self._poses = training_map.poses[self._rows]
        self._other = probes.source_of[:, None] != training_map.source_of[self._rows][None]
        self._along = np.abs(probes.way[:, None] - ways[self._rows][None])
        offsets = probes.poses[:, None] - self._poses[None]
        self._distances = np.hypot(offsets[..., 0], offsets[..., 1])
        self._angles = np.abs(wrap_angle(offsets[..., 2]))
        self._contrasts = np.array([one.contrasts(self._rows) for one in probes.pictures])
        self._resemblance, self._revisits = self._fit_resemblance()
        self._independent = self._independent_pairs(self._resemblance, self._revisits)
        self._views = MapViews(training_map, self._resemblance, parameters)

    def learned(self, motion_noise: Callable[[Resemblance], MotionNoise]) -> Learned:
        readout = self._fit_readout()
        jitter = JITTER * self._resemblance.scales
        covariance = np.diag(jitter**2)
        right: list[View] = []
        for radius in THINNED:
            starts = compose(
                self._probes.poses, self._rng.normal(size=self._probes.poses.shape) * jitter
            )
            right += [
                self._look(
                    number, starts[number], covariance, readout, self._hidden(number, radius)
                )
                for number in range(len(self._probes))
            ]
        readout = self._with_errors(readout, right)
        # Evidence is for poses that the map covers: the two sparsest kinds say little.
        covered = right[: 2 * len(self._probes)]
        wrong = self._elsewhere(covariance, readout)
        evidence = fit_evidence(
            [(one.contrast, one.prominence, one.share) for one in covered],
            [(one.contrast, one.prominence, one.share) for one in wrong[0]],
            [(one.contrast, one.prominence, one.share) for one in wrong[1]],
        )
        return Learned(
            resemblance=self._resemblance,
            evidence=self._with_statistics(evidence, right[: len(self._probes)]),
            film=self._fit_film(),
            readout=readout,
            motion_noise=motion_noise(self._resemblance),
            drives=len(np.unique(self._map.source_of)),
            probes=len(self._probes),
            revisits=self._revisits,
        )

    def pairs(self) -> tuple[Rows, Array, NDArray[np.bool_]]:
        d0, phi0 = self._resemblance.distance_m, self._resemblance.angle_rad
        return self._rows, np.hypot(self._distances / d0, self._angles / phi0), self._independent

    def _compared_rows(self) -> Rows:
        """All rows of a map, or of a large one those near the probes and a random sample."""
        count = len(self._map)
        if count <= LARGE_MAP:
            return np.arange(count)
        from scipy.spatial import cKDTree

        _, near = cKDTree(embed(self._map.poses)).query(embed(self._probes.poses), k=20)
        sample = self._rng.choice(count, LARGE_MAP_ROWS, replace=False)
        return np.unique(np.concatenate((near.reshape(-1), sample)))

    def _independent_pairs(self, resemblance: Resemblance, revisits: bool) -> np.ndarray:
        """(p, n): which map pictures tell about a probe what a new drive's would."""
        if revisits:
            scale = np.array([resemblance.distance_m, resemblance.angle_rad])
            return np.asarray(self._other | ((self._along / scale).sum(axis=-1) > REVISIT))
        separation = np.hypot(
            self._distances / resemblance.distance_m, self._angles / resemblance.angle_rad
        )
        return np.asarray(self._other | (separation >= OWN_DRIVE))

    def _fit_resemblance(self) -> tuple[Resemblance, bool]:
        """h by robust least squares on pairs within its own reach, again and again.

        At first the neighbours along the way teach the scales; where these show that places were
        seen anew, only such pairs count, for a new drive's pictures will not be neighbours.
        """
        extent = float(np.hypot(*np.ptp(self._map.poses[:, :2], axis=0))) + 1e-3
        found = Resemblance(0.8, 0.1 * extent, 0.5, 1.5)
        for _ in range(3):
            found = self._refitted(found, False, extent)
        separation = np.hypot(self._distances / found.distance_m, self._angles / found.angle_rad)
        anew = self._independent_pairs(found, True) & (separation < SEEN_ANEW)
        revisits = bool(anew.sum() >= FEWEST and anew.any(axis=1).mean() > REVISITED)
        if revisits:
            for _ in range(2):
                found = self._refitted(found, True, extent)
        return found, revisits

    def _refitted(self, found: Resemblance, revisits: bool, extent: float) -> Resemblance:
        near = self._independent_pairs(found, revisits)
        near &= self._distances < NEAR * found.distance_m
        near &= self._angles < HEADING_NEAR * found.angle_rad
        pairs = np.flatnonzero(near)
        if len(pairs) < FEWEST:
            return replace(found, distance_m=min(2.0 * found.distance_m, extent))
        pairs = self._rng.choice(pairs, min(len(pairs), MOST_RESEMBLING), replace=False)
        return fit_resemblance(
            self._distances.reshape(-1)[pairs],
            self._angles.reshape(-1)[pairs],
            self._contrasts.reshape(-1)[pairs],
            found,
            extent,
        )

    def _fit_readout(self) -> Readout:
        """The linear map from shift and zoom to the offset, by robust ridge regression."""
        wide = triple(2.0 * np.log(0.3 * self._resemblance.scales))
        none = Readout(
            coefficients=((0.0,) * 3,) * 3,
            log_variance=tuple((value, 0.0, 0.0) for value in wide),
            prominence=(0.0, 1.0),
            apparent=(0.0, 1.0),
            least_variance=triple((LEAST_SIGMA * self._resemblance.scales) ** 2),
            correlation=1.0,
            lasting=1.0,
        )
        near = self._independent & (self._distances < READ_WITHIN * self._resemblance.distance_m)
        near &= self._angles < READ_HEADING * self._resemblance.angle_rad
        numbers, columns = np.nonzero(near)
        if len(numbers) < FEWEST or self._map.word_grids is None:
            return none
        chosen = np.sort(
            self._rng.choice(len(numbers), min(len(numbers), MOST_PAIRS), replace=False)
        )
        features = np.ones((len(chosen), 3))
        targets = np.empty((len(chosen), 3))
        for index, pair in enumerate(chosen):
            number, row = int(numbers[pair]), self._rows[columns[pair]]
            aligned = self._probes.pictures[number].alignments(np.array([row]))
            if aligned is None:
                return none
            features[index, :2] = aligned.shift[0], aligned.zoom[0]
            targets[index] = relative(self._map.poses[row], self._probes.poses[number])
        coefficients = robust_ridge(features, targets)
        return replace(none, coefficients=tuple(triple(row) for row in coefficients))

    def _hidden(self, number: int, radius: float) -> Rows:
        """Rows that a probe must not be compared with, those within `radius` among them."""
        separation = np.hypot(
            self._distances[number] / self._resemblance.distance_m,
            self._angles[number] / self._resemblance.angle_rad,
        )
        return np.asarray(self._rows[~self._independent[number] | (separation < radius)])

    def _look(
        self, number: int, pose: Array, covariance: Array, readout: Readout, without: Rows
    ) -> View:
        return self._views.look(self._probes.pictures[number], pose, covariance, readout, without)

    def _with_errors(self, readout: Readout, right: Sequence[View]) -> Readout:
        """The measured poses' errors: Student's, log variance linear in the match's quality."""
        count = len(self._probes)
        used = np.array([k for k, one in enumerate(right) if one.pose is not None], dtype=np.intp)
        if len(used) < FEWEST:
            return readout
        numbers = used % count
        prominence = np.array([right[k].prominence for k in used])
        apparent = self._resemblance.apparent([right[k].contrast for k in used])
        errors = np.array([relative(self._probes.poses[k % count], right[k].pose) for k in used])
        result = fit_variances(readout, errors, prominence, apparent, self._resemblance.scales)
        residuals = errors / np.sqrt(result.variances(prominence, apparent))
        correlation, lasting = self._correlation(np.clip(residuals, -3.0, 3.0), numbers, 5.0)
        return replace(result, correlation=correlation, lasting=lasting)

    def _correlation(
        self, residuals: Array, numbers: Rows, longest: float | None = None
    ) -> tuple[float, float]:
        """The travel over which residuals (u, k) of these probes last, and the share that does.

        It is sought up to `longest`; without that up to the farthest that the probes of a run are
        apart, and not beyond one: a whole scale apart, views are others.
        """
        travels, products = [], []
        for first in range(len(numbers)):
            for second in range(first + 1, min(first + RUN_LENGTH + 2, len(numbers))):
                a, b = numbers[first], numbers[second]
                if b <= a or self._probes.run_of[a] != self._probes.run_of[b]:
                    break
                travels.append(
                    self._resemblance.travel(*np.abs(self._probes.way[b] - self._probes.way[a]))
                )
                products.append(float(np.mean(residuals[first] * residuals[second])))
        if len(travels) < FEWEST:
            return 1.0, 1.0
        measured = np.array(products) / max(float(np.mean(residuals**2)), 1e-12)
        return fit_correlation(np.array(travels), measured, longest or min(max(travels), 1.0))

    def _elsewhere(self, covariance: Array, readout: Readout) -> tuple[list[View], list[View]]:
        """Views of the probes at the place that looks most like theirs, and at random ones."""
        hardest: list[View] = []
        random: list[View] = []
        offsets = self._usual_offsets()
        for number in range(len(self._probes)):
            away = self._distances[number] > APART * self._resemblance.distance_m
            away |= self._angles[number] > HEADING_NEAR * self._resemblance.angle_rad
            candidates = np.flatnonzero(away & (self._independent[number] | ~self._other.any()))
            if len(candidates) == 0:
                continue

            def beside(column: int, number: int = number) -> View:
                """As far beside a map pose as right poses are, with no other one nearer."""
                offset = offsets[self._rng.integers(len(offsets))]
                place = compose(self._poses[column], offset)
                separation = self._resemblance.separation(offsets_to(self._poses, place))
                nearer = separation < float(self._resemblance.separation(offset)) - 1e-9
                hidden = self._rows[nearer | ~self._independent[number]]
                return self._look(number, place, covariance, readout, hidden)

            best = candidates[np.argsort(-self._contrasts[number, candidates])[:3]]
            hardest.append(
                max(
                    (beside(int(column)) for column in best),
                    key=lambda one: (one.prominence, one.contrast),
                )
            )
            random += [beside(int(one)) for one in self._rng.choice(candidates, RANDOM_PLACES)]
        return hardest, random

    def _usual_offsets(self) -> Array:
        """The probes as seen from the nearest map pose that they are compared with."""
        found = []
        for number in range(len(self._probes)):
            offsets = offsets_to(self._poses, self._probes.poses[number])
            separation = self._resemblance.separation(offsets)
            separation[~self._independent[number]] = np.inf
            for radius in THINNED[:2]:
                separation[separation < radius] = np.inf
                nearest = int(np.argmin(separation))
                if separation[nearest] < 1.5:
                    found.append(offsets[nearest])
        return np.array(found or [np.zeros(3)])

    def _with_statistics(self, evidence: Evidence, right: Sequence[View]) -> Evidence:
        """How long evidence lasts, and what it is at right poses."""
        covered = np.array([k for k, one in enumerate(right) if one.share > LEAST_SHARE])
        if len(covered) < FEWEST:
            return evidence
        ratios = np.array([right[k].ratio(evidence) for k in covered])
        length, lasting = self._correlation((ratios - ratios.mean())[:, None], covered)
        usual, low = (float(value) for value in np.quantile(ratios, (0.5, 0.005)))
        # Many pictures along a way tell as much as one for each integral of the correlation.
        correlation = max(lasting * length, SAME_VIEW)
        lasting = min(correlation / length, 1.0)
        return replace(
            evidence, correlation=correlation, usual=usual, low=min(low, 0.0), lasting=lasting
        )

    def _fit_film(self) -> Evidence:
        """Evidence that a picture was taken where odometry leads from the one before."""
        probes, resemblance = self._probes, self._resemblance
        following: list[tuple[float, float, float]] = []
        others: list[tuple[float, float, float]] = []
        for first in range(len(probes)):
            for second in range(first + 1, min(first + RUN_LENGTH // 2, len(probes))):
                if probes.run_of[first] != probes.run_of[second]:
                    break
                motion = relative(probes.odometry[first], probes.odometry[second])
                share = float(resemblance.share(resemblance.separation(motion)))
                compared = probes.pictures[second].compared_with(probes.pictures[first])
                following.append((*compared, share))
            for second in self._rng.integers(len(probes), size=FILM_OTHERS if following else 0):
                offset = relative(probes.poses[first], probes.poses[second])
                if float(resemblance.separation(offset)) > 1.5:
                    share = following[int(self._rng.integers(len(following)))][2]
                    compared = probes.pictures[second].compared_with(probes.pictures[first])
                    others.append((*compared, share))
        return fit_evidence(following, others, [])
