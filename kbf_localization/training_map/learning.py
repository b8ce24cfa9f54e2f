"""Learns from a map's own drives how its pictures resemble each other and how far to trust them.

Probes, pictures of the drives with known poses, are compared with map pictures of other times, as
a new drive's pictures will be: of other drives, or of the same drive when it came by again. Where a
drive never does, map poses near the probe are left out instead, and the map remembers that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, embed
from kbf_localization.training_map.evidence_learning import learn_evidence, learn_film
from kbf_localization.training_map.held_out import THINNED, HeldOutPairs
from kbf_localization.training_map.learned import Learned, MotionNoise, Resemblance, triple
from kbf_localization.training_map.probes import Probes, runs_along, ways_of
from kbf_localization.training_map.readout_learning import learn_readout, with_errors
from kbf_localization.training_map.view import MapViews, View, ViewParameters, map_spacing

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

JITTER = np.array([0.08, 0.08, 0.14])
"""How far off, in d₀ and φ₀, a right hypothesis is while it tracks."""


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
    generator = np.random.default_rng(seed)
    pairs = HeldOutPairs(training_map, ways, probes, generator)
    resemblance = pairs.resemblance
    readout = learn_readout(pairs)
    views = MapViews(training_map, resemblance, parameters)
    jitter = JITTER * resemblance.scales
    covariance = np.diag(jitter**2)

    def look(number: int, pose: Array, without: Rows) -> View:
        return views.look(probes.pictures[number], pose, covariance, readout, without)

    right = []
    for radius in THINNED:
        starts = compose(probes.poses, generator.normal(size=probes.poses.shape) * jitter)
        right.append(
            [
                look(number, start, pairs.hidden(number, radius))
                for number, start in enumerate(starts)
            ]
        )
    return Learned(
        resemblance=resemblance,
        evidence=learn_evidence(pairs, look, right),
        film=learn_film(pairs),
        readout=with_errors(readout, pairs, right),
        motion_noise=motion_noise(resemblance),
        drives=len(np.unique(training_map.source_of)),
        probes=len(probes),
        revisits=pairs.revisits,
    )
