"""Kernel means: distributions as weighted points with a kernel and, from a model, a noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import Density
from kbf_localization.embeddings.kernels import DensityKernel
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.embeddings.validation import as_points, as_positive, as_vector, normalized


class KernelMean:
    """m = Σ_i w_i ∫ k(·, y) p(y − X_i) dy, or Σ_i w_i k(·, X_i) where there is no noise p.

    `points` (n, m) are X_i, `weights` (n,) are w_i, some of which may be negative; 1/n each when
    omitted. With a noise model this is the estimate of the model-based sum rule, equation
    MbKSRestimator of the paper, with X_i = f(X̃_i).
    """

    def __init__(
        self,
        points: ArrayLike,
        weights: ArrayLike | None,
        kernel: DensityKernel,
        noise: Density | None = None,
    ) -> None:
        self.kernel = kernel
        self.points = as_points("points", points, kernel.dimension)
        count = len(self.points)
        self.weights = (
            np.full(count, 1.0 / count) if weights is None else as_vector("weights", weights, count)
        )
        self.noise = noise
        self.profile = kernel.smoothed(noise)

    def __repr__(self) -> str:
        count, dimension = self.points.shape
        negative = int((self.weights < 0.0).sum())
        return (
            f"KernelMean({count} points in {dimension} dimensions, {negative} negative weights, "
            f"{self.kernel!r})"
        )

    def evaluate(self, at: ArrayLike) -> Array:
        """m at the points `at` (l, m), as an array (l,)."""
        return self.profile.pairwise(as_points("at", at, self.kernel.dimension), self.points) @ (
            self.weights
        )

    def expectation(self, function: Callable[[Array], Array], order: int = 16) -> Array:
        """Σ_i w_i E[f(X_i + ε)] of a vectorized function that maps (l, m) to (l,) or (l, p).

        The expectation over the noise is by quadrature of this order in each dimension.
        """
        if self.noise is None:
            return np.asarray(self.weights @ function(self.points))
        nodes, shares = self.noise.quadrature(order)
        total = [
            share * (self.weights @ function(self.points + node))
            for node, share in zip(nodes, shares, strict=True)
        ]
        return np.asarray(np.sum(total, axis=0))

    def inner(self, other: KernelMean) -> float:
        """⟨m, m'⟩ in the RKHS, exact: kernel, noise and reflected noise convolved."""
        if not self.kernel.same_as(other.kernel):
            raise ValueError("other: the kernel means belong to different kernels")
        shape = (
            self.profile if other.noise is None else self.profile.convolve(other.noise.reflected())
        )
        # (κ * p * p'⁻)(X'_j − X_i): pairwise takes its first argument minus its second.
        return float(other.weights @ shape.pairwise(other.points, self.points) @ self.weights)

    def norm(self) -> float:
        """‖m‖ in the RKHS."""
        return float(np.sqrt(max(self.inner(self), 0.0)))

    def distance(self, other: KernelMean) -> float:
        """‖m − m'‖ in the RKHS, the maximum mean discrepancy."""
        squared = self.inner(self) - 2.0 * self.inner(other) + other.inner(other)
        return float(np.sqrt(max(squared, 0.0)))

    def normalized(self) -> KernelMean:
        """The same with weights that sum to one."""
        return KernelMean(self.points, normalized("weights", self.weights), self.kernel, self.noise)

    def projected(self, points: ArrayLike, regularization: float) -> KernelMean:
        """Weights on `points` (l, m) alone, without noise, close to this kernel mean.

        These are (G + lεI)⁻¹ (m(x_1), …, m(x_l)), the non-parametric sum rule of the identity.
        """
        targets = as_points("points", points, self.kernel.dimension)
        ridge = len(targets) * as_positive("regularization", regularization)
        solver = RidgeSolver(self.kernel.gram(targets, targets), ridge)
        return KernelMean(targets, solver.solve(self.evaluate(targets)), self.kernel)
