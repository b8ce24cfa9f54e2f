"""Variance-gamma noise, of which Matérn kernels and the Laplace distribution are cases."""

from __future__ import annotations

from math import lgamma, log, pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import kve, roots_genlaguerre

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import EllipticalDensity
from kbf_localization.embeddings.noise import gaussian_nodes
from kbf_localization.embeddings.validation import as_positive

_LARGE_ORDER = 60.0
"""Of K_ν, from which on Debye's expansion is used: SciPy's overflows where it still matters."""


class VarianceGammaNoise(EllipticalDensity):
    """p_VG(x | λ, α, μ, Σ) (Appendix A): a normal whose variance is gamma distributed.

    `shape` is λ > m/2, `rate` is α > 0, `scale` is Σ. The printed density lacks |Σ|^(−1/2). With
    λ = (m + 1)/2 and α = 1 it is the Laplace distribution.
    """

    def __init__(
        self, shape: float, rate: float, scale: ArrayLike, location: ArrayLike | None = None
    ) -> None:
        super().__init__(scale, location, "scale")
        self.shape = as_positive("shape", shape)
        self.rate = as_positive("rate", rate)
        self._order = self.shape - self.dimension / 2.0
        if self._order <= 0.0:
            raise ValueError(
                f"shape: must be above half the dimension, {self.dimension / 2.0}, got {shape}"
            )
        self._log_constant = (
            (1.0 - self.shape) * log(2.0)
            - 0.5 * self.dimension * log(2.0 * pi)
            - lgamma(self.shape)
            + self.dimension * log(self.rate)
            - 0.5 * self._log_determinant
        )

    @classmethod
    def laplace(cls, scale: ArrayLike, location: ArrayLike | None = None) -> VarianceGammaNoise:
        """Return the Laplace distribution with scale matrix Σ."""
        size = len(np.atleast_2d(np.asarray(scale)))
        return cls((size + 1.0) / 2.0, 1.0, scale, location)

    def radial(self, squared: Array) -> Array:
        scaled = log_scaled_bessel(self._order, self.rate * np.sqrt(squared))
        return np.asarray(np.exp(self._log_constant + scaled))

    def radial_slope(self, squared: Array) -> Array:
        # d/dr of r^ν K_ν(αr) is −α r^ν K_(ν−1)(αr), and K_(−μ) = K_μ. For ν ≤ 1 the slope has a
        # pole at zero; the floor keeps it finite there and changes nothing elsewhere.
        distance = np.maximum(self.rate * np.sqrt(squared), 1e-12)
        lower = self._order - 1.0
        if lower > 0.0:
            bessel = log_scaled_bessel(lower, distance)
        else:
            bessel = lower * np.log(distance) + np.log(kve(lower, distance)) - distance
        return np.asarray(0.5 * self.rate**2 * np.exp(self._log_constant + bessel))

    def centred_convolution(self, other: EllipticalDensity, location: Array) -> VarianceGammaNoise:
        if not isinstance(other, VarianceGammaNoise):
            raise self._no_closed_form(other)
        mine, theirs = self.scale / self.rate**2, other.scale / other.rate**2
        if not np.allclose(mine, theirs, rtol=1e-9, atol=1e-12 * float(np.trace(mine))):
            raise self._no_closed_form(other, " unless both have the same scale matrix over α²")
        return VarianceGammaNoise(self.shape + other.shape, self.rate, self.scale, location)

    def moved(self, location: Array, scale: Array) -> VarianceGammaNoise:
        return VarianceGammaNoise(self.shape, self.rate, scale, location)

    def sample(self, count: int, generator: np.random.Generator) -> Array:
        variances = generator.gamma(self.shape, 2.0 / self.rate**2, (count, 1))
        normal = generator.standard_normal((count, self.dimension))
        normal = np.sqrt(variances) * normal
        return np.asarray(self.location + normal @ np.linalg.cholesky(self.scale).T)

    def quadrature(self, order: int) -> tuple[Array, Array]:
        variances, variance_weights = roots_genlaguerre(order, self.shape - 1.0)
        nodes, weights = gaussian_nodes(self.scale, order)
        spread = np.sqrt(2.0 * variances / self.rate**2)
        points = (spread[:, None, None] * nodes[None]).reshape(-1, self.dimension)
        return points + self.location, np.outer(
            variance_weights / variance_weights.sum(), weights
        ).ravel()

    def same_as(self, other: object) -> bool:
        return (
            isinstance(other, VarianceGammaNoise)
            and bool(np.isclose(other.shape, self.shape, rtol=1e-12))
            and bool(np.isclose(other.rate, self.rate, rtol=1e-12))
            and super().same_as(other)
        )


def log_scaled_bessel(order: float, x: Array) -> Array:
    """Return log(x^ν K_ν(x)) for ν = `order` > 0 and x ≥ 0, without overflow.

    At zero it is the limit, log(2^(ν−1) Γ(ν)).
    """
    if order > _LARGE_ORDER:
        return _log_uniform_expansion(order, x)
    limit = (order - 1.0) * log(2.0) + lgamma(order)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = kve(order, x)
        values = order * np.log(x) + np.log(scaled) - x
    # Where K_ν overflows, x is so small that the limit is exact to rounding.
    return np.where(np.isfinite(scaled) & (x > 0.0), values, np.where(x < 1.0, limit, -np.inf))


def _log_uniform_expansion(order: float, x: Array) -> Array:
    """Return Debye's expansion for large orders (DLMF 10.41.4), four terms, error below 1e-10."""
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
