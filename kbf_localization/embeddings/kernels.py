"""Shift-invariant kernels on R^m, normalized as densities."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import Density
from kbf_localization.embeddings.noise import CauchyNoise, GaussianNoise
from kbf_localization.embeddings.validation import as_positive, as_scale
from kbf_localization.embeddings.variance_gamma import VarianceGammaNoise

MAX_POWER = 20
"""Of a kernel: at 20 a similarity of 0.8 counts as 0.01, and images of one place as unrelated."""


class Kernel(Protocol):
    """A positive definite kernel on any domain, such as one of images."""

    def gram(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return k(a_i, b_j) as an array (len a, len b)."""


class PowerKernel:
    """k(x, x')^power of another kernel: an integer power of a positive definite kernel is one too.

    It is steeper: of values that differ by a factor c, it makes a factor c^power.
    """

    def __init__(self, kernel: Kernel, power: int) -> None:
        if not (float(power).is_integer() and 1 <= power <= MAX_POWER):
            raise ValueError(f"power: must be a whole number from 1 to {MAX_POWER}, got {power}")
        self.kernel = kernel
        self.power = int(power)

    def __repr__(self) -> str:
        return f"PowerKernel({self.kernel!r}, {self.power})"

    def gram(self, a: Any, b: Any) -> Array:
        """Return k(a_i, b_j)^power as an array (len a, len b)."""
        return np.asarray(self.kernel.gram(a, b)) ** self.power


class DensityKernel:
    """k(x, x') = κ(x − x') for a density κ that is symmetric about zero."""

    def __init__(self, profile: Density) -> None:
        self.profile = profile

    def __repr__(self) -> str:
        return f"{type(self).__name__}({repr(self.profile).partition('(')[2]}"

    @property
    def dimension(self) -> int:
        return self.profile.dimension

    def gram(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return k(a_i, b_j) for points `a` (n, m) and `b` (l, m), as an array (n, l)."""
        return self.profile.pairwise(a, b)

    def smoothed(self, noise: Density | None) -> Density:
        """Return the conditional kernel mean's shape κ * p, so that m_{Y|x}(y) = (κ * p)(y − f(x)).

        Raises ConjugacyError where kernel and noise are not conjugate; None is no noise.
        """
        return self.profile if noise is None else self.profile.convolve(noise)

    def at_zero(self) -> float:
        """Return k(x, x)."""
        return float(self.profile(np.zeros((1, self.dimension)))[0])

    def same_as(self, other: object) -> bool:
        """Return whether `other` is the same kernel, to rounding."""
        return isinstance(other, DensityKernel) and self.profile.same_as(other.profile)


class GaussianKernel(DensityKernel):
    """k_R(x, x') = g(x − x' | 0, R) with covariance R (m, m); conjugate to Gaussian noise."""

    def __init__(self, covariance: ArrayLike) -> None:
        super().__init__(GaussianNoise(covariance))
        self.covariance = as_scale("covariance", covariance)


class RationalQuadraticKernel(DensityKernel):
    """k_R(x, x') = p_Cauchy(x − x' | 0, R); conjugate to Cauchy noise of a proportional scale."""

    def __init__(self, scale: ArrayLike) -> None:
        super().__init__(CauchyNoise(scale))


class MaternKernel(DensityKernel):
    """k(x, x') = p_VG(x − x' | ν + m/2, √(2ν), 0, Σ) with smoothness ν > 0 and scale matrix Σ.

    Conjugate to variance-gamma noise with the same Σ/α², α² = 2ν for the kernel.
    """

    def __init__(self, smoothness: float, scale: ArrayLike) -> None:
        self.smoothness = as_positive("smoothness", smoothness)
        matrix = as_scale("scale", scale)
        shape = self.smoothness + len(matrix) / 2.0
        super().__init__(VarianceGammaNoise(shape, np.sqrt(2.0 * self.smoothness), matrix))


class LaplaceKernel(MaternKernel):
    """The Matérn kernel with ν = 1/2, proportional to exp(−√((x − x')ᵀ Σ⁻¹ (x − x')))."""

    def __init__(self, scale: ArrayLike) -> None:
        super().__init__(0.5, scale)
