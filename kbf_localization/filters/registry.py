"""Makes pose filters by their names."""

from __future__ import annotations

from collections.abc import Mapping

from kbf_localization.filters.base import PoseFilter
from kbf_localization.filters.baselines.kernel_monte_carlo import KernelMonteCarloFilter
from kbf_localization.filters.baselines.nearest_image import NearestImage
from kbf_localization.filters.baselines.neighbour_particle_filter import NeighbourParticleFilter
from kbf_localization.filters.baselines.nonparametric_filter import NonparametricFilter
from kbf_localization.filters.hypothesis_filter import HypothesisFilter
from kbf_localization.filters.methods import unknown_method
from kbf_localization.filters.paper_filter import PaperFilter
from kbf_localization.filters.parameters import (
    KernelParameters,
    MonteCarloParameters,
    NonparametricParameters,
    ParticleParameters,
    parameters_of,
)
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.training_map.view import view_parameters


def make_filter(
    method: str,
    training_map: TrainingMap,
    parameters: Mapping[str, float] | None = None,
    seed: int = 0,
) -> PoseFilter:
    """The filter called `method`; `parameters` of None are the map's own, or its defaults."""
    stored = training_map.parameters if parameters is None else parameters
    if method == "kbf":
        return HypothesisFilter(training_map, view_parameters(stored))
    if method == "paper":
        return PaperFilter(training_map, parameters_of(KernelParameters, method, stored))
    if method == "fkbf":
        learnt = parameters_of(NonparametricParameters, method, stored)
        return NonparametricFilter(training_map, learnt)
    if method == "kmcf":
        sampled = parameters_of(MonteCarloParameters, method, stored)
        return KernelMonteCarloFilter(training_map, sampled, seed=seed)
    if method == "nn":
        particles = parameters_of(ParticleParameters, method, stored)
        return NeighbourParticleFilter(training_map, particles, seed=seed)
    if method == "nai":
        return NearestImage(training_map)
    raise unknown_method(method)
