"""The function x^ν K_ν(x) of Matérn kernels, for any order and without overflow."""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np
from scipy.special import kve

from kbf_localization.arrays import Array

_LARGE_ORDER = 60.0


def log_scaled_bessel(order: float, x: Array) -> Array:
    """log(x^ν K_ν(x)) for ν = `order` > 0 and x ≥ 0; at zero its limit, log(2^(ν−1) Γ(ν))."""
    if order > _LARGE_ORDER:
        return _log_uniform_expansion(order, x)
    limit = (order - 1.0) * log(2.0) + lgamma(order)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = kve(order, x)
        values = order * np.log(x) + np.log(scaled) - x
    # Where K_ν overflows, x is so small that the limit is exact to rounding.
    return np.where(np.isfinite(scaled) & (x > 0.0), values, np.where(x < 1.0, limit, -np.inf))


def _log_uniform_expansion(order: float, x: Array) -> Array:
    """Debye's expansion for large orders (DLMF 10.41.4) with four terms, error below 1e-10."""
    root = np.sqrt(1.0 + (x / order) ** 2)
    p = 1.0 / root
    square = p * p
    terms = (
        p * (3.0 - 5.0 * square) / 24.0,
        square * (81.0 - 462.0 * square + 385.0 * square**2) / 1152.0,
        p**3
        * (30375.0 - 369603.0 * square + 765765.0 * square**2 - 425425.0 * square**3)
        / 414720.0,
        square**2
        * (
            4465125.0
            - 94121676.0 * square
            + 349922430.0 * square**2
            - 446185740.0 * square**3
            + 185910725.0 * square**4
        )
        / 39813120.0,
    )
    series = 1.0 + sum((-1.0 / order) ** k * term for k, term in enumerate(terms, start=1))
    leading = 0.5 * log(pi / (2.0 * order)) - 0.5 * np.log(root)
    return np.asarray(leading + np.log(series) + order * (np.log(order * (1.0 + root)) - root))
