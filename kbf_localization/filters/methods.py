"""The pose filters' names and titles, without their imports: a shell completes them at once."""

from __future__ import annotations

from kbf_localization.errors import ParameterError

METHODS = ("kbf", "paper", "paper-iw", "fkbf", "nn", "nn-paper", "nai", "kmcf")
TITLES = {
    "kbf": "kbf, the default filter",
    "kbf_smoothed": "kbf, the default filter, smoothed",
    "paper": "paper, Algorithm 1",
    "paper-iw": "paper-iw, Algorithm 1, importance-weighted rule",
    "fkbf": "fKBF, fully non-parametric kernel Bayes filter",
    "nn": "NN with recovery, particle filter on the nearest images",
    "nn-paper": "NN as in the paper",
    "nai": "NAI, nearest image",
    "kmcf": "KMCF, kernel Monte Carlo filter",
}


def check_methods(names: str) -> list[str]:
    """Return the methods in a list separated by commas, each once."""
    methods = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for method in methods:
        if method not in METHODS:
            raise unknown_method(method)
    if not methods:
        raise ParameterError(f"no method is named: choose from {', '.join(METHODS)}")
    return methods


def unknown_method(method: str) -> ParameterError:
    return ParameterError(f"no method is called '{method}': choose from {', '.join(METHODS)}")
