"""Makes pose filters by their names."""

from __future__ import annotations

from collections.abc import Mapping

from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.filters.base import PoseFilter
from kbf_localization.filters.baselines import (
    KernelMonteCarloFilter,
    NearestImage,
    NeighbourParticleFilter,
    NonparametricFilter,
)
from kbf_localization.filters.belief_filter import BeliefFilter
from kbf_localization.filters.methods import registered, unknown_method
from kbf_localization.filters.paper_filter import PoseKernelBayesFilter
from kbf_localization.filters.parameters import (
    BeliefParameters,
    ImportanceWeightedParameters,
    KernelParameters,
    MonteCarloParameters,
    NeighbourParameters,
    NonparametricParameters,
    ParticleParameters,
    parameters_of,
)
from kbf_localization.limits import ParameterValue
from kbf_localization.training_map.training_map import TrainingMap


def make_filter(
    method: str,
    training_map: TrainingMap,
    parameters: Mapping[str, ParameterValue] | None = None,
    seed: int = 0,
) -> PoseFilter:
    """Make the filter called `method`; without `parameters`, with the map's own or the defaults."""
    stored = training_map.parameters if parameters is None else parameters
    if method == "kbf":
        return BeliefFilter(training_map, parameters_of(BeliefParameters, "kbf", stored))
    if method == "paper":
        return PoseKernelBayesFilter(training_map, parameters_of(KernelParameters, method, stored))
    if method == "paper-iw":
        weighted = parameters_of(ImportanceWeightedParameters, method, stored)
        return PoseKernelBayesFilter(training_map, weighted)
    if method == "fkbf":
        learnt = parameters_of(NonparametricParameters, method, stored)
        return NonparametricFilter(training_map, learnt)
    if method == "kmcf":
        sampled = parameters_of(MonteCarloParameters, method, stored)
        return KernelMonteCarloFilter(training_map, sampled, seed=seed)
    if method == "nn":
        particles = parameters_of(ParticleParameters, method, stored)
        return NeighbourParticleFilter(training_map, particles, seed=seed)
    if method == "nn-paper":
        described = parameters_of(NeighbourParameters, method, stored)
        return NeighbourParticleFilter(training_map, described, seed=seed)
    if method == "nai":
        return NearestImage(training_map)
    return _registered_filter(method, training_map, stored, seed)


def _registered_filter(
    method: str, training_map: TrainingMap, parameters: Mapping[str, ParameterValue], seed: int
) -> PoseFilter:
    """Make the filter that another package has registered under this name."""
    point = registered(method)
    if point is None:
        raise unknown_method(method)
    try:
        made: PoseFilter = point.load()(training_map, parameters, seed)
    except KbfError:
        raise
    except Exception as error:  # another package's code may raise anything
        raise ParameterError(f"the method '{method}' cannot be made: {error}") from error
    return made
