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

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, embed, relative
from kbf_localization.training_map.fits import (
    FEWEST,
    fit_correlation,
    fit_evidence,
    fit_variances,
    robust_ridge,
)
from kbf_localization.training_map.held_out import HEADING_NEAR, HeldOutPairs
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

APART = 0.8
"""Beyond 0.8 d₀ is elsewhere."""

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

MOST_PAIRS = 800
RANDOM_PLACES, FILM_OTHERS = 2, 4


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
        self._pairs = HeldOutPairs(training_map, ways, probes, self._rng)
        self._resemblance = self._pairs.resemblance
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
            revisits=self._pairs.revisits,
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
        near = self._pairs.independent & (
            self._pairs.distances < READ_WITHIN * self._resemblance.distance_m
        )
        near &= self._pairs.angles < READ_HEADING * self._resemblance.angle_rad
        numbers, columns = np.nonzero(near)
        if len(numbers) < FEWEST or self._map.word_grids is None:
            return none
        chosen = np.sort(
            self._rng.choice(len(numbers), min(len(numbers), MOST_PAIRS), replace=False)
        )
        numbers, rows = numbers[chosen], self._pairs.rows[columns[chosen]]
        features = np.ones((len(chosen), 3))
        for number in np.unique(numbers):
            own = numbers == number
            aligned = self._probes.pictures[number].alignments(rows[own])
            if aligned is None:
                return none
            features[own, 0], features[own, 1] = aligned.shift, aligned.zoom
        targets = relative(self._map.poses[rows], self._probes.poses[numbers])
        coefficients = robust_ridge(features, targets)
        return replace(none, coefficients=tuple(triple(row) for row in coefficients))

    def _hidden(self, number: int, radius: float) -> Rows:
        """Rows that a probe must not be compared with, those within `radius` among them."""
        near = self._pairs.separations[number] < radius
        return np.asarray(self._pairs.rows[~self._pairs.independent[number] | near])

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
            away = self._pairs.distances[number] > APART * self._resemblance.distance_m
            away |= self._pairs.angles[number] > HEADING_NEAR * self._resemblance.angle_rad
            candidates = np.flatnonzero(
                away & (self._pairs.independent[number] | ~self._pairs.other.any())
            )
            if len(candidates) == 0:
                continue

            def beside(column: int, number: int = number) -> View:
                """As far beside a map pose as right poses are, with no other one nearer."""
                offset = offsets[self._rng.integers(len(offsets))]
                place = compose(self._pairs.poses[column], offset)
                separation = self._resemblance.separation(offsets_to(self._pairs.poses, place))
                nearer = separation < float(self._resemblance.separation(offset)) - 1e-9
                hidden = self._pairs.rows[nearer | ~self._pairs.independent[number]]
                return self._look(number, place, covariance, readout, hidden)

            best = candidates[np.argsort(-self._pairs.contrasts[number, candidates])[:3]]
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
            offsets = offsets_to(self._pairs.poses, self._probes.poses[number])
            separation = self._resemblance.separation(offsets)
            separation[~self._pairs.independent[number]] = np.inf
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
