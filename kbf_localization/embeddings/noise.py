"""Noise models: Gaussian, Cauchy, and mixtures (variance-gamma has its own file)."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, pi

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtri

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import Density, EllipticalDensity, MixtureDensity
from kbf_localization.embeddings.validation import as_vector


def gaussian_nodes(scale: Array, order: int) -> tuple[Array, Array]:
    """Return Gauss–Hermite nodes (order^m, m) and weights for N(0, scale)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    size = len(scale)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
    products = np.stack(np.meshgrid(*[weights] * size, indexing="ij"), axis=-1).reshape(-1, size)
    mass = products.prod(axis=1)
    return grid @ np.linalg.cholesky(scale).T, mass / mass.sum()


def _directions(dimension: int, count: int) -> Array:
    """Return unit vectors (d, m) of equal weight for means over the sphere, in opposite pairs."""
    if dimension == 1:
        return np.array([[-1.0], [1.0]])
    if dimension == 2:
        angles = 2.0 * np.pi * np.arange(2 * count) / (2 * count)
        return np.column_stack((np.cos(angles), np.sin(angles)))
    drawn = np.random.default_rng(0).standard_normal((16 * count, dimension))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate((drawn, -drawn))


class GaussianNoise(EllipticalDensity):
    """N(μ, Σ): g(x | μ, Σ) = |2πΣ|^(−1/2) exp(−(x − μ)ᵀ Σ⁻¹ (x − μ) / 2).

    The paper's equation of this density lacks the factor 1/2.
    """

    def __init__(self, covariance: ArrayLike, location: ArrayLike | None = None) -> None:
        super().__init__(covariance, location, "covariance")
        self._constant = np.exp(-0.5 * (self.dimension * log(2.0 * pi) + self._log_determinant))

    def radial(self, squared: Array) -> Array:
        return np.asarray(self._constant * np.exp(-0.5 * squared))

    def radial_slope(self, squared: Array) -> Array:
        return 0.5 * self.radial(squared)

    def centred_convolution(self, other: EllipticalDensity, location: Array) -> GaussianNoise:
        if not isinstance(other, GaussianNoise):
            raise self._no_closed_form(other)
        return GaussianNoise(self.scale + other.scale, location)

    def moved(self, location: Array, scale: Array) -> GaussianNoise:
        return GaussianNoise(scale, location)

    def sample(self, count: int, generator: np.random.Generator) -> Array:
        return generator.multivariate_normal(self.location, self.scale, count, method="cholesky")

    def quadrature(self, order: int) -> tuple[Array, Array]:
        nodes, weights = gaussian_nodes(self.scale, order)
        return nodes + self.location, weights


class CauchyNoise(EllipticalDensity):
    """The Cauchy density of R^m with location μ and scale matrix Σ (Appendix A)."""

    has_mean = False

    def __init__(self, scale: ArrayLike, location: ArrayLike | None = None) -> None:
        super().__init__(scale, location, "scale")
        half = (1.0 + self.dimension) / 2.0
        self._exponent = half
        self._constant = np.exp(lgamma(half) - half * log(pi) - 0.5 * self._log_determinant)

    def radial(self, squared: Array) -> Array:
        return np.asarray(self._constant * (1.0 + squared) ** -self._exponent)

    def radial_slope(self, squared: Array) -> Array:
        return np.asarray(
            self._constant * self._exponent * (1.0 + squared) ** (-self._exponent - 1.0)
        )

    def centred_convolution(self, other: EllipticalDensity, location: Array) -> CauchyNoise:
        if not isinstance(other, CauchyNoise):
            raise self._no_closed_form(other)
        ratio = float(np.trace(other.scale) / np.trace(self.scale))
        if not np.allclose(other.scale, ratio * self.scale, rtol=1e-9, atol=1e-12 * ratio):
            raise self._no_closed_form(other, " unless one scale matrix is a multiple of the other")
        return CauchyNoise((1.0 + np.sqrt(ratio)) ** 2 * self.scale, location)

    def moved(self, location: Array, scale: Array) -> CauchyNoise:
        return CauchyNoise(scale, location)

    def sample(self, count: int, generator: np.random.Generator) -> Array:
        normal = generator.standard_normal((count, self.dimension))
        spread = np.abs(generator.standard_normal((count, 1)))
        return np.asarray(self.location + (normal / spread) @ np.linalg.cholesky(self.scale).T)

    def quadrature(self, order: int) -> tuple[Array, Array]:
        """Nodes for bounded functions: others need not have an expectation, and the mean has none.

        A draw is L r d with Σ = LLᵀ, d uniform on the unit sphere and r²/m of the F distribution
        (m, 1): Gauss–Legendre nodes in the distribution function of r, times directions.
        """
        places, weights = np.polynomial.legendre.leggauss(4 * order)
        radii = np.sqrt(self.dimension * fdtri(self.dimension, 1.0, (1.0 + places) / 2.0))
        directions = _directions(self.dimension, 4 * order)
        nodes = (radii[:, None, None] * directions[None]).reshape(-1, self.dimension)
        node_weights = np.repeat(weights / 2.0 / len(directions), len(directions))
        return self.location + nodes @ np.linalg.cholesky(self.scale).T, node_weights


