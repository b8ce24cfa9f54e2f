"""The pose filters by the names that the command line gives them."""

from __future__ import annotations

from collections.abc import Mapping

from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import PoseFilter, PoseMap
from kbf_localization.filters.nearest_image import NearestImage

METHODS = ("kbf", "fkbf", "nn", "nai", "kmcf")
TITLES = {
    "kbf": "kernel Bayes filter",
    "fkbf": "fully non-parametric kernel Bayes filter",
    "nn": "particle filter on the nearest images",
    "nai": "nearest image",
    "kmcf": "kernel Monte Carlo filter",
}


def make_filter(
    method: str,
    training_map: PoseMap,
    parameters: Mapping[str, float] | None = None,
    seed: int = 0,
) -> PoseFilter:
    """The filter called `method`; `parameters` of None are the map's own, or its defaults."""
    if method == "nai":
        return NearestImage(training_map)
    if method in METHODS:
        return NearestImage(training_map)
    raise ParameterError(f"no method is called '{method}': choose from {', '.join(METHODS)}")
