"""The pose filters by the names that the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping

from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import PoseFilter
from kbf_localization.filters.baselines.kernel_monte_carlo import KernelMonteCarloFilter
from kbf_localization.filters.baselines.nearest_image import NearestImage
from kbf_localization.filters.baselines.neighbour_particle_filter import NeighbourParticleFilter
from kbf_localization.filters.baselines.nonparametric_filter import NonparametricFilter
from kbf_localization.filters.hypothesis_filter import HypothesisFilter
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

METHODS = ("kbf", "paper", "fkbf", "nn", "nai", "kmcf")
TITLES = {
    "kbf": "kernel Bayes filter",
    "kbf_smoothed": "kernel Bayes filter, looking back",
    "paper": "Algorithm 1 of the paper",
    "fkbf": "fully non-parametric kernel Bayes filter",
    "nn": "particle filter on the nearest images",
    "nai": "nearest image",
    "kmcf": "kernel Monte Carlo filter",
}


def check_methods(names: str) -> list[str]:
    """The methods in a list separated by commas, each once."""
    methods = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for method in methods:
        if method not in METHODS:
            raise _unknown(method)
    if not methods:
        raise ParameterError(f"no method is named: choose from {', '.join(METHODS)}")
    return methods


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
    raise _unknown(method)


def _unknown(method: str) -> ParameterError:
    return ParameterError(f"no method is called '{method}': choose from {', '.join(METHODS)}")
