"""Makes pose filters by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from kbf_localization.filters.parameters import METHOD_PARAMETERS, parameters_of
from kbf_localization.limits import ParameterValue
from kbf_localization.training_map.training_map import TrainingMap

FILTERS: Mapping[str, Callable[..., PoseFilter]] = {
    "kbf": BeliefFilter,
    "paper": PoseKernelBayesFilter,
    "paper-iw": PoseKernelBayesFilter,
    "fkbf": NonparametricFilter,
    "kmcf": KernelMonteCarloFilter,
    "nn": NeighbourParticleFilter,
    "nn-paper": NeighbourParticleFilter,
}
"""Made of a map and of the method's parameters, those that sample also of a seed."""

SAMPLING = ("kmcf", "nn", "nn-paper")


def make_filter(
    method: str,
    training_map: TrainingMap,
    parameters: Mapping[str, ParameterValue] | None = None,
    seed: int = 0,
) -> PoseFilter:
    """Make the filter called `method`; without `parameters`, with the map's own or the defaults."""
    stored = training_map.parameters if parameters is None else parameters
    if method == "nai":
        return NearestImage(training_map)
    if method not in FILTERS:
        return _registered_filter(method, training_map, stored, seed)
    chosen = parameters_of(METHOD_PARAMETERS[method], method, stored)
    sampling = {"seed": seed} if method in SAMPLING else {}
    return FILTERS[method](training_map, chosen, **sampling)


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
