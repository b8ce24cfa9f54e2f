"""Learns the scales of an image kernel from a map's own drives.

The probes are held out: each is compared with map images of other times alone. The kernel's
similarities are weights on the poses of these, and their kernel mean tells how probable the probe's
own pose is. The best scales are those under which the probes' poses are most probable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.limits import SCALES
from kbf_localization.training_map.held_out import HeldOutPairs
from kbf_localization.training_map.probes import Probes
from kbf_localization.training_map.view import ViewParameters

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

WIDTH = 0.4
"""Of the kernel on poses, in d₀ and φ₀: places so near look alike still."""

NOWHERE = 1e-3
"""Added to each probability, so that a probe without a like image decides nothing."""

PRIOR_SPREAD = 1.5
"""Before anything is learned, images of different places have −log k of 1, give or take e^1.5:
few probes must not make the kernel a spike."""

PROBES_AS_ONE = 10
"""The probes of a run see much the same."""

PASSES = 2
"""The pairs that may be compared depend on d₀, which is known better once the scales are."""

STEPS = (2.0, 2.0, 0.7, 0.25, 0.1)
"""Of the search, in logarithms: each scale moves by up to four of them, up or down."""


def learn_scales(
    training_map: TrainingMap, ways: Array, probes: Probes, parameters: ViewParameters, seed: int
) -> tuple[TrainingMap, Probes]:
    """The map whose kernel has learned its scales, and the probes compared with that one."""
    if not training_map.described_by.scales:
        return training_map, probes
    for _ in range(PASSES):
        scales = _best_scales(training_map, ways, probes, parameters, seed)
        training_map = replace(
            training_map, described_by=training_map.described_by.with_scales(scales)
        )
        pictures = [training_map.observe(one.description) for one in probes.pictures]
        probes = replace(probes, pictures=pictures)
    return training_map, probes


def _best_scales(
    training_map: TrainingMap, ways: Array, probes: Probes, parameters: ViewParameters, seed: int
) -> tuple[float, ...]:
    """By a search along each scale in turn, with ever smaller steps."""
    describer = training_map.described_by
    pairs = HeldOutPairs(training_map, ways, probes, np.random.default_rng(seed))
    seen = np.flatnonzero((pairs.independent & (pairs.separations < 1.0)).any(axis=1))
    if len(seen) == 0:
        return describer.scales
    gallery = training_map.gallery
    compared = np.stack(
        [gallery.compare(probes.pictures[int(k)].description.features, pairs.rows) for k in seen],
        axis=1,
    )
    density = np.exp(-0.5 * (pairs.separations[seen] / WIDTH) ** 2)
    allowed = pairs.independent[seen]
    power = max(1, round(parameters.power))

    def loss(scales: tuple[float, ...]) -> float:
        kernel = np.maximum(describer.with_scales(scales).kernel(compared), 1e-300)
        logarithms = np.where(allowed, power * np.log(kernel), -np.inf)
        weights = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
        probable = (weights * density).sum(axis=1) / weights.sum(axis=1)
        usual = -float(np.median(np.log(kernel)))
        prior = 0.5 * (float(np.log(max(usual, 1e-9))) / PRIOR_SPREAD) ** 2
        return -float(np.log(probable + NOWHERE).mean()) + prior * PROBES_AS_ONE / len(seen)

    best = (loss(describer.scales), tuple(describer.scales))
    for step in STEPS:
        for place in range(len(best[1])):
            tried = [best]
            for move in range(-4, 5):
                scales = list(best[1])
                scales[place] = float(np.clip(scales[place] * np.exp(0.5 * step * move), *SCALES))
                tried.append((loss(tuple(scales)), tuple(scales)))
            best = min(tried)
    return best[1]