class MixtureNoise(MixtureDensity):
    """Σ_i ω_i p_i with mixing coefficients ω_i ≥ 0 that sum to one (Appendix A)."""

    def __init__(self, coefficients: ArrayLike, parts: Sequence[Density]) -> None:
        mixings = as_vector("coefficients", coefficients, len(parts))
        if (mixings < 0.0).any() or abs(float(mixings.sum()) - 1.0) > 1e-9:
            raise ValueError("coefficients: must be non-negative and sum to one")
        if len({part.dimension for part in parts}) != 1:
            raise ValueError("parts: all must have the same dimension")
        self._components = tuple(
            (float(mixing * coefficient), component)
            for mixing, part in zip(mixings, parts, strict=True)
            for coefficient, component in part.components()
        )
        self.has_mean = all(part.has_mean for part in parts)

    @property
    def dimension(self) -> int:
        return self._components[0][1].dimension

    def components(self) -> tuple[tuple[float, EllipticalDensity], ...]:
        return self._components

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> Array:
        coefficient, component = self._components[0]
        total = coefficient * component.pairwise(a, b)
        for coefficient, component in self._components[1:]:
            total += coefficient * component.pairwise(a, b)
        return total

    def convolve(self, other: Density) -> MixtureNoise:
        return self._with_parts(
            [
                (mine * theirs, component.convolve(part))
                for mine, component in self._components
                for theirs, part in other.components()
            ]
        )

    def reflected(self) -> MixtureNoise:
        return self._with_parts([(mixing, part.reflected()) for mixing, part in self._components])

    def pushed(self, matrix: ArrayLike) -> MixtureNoise:
        return self._with_parts(
            [(mixing, part.pushed(matrix)) for mixing, part in self._components]
        )

    def sample(self, count: int, generator: np.random.Generator) -> Array:
        mixings = np.array([mixing for mixing, _ in self._components])
        counts = generator.multinomial(count, mixings / mixings.sum())
        draws = [
            part.sample(int(many), generator)
            for many, (_, part) in zip(counts, self._components, strict=True)
        ]
        return np.asarray(generator.permutation(np.concatenate(draws)))

    def quadrature(self, order: int) -> tuple[Array, Array]:
        rules = [(mixing, *part.quadrature(order)) for mixing, part in self._components]
        nodes = np.concatenate([nodes for _, nodes, _ in rules])
        return nodes, np.concatenate([mixing * weights for mixing, _, weights in rules])

    def same_as(self, other: object) -> bool:
        return (
            isinstance(other, MixtureNoise)
            and len(other.components()) == len(self._components)
            and all(
                np.isclose(mine, theirs, rtol=1e-12) and component.same_as(part)
                for (mine, component), (theirs, part) in zip(
                    self._components, other.components(), strict=True
                )
            )
        )

    @staticmethod
    def _with_parts(parts: list[tuple[float, Density]]) -> MixtureNoise:
        return MixtureNoise([mixing for mixing, _ in parts], [part for _, part in parts])
