"""The pose filters' names and titles, without their imports: a shell completes them at once."""

from __future__ import annotations

from kbf_localization.errors import ParameterError

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
            raise unknown_method(method)
    if not methods:
        raise ParameterError(f"no method is named: choose from {', '.join(METHODS)}")
    return methods


def unknown_method(method: str) -> ParameterError:
    return ParameterError(f"no method is called '{method}': choose from {', '.join(METHODS)}")
