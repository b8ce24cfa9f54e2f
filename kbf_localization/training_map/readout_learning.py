"""Learns to read the camera's offset from a map pose, and how far such a measured pose errs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.geometry import relative
from kbf_localization.training_map.fits import FEWEST, fit_lasting, fit_variances, robust_ridge
from kbf_localization.training_map.held_out import HeldOutPairs
from kbf_localization.training_map.learned import Readout, table, triple
from kbf_localization.training_map.view import View

READ_WITHIN, READ_HEADING = 0.42, 1.15
"""Pairs within 0.42 d₀ and 1.15 φ₀ teach the read-out: farther ones cannot be aligned."""

LEAST_SIGMA = np.array([0.03, 0.07, 0.07])
"""In d₀ and φ₀: drives along one path teach little about driving beside it."""

MOST_PAIRS = 800


def learn_readout(pairs: HeldOutPairs) -> Readout:
    """The linear map from shift and zoom to the offset, by robust ridge regression."""
    resemblance, probes, training_map = pairs.resemblance, pairs.probes, pairs.training_map
    wide = np.zeros((3, 3))
    wide[:, 0] = 2.0 * np.log(0.3 * resemblance.scales)
    none = Readout(
        coefficients=table(np.zeros((3, 3))),
        log_variance=table(wide),
        prominence=(0.0, 1.0),
        apparent=(0.0, 1.0),
        least_variance=triple((LEAST_SIGMA * resemblance.scales) ** 2),
        correlation=1.0,
        lasting=1.0,
    )
    near = pairs.independent & (pairs.distances < READ_WITHIN * resemblance.distance_m)
    near &= pairs.angles < READ_HEADING * resemblance.angle_rad
    numbers, columns = np.nonzero(near)
    if len(numbers) < FEWEST or training_map.word_grids is None:
        return none
    count = min(len(numbers), MOST_PAIRS)
    chosen = np.sort(pairs.generator.choice(len(numbers), count, replace=False))
    numbers, rows = numbers[chosen], pairs.rows[columns[chosen]]
    features = np.ones((len(chosen), 3))
    for number in np.unique(numbers):
        own = numbers == number
        aligned = probes.pictures[number].alignments(rows[own])
        if aligned is None:
            return none
        features[own, 0], features[own, 1] = aligned.shift, aligned.zoom
    targets = relative(training_map.poses[rows], probes.poses[numbers])
    return replace(none, coefficients=table(robust_ridge(features, targets)))


def with_errors(readout: Readout, pairs: HeldOutPairs, right: Sequence[Sequence[View]]) -> Readout:
    """With the errors of the poses measured in the `right` views, several of each probe.

    They are Student's, with a log variance that is linear in the match's quality.
    """
    probes, resemblance = pairs.probes, pairs.resemblance
    used = [
        (number, view, view.pose)
        for views in right
        for number, view in enumerate(views)
        if view.pose is not None
    ]
    if len(used) < FEWEST:
        return readout
    prominence = np.array([view.prominence for _, view, _ in used])
    apparent = resemblance.apparent([view.contrast for _, view, _ in used])
    errors = np.array([relative(probes.poses[number], pose) for number, _, pose in used])
    result = fit_variances(readout, errors, prominence, apparent, resemblance.scales)
    residuals = np.clip(errors / np.sqrt(result.variances(prominence, apparent)), -3.0, 3.0)
    numbers = [number for number, _, _ in used]
    correlation, lasting = fit_lasting(residuals, numbers, probes, resemblance, 5.0)
    return replace(result, correlation=correlation, lasting=lasting)
