"""Densities on R^m that kernels and noise models are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from kbf_localization.arrays import Array
from kbf_localization.embeddings.validation import as_points, as_scale, as_vector

REMEDY = (
    "use a conjugate pair: Gaussian with Gaussian, Cauchy with rational quadratic, variance-gamma "
    "with Matérn, or mixtures of these; or give ModelBasedSumRule a number of samples"
)


class ConjugacyError(ValueError):
    """Two densities whose convolution has no closed form here."""


class Density(ABC):
    """A probability density p on R^m, used as noise and, centred, as a kernel's shape.

    Your own noise model needs three members: `dimension`, p itself (`__call__`) and `sample`.
    No kernel is conjugate to it, so `ModelBasedSumRule` takes it with `samples`.
    """

    has_mean = True
    """Whether unbounded functions, such as x itself, have expectations."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """m."""

    @abstractmethod
    def __call__(self, points: ArrayLike) -> Array:
        """Return p at `points` (n, m), as an array (n,)."""

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> Array:
        """Return `count` independent draws (count, m)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dimension} dimensions)"

    def pairwise(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return p(a_i − b_j) for points `a` (n, m) and `b` (l, m), as an array (n, l)."""
        left, right = as_points("a", a, self.dimension), as_points("b", b, self.dimension)
        offsets = (left[:, None] - right[None]).reshape(-1, self.dimension)
        return np.asarray(self(offsets)).reshape(len(left), len(right))

    def components(self) -> tuple[tuple[float, EllipticalDensity], ...]:
        """Return the density as a mixture: coefficients, which sum to one, and components."""
        raise ConjugacyError(f"noise: {type(self).__name__} is no mixture of elliptical densities")

    def convolve(self, other: Density) -> Density:
        """Return the density of the sum of two independent draws; ConjugacyError if not closed."""
        raise ConjugacyError(
            f"noise: {type(self).__name__} and {type(other).__name__} have no convolution in "
            f"closed form; {REMEDY}"
        )

    def reflected(self) -> Density:
        """Return the density of the negated draw."""
        return _Reflected(self)

    def pushed(self, matrix: ArrayLike) -> Density:
        """Return the density of `matrix` (p, m) times the draw."""
        raise ConjugacyError(f"noise: {type(self).__name__} times a matrix has no closed form here")

    def quadrature(self, order: int) -> tuple[Array, Array]:
        """Return nodes (q, m) and weights (q,), summing to one, for expectations of functions.

        Here 64·order draws of equal weight, the same each time.
        """
        nodes = self.sample(64 * order, np.random.default_rng(0))
        return nodes, np.full(len(nodes), 1.0 / len(nodes))

    def same_as(self, other: object) -> bool:
        """Return whether `other` is the same density, to rounding."""
        return other is self


class _Reflected(Density):
    """The density of the negated draw of another density."""

    def __init__(self, original: Density) -> None:
        self._original = original

    @property
    def dimension(self) -> int:
        return self._original.dimension

    def __call__(self, points: ArrayLike) -> Array:
        return self._original(-as_points("points", points, self.dimension))

    def sample(self, count: int, generator: np.random.Generator) -> Array:
        return -self._original.sample(count, generator)

    def reflected(self) -> Density:
        return self._original


class MixtureDensity(Density):
    """A density whose elliptical components, and so `pairwise`, have closed forms."""

    @abstractmethod
    def components(self) -> tuple[tuple[float, EllipticalDensity], ...]: ...

    @abstractmethod
    def pairwise(self, a: ArrayLike, b: ArrayLike) -> Array: ...

    def __repr__(self) -> str:
        widths = (np.sqrt(np.diag(part.scale)) for _, part in self.components())
        parts = "; ".join(", ".join(f"{width:.3g}" for width in part) for part in widths)
        return f"{type(self).__name__}(widths {parts})"

    def __call__(self, points: ArrayLike) -> Array:
        return self.pairwise(points, np.zeros((1, self.dimension)))[:, 0]


class EllipticalDensity(MixtureDensity):
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
        """Return φ(q)."""

    @abstractmethod
    def radial_slope(self, squared: Array) -> Array:
        """Return −dφ/dq, which is positive."""

    @abstractmethod
    def centred_convolution(self, other: EllipticalDensity, location: Array) -> EllipticalDensity:
        """Return the convolution of the two densities, moved to `location`."""

    @abstractmethod
    def moved(self, location: Array, scale: Array) -> EllipticalDensity:
        """Return the same family and shape with another location and scale."""

    @property
    def dimension(self) -> int:
        return len(self.scale)

    @property
    def precision(self) -> Array:
        """Σ⁻¹."""
        return np.asarray(self._whitening.T @ self._whitening)

    def squared_distances(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return q between `a` (n, m) and `b` (l, m) moved by the location, as an array (n, l)."""
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
            # Convolution commutes: a mixture knows how, others say that there is no closed form.
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
            f"in closed form{reason}; {REMEDY}"
        )
