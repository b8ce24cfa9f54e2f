"""Densities on R^m that kernels and noise models are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from kbf_localization.arrays import Array
from kbf_localization.embeddings.validation import as_points, as_scale, as_vector


class ConjugacyError(ValueError):
    """Two densities whose convolution has no closed form here."""


class Density(ABC):
    """A probability density p on R^m, used as noise and, centred, as a kernel's shape."""

    def __repr__(self) -> str:
        widths = (np.sqrt(np.diag(part.scale)) for _, part in self.components())
        text = "; ".join(", ".join(f"{width:.3g}" for width in one) for one in widths)
        return f"{type(self).__name__}(widths {text})"

    @property
    @abstractmethod
    def dimension(self) -> int:
        """m."""

    @abstractmethod
    def pairwise(self, a: ArrayLike, b: ArrayLike) -> Array:
        """p(a_i − b_j) for points `a` (n, m) and `b` (l, m), as an array (n, l)."""

    @abstractmethod
    def components(self) -> tuple[tuple[float, EllipticalDensity], ...]:
        """The density as a mixture: mixing coefficients, which sum to one, and their parts."""

    @abstractmethod
    def convolve(self, other: Density) -> Density:
        """The density of the sum of two independent draws; ConjugacyError if not closed."""

    @abstractmethod
    def reflected(self) -> Density:
        """The density of the negated draw."""

    @abstractmethod
    def pushed(self, matrix: ArrayLike) -> Density:
        """The density of `matrix` (p, m) times the draw."""

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> Array:
        """`count` independent draws (count, m)."""

    @abstractmethod
    def quadrature(self, order: int) -> tuple[Array, Array]:
        """Nodes (q, m) and weights (q,), summing to one, for expectations of smooth functions."""

    @abstractmethod
    def same_as(self, other: object) -> bool:
        """Whether `other` is the same density, to rounding."""

    def __call__(self, points: ArrayLike) -> Array:
        """p at `points` (n, m), as an array (n,)."""
        return self.pairwise(points, np.zeros((1, self.dimension)))[:, 0]


class EllipticalDensity(Density):
    """A density φ(q) of the squared Mahalanobis distance q = (x − μ)ᵀ Σ⁻¹ (x − μ).

    `scale` is Σ (m, m), positive definite, and `location` is μ (m,), zero when omitted.
    """

    def __init__(self, scale: ArrayLike, location: ArrayLike | None, scale_name: str) -> None:
        self.scale = as_scale(scale_name, scale)
        size = len(self.scale)
        self.location = (
            np.zeros(size) if location is None else as_vector("location", location, size)
        )
        lower = np.linalg.cholesky(self.scale)
        self._whitening = solve_triangular(lower, np.eye(size), lower=True)
        self._log_determinant = 2.0 * float(np.log(np.diag(lower)).sum())

    @abstractmethod
    def radial(self, squared: Array) -> Array:
        """φ(q)."""

    @abstractmethod
    def radial_slope(self, squared: Array) -> Array:
        """−dφ/dq, which is positive."""

    @abstractmethod
    def centred_convolution(self, other: EllipticalDensity, location: Array) -> EllipticalDensity:
        """The convolution of the two densities, moved to `location`."""

    @abstractmethod
    def moved(self, location: Array, scale: Array) -> EllipticalDensity:
        """The same family and shape with another location and scale."""

    @property
    def dimension(self) -> int:
        return len(self.scale)

    @property
    def precision(self) -> Array:
        """Σ⁻¹."""
        return np.asarray(self._whitening.T @ self._whitening)

    def squared_distances(self, a: ArrayLike, b: ArrayLike) -> Array:
        """q between `a` (n, m) and `b` (l, m) moved by the location, as an array (n, l)."""
        left = as_points("a", a, self.dimension) - self.location
        right = as_points("b", b, self.dimension)
        return cdist(left @ self._whitening.T, right @ self._whitening.T, "sqeuclidean")

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> Array:
        return self.radial(self.squared_distances(a, b))

    def components(self) -> tuple[tuple[float, EllipticalDensity], ...]:
        return ((1.0, self),)

    def convolve(self, other: Density) -> Density:
        if other.dimension != self.dimension:
            raise ValueError(f"noise: expected {self.dimension} dimensions, got {other.dimension}")
        if not isinstance(other, EllipticalDensity):
            return other.convolve(self)
        return self.centred_convolution(other, self.location + other.location)

    def reflected(self) -> Density:
        return self.moved(-self.location, self.scale)

    def pushed(self, matrix: ArrayLike) -> Density:
        factor = as_points("matrix", matrix, self.dimension)
        spread = factor @ self.scale @ factor.T
        return self.moved(factor @ self.location, (spread + spread.T) / 2.0)

    def same_as(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, EllipticalDensity)
            and other.dimension == self.dimension
            and np.allclose(other.scale, self.scale, rtol=1e-12, atol=0.0)
            and np.allclose(other.location, self.location, rtol=1e-12, atol=1e-300)
        )

    def _no_closed_form(self, other: EllipticalDensity, reason: str = "") -> ConjugacyError:
        return ConjugacyError(
            f"noise: {type(self).__name__} and {type(other).__name__} have no convolution "
            f"in closed form{reason}; use a conjugate pair: Gaussian with Gaussian, Cauchy with "
            "rational quadratic, variance-gamma with Matérn, or mixtures of these"
        )
