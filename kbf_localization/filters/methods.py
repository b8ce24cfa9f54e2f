"""The pose filters' names and titles, without their imports: a shell completes them at once.

Another package registers a filter under the entry point group `kbf_localization.filters`: its name,
and a function from map, parameters and seed to a `PoseFilter`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from kbf_localization.errors import ParameterError

METHODS = ("kbf", "paper", "paper-iw", "fkbf", "nn", "nn-paper", "nai", "kmcf")
TITLES = {
    "kbf": "kernel Bayes filter, the default",
    "kbf_smoothed": "kernel Bayes filter, smoothed",
    "paper": "Algorithm 1 of the paper",
    "paper-iw": "Algorithm 1, importance-weighted rule",
    "fkbf": "fKBF, fully non-parametric kernel Bayes filter",
    "nn": "NN with recovery, particle filter on the nearest images",
    "nn-paper": "NN as in the paper",
    "nai": "NAI, nearest image",
    "kmcf": "KMCF, kernel Monte Carlo filter",
}


GROUP = "kbf_localization.filters"


def method_names() -> tuple[str, ...]:
    """Return this package's methods, then those of other packages; no other takes its names."""
    others = sorted({point.name for point in entry_points(group=GROUP)} - set(METHODS))
    return (*METHODS, *others)


def registered(method: str) -> EntryPoint | None:
    """Return where another package has the filter called `method`; None for no such."""
    points = (point for point in entry_points(group=GROUP) if point.name == method)
    return None if method in METHODS else next(points, None)


def check_methods(names: str) -> list[str]:
    """Return the methods in a list separated by commas, each once."""
    methods = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for method in methods:
        if method not in METHODS and registered(method) is None:
            raise unknown_method(method)
    if not methods:
        raise ParameterError(f"no method is named: choose from {', '.join(method_names())}")
    return methods


def unknown_method(method: str) -> ParameterError:
    names = ", ".join(method_names())
    return ParameterError(f"no method is called '{method}': choose from {names}")
