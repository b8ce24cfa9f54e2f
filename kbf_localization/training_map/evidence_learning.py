"""Learns what evidence pictures are: for a place on the map, and for continuing the one before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, relative
from kbf_localization.training_map.fits import FEWEST, Features, fit_evidence, fit_lasting
from kbf_localization.training_map.held_out import HEADING_NEAR, THINNED, HeldOutPairs
from kbf_localization.training_map.learned import SAME_VIEW, Evidence
from kbf_localization.training_map.probes import RUN_LENGTH
from kbf_localization.training_map.view import View

APART = 0.8
"""Beyond 0.8 d₀ is elsewhere."""

LEAST_SHARE = 0.3
"""Of the resemblance: a pose that the map covers less well tells little about evidence."""

RANDOM_PLACES, FILM_OTHERS = 2, 4

Look = Callable[[int, Array, Rows], View]
"""The view of a probe, by its number, round a pose (3,), without some rows of the map."""


def learn_evidence(pairs: HeldOutPairs, look: Look, right: Sequence[Sequence[View]]) -> Evidence:
    """Evidence for a place, from `right` views, one of each probe for each of `THINNED`."""
    hardest, random = _elsewhere(pairs, look)
    # Evidence is for poses that the map covers: the two sparsest kinds say little.
    evidence = fit_evidence(
        [view.features for view in (*right[0], *right[1])],
        [view.features for view in hardest],
        [view.features for view in random],
    )
    return _with_statistics(evidence, pairs, right[0])


def _elsewhere(pairs: HeldOutPairs, look: Look) -> tuple[list[View], list[View]]:
    """Views of the probes at the place that looks most like theirs, and at random ones."""
    resemblance, generator = pairs.resemblance, pairs.generator
    offsets = _usual_offsets(pairs)

    def beside(column: int, number: int) -> View:
        """As far beside a map pose as right poses are, with no other one nearer."""
        offset = offsets[generator.integers(len(offsets))]
        place = compose(pairs.poses[column], offset)
        separation = resemblance.separation(relative(pairs.poses, place))
        nearer = separation < float(resemblance.separation(offset)) - 1e-9
        return look(number, place, pairs.rows[nearer | ~pairs.independent[number]])

    hardest: list[View] = []
    random: list[View] = []
    for number in range(len(pairs.probes)):
        away = pairs.distances[number] > APART * resemblance.distance_m
        away |= pairs.angles[number] > HEADING_NEAR * resemblance.angle_rad
        away &= pairs.independent[number] | ~pairs.other.any()
        candidates = np.flatnonzero(away)
        if len(candidates) == 0:
            continue
        best = candidates[np.argsort(-pairs.contrasts[number, candidates])[:3]]
        seen = [beside(int(column), number) for column in best]
        hardest.append(max(seen, key=lambda view: (view.prominence, view.contrast)))
        drawn = generator.choice(candidates, RANDOM_PLACES)
        random += [beside(int(column), number) for column in drawn]
    return hardest, random


def _usual_offsets(pairs: HeldOutPairs) -> Array:
    """The probes as seen from the nearest map pose that they are compared with."""
    found = []
    for number, pose in enumerate(pairs.probes.poses):
        offsets = relative(pairs.poses, pose)
        separation = pairs.resemblance.separation(offsets)
        separation[~pairs.independent[number]] = np.inf
        for radius in THINNED[:2]:
            separation[separation < radius] = np.inf
            nearest = int(np.argmin(separation))
            if separation[nearest] < 1.5:
                found.append(offsets[nearest])
    return np.array(found or [np.zeros(3)])


def _with_statistics(evidence: Evidence, pairs: HeldOutPairs, right: Sequence[View]) -> Evidence:
    """How long evidence lasts, and what it is at right poses."""
    covered = [number for number, view in enumerate(right) if view.share > LEAST_SHARE]
    if len(covered) < FEWEST:
        return evidence
    ratios = np.array([right[number].ratio(evidence) for number in covered])
    residuals = (ratios - ratios.mean())[:, None]
    length, lasting = fit_lasting(residuals, covered, pairs.probes, pairs.resemblance)
    usual, low = (float(value) for value in np.quantile(ratios, (0.5, 0.005)))
    # Many pictures along a way tell as much as one for each integral of the correlation.
    correlation = max(lasting * length, SAME_VIEW)
    lasting = min(correlation / length, 1.0)
    return replace(
        evidence, correlation=correlation, usual=usual, low=min(low, 0.0), lasting=lasting
    )


def learn_film(pairs: HeldOutPairs) -> Evidence:
    """Evidence that a picture was taken where odometry leads from the one before."""
    probes, resemblance, generator = pairs.probes, pairs.resemblance, pairs.generator
    following: Features = []
    others: Features = []
    for first in range(len(probes)):
        for second in range(first + 1, min(first + RUN_LENGTH // 2, len(probes))):
            if probes.run_of[first] != probes.run_of[second]:
                break
            motion = relative(probes.odometry[first], probes.odometry[second])
            share = float(resemblance.share(resemblance.separation(motion)))
            compared = probes.pictures[second].compared_with(probes.pictures[first])
            following.append((*compared, share))
        for second in generator.integers(len(probes), size=FILM_OTHERS if following else 0):
            if resemblance.between(probes.poses[first], probes.poses[second]) > 1.5:
                share = following[int(generator.integers(len(following)))][2]
                compared = probes.pictures[second].compared_with(probes.pictures[first])
                others.append((*compared, share))
    return fit_evidence(following, others, [])
