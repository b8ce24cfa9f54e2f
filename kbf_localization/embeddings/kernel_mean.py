"""Kernel means: distributions as weighted points with a kernel and, from a model, a noise.

Their preimage is a pseudo-MAP estimate; kernel herding stands for them by points of equal weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.density import Density
from kbf_localization.embeddings.kernels import DensityKernel
from kbf_localization.embeddings.linear_solver import relative_solver
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
        """Return m at the points `at` (l, m), as an array (l,)."""
        return self.profile.pairwise(as_points("at", at, self.kernel.dimension), self.points) @ (
            self.weights
        )

    def expectation(self, function: Callable[[Array], Array], order: int = 16) -> Array:
        """Return Σ_i w_i E[f(X_i + ε)] of a vectorized function that maps (l, m) to (l,) or (l, p).

        The expectation over the noise is by quadrature of this order in each dimension. Under
        Cauchy noise the function must be bounded: the mean, for one, does not exist.
        """
        if self.noise is None:
            return np.asarray(self.weights @ function(self.points))
        nodes, node_weights = self.noise.quadrature(order)
        values = np.array([self.weights @ function(self.points + node) for node in nodes])
        if not self.noise.has_mean:
            _check_bounded(nodes, values)
        return np.asarray(np.tensordot(node_weights, values, axes=1))

    def inner(self, other: KernelMean) -> float:
        """Return ⟨m, m'⟩ in the RKHS, exact: kernel, noise and reflected noise convolved."""
        if isinstance(other, KernelMeanSum):
            return sum(self.inner(part) for part in other.parts)
        if not self.kernel.same_as(other.kernel):
            raise ValueError("other: the kernel means belong to different kernels")
        shape = (
            self.profile if other.noise is None else self.profile.convolve(other.noise.reflected())
        )
        # (κ * p * p'⁻)(X'_j − X_i): pairwise takes its first argument minus its second.
        return float(other.weights @ shape.pairwise(other.points, self.points) @ self.weights)

    def norm(self) -> float:
        """Return ‖m‖ in the RKHS."""
        return float(np.sqrt(max(self.inner(self), 0.0)))

    def distance(self, other: KernelMean) -> float:
        """Return ‖m − m'‖ in the RKHS, the maximum mean discrepancy."""
        squared = self.inner(self) - 2.0 * self.inner(other) + other.inner(other)
        return float(np.sqrt(max(squared, 0.0)))

    def normalized(self) -> KernelMean:
        """Return the same with weights that sum to one."""
        return KernelMean(self.points, normalized("weights", self.weights), self.kernel, self.noise)

    def projected(self, points: ArrayLike, regularization: float) -> KernelMean:
        """Return weights on `points` (l, m) alone, without noise, close to this kernel mean.

        These are (G + lεk(x, x)I)⁻¹ (m(x_1), …, m(x_l)), the non-parametric sum rule of the
        identity; `regularization` is ε, in units of k(x, x).
        """
        targets = as_points("points", points, self.kernel.dimension)
        epsilon = as_positive("regularization", regularization)
        solver = relative_solver(self.kernel.gram(targets, targets), epsilon)
        return KernelMean(targets, solver.solve(self.evaluate(targets)), self.kernel)


def _check_bounded(nodes: Array, values: Array) -> None:
    """Refuse values (q, …) that grow with the distance of their nodes (q, m)."""
    sizes = np.abs(values).reshape(len(nodes), -1).max(axis=1)
    distances = np.linalg.norm(nodes - np.median(nodes, axis=0), axis=1)
    far = distances > np.quantile(distances, 0.9)
    if sizes[far].max() > 10.0 * sizes[~far].max():
        raise ValueError("function: is not bounded, and under this noise has no expectation")


class KernelMeanSum(KernelMean):
    """Σ_j m_j of kernel means `parts` with one kernel, each with its own noise.

    It is what a model gives whose noise depends on the state. `points` and `weights` are those of
    all parts. For a pre-image put it on points first (`projected`).
    """

    def __init__(self, parts: Sequence[KernelMean]) -> None:
        if not parts:
            raise ValueError("parts: there are none")
        self.parts = tuple(parts)
        kernel = parts[0].kernel
        if not all(kernel.same_as(part.kernel) for part in parts):
            raise ValueError("parts: the kernel means belong to different kernels")
        points = np.concatenate([part.points for part in parts])
        super().__init__(points, np.concatenate([part.weights for part in parts]), kernel)

    def evaluate(self, at: ArrayLike) -> Array:
        return np.asarray(np.sum([part.evaluate(at) for part in self.parts], axis=0))

    def expectation(self, function: Callable[[Array], Array], order: int = 16) -> Array:
        return np.asarray(np.sum([part.expectation(function, order) for part in self.parts], 0))

    def inner(self, other: KernelMean) -> float:
        return sum(part.inner(other) for part in self.parts)

    def normalized(self) -> KernelMeanSum:
        ends = np.cumsum([len(part.weights) for part in self.parts])[:-1]
        weights = np.split(normalized("weights", self.weights), ends)
        return KernelMeanSum(
            [
                KernelMean(part.points, own, part.kernel, part.noise)
                for part, own in zip(self.parts, weights, strict=True)
            ]
        )


def preimage(
    mean: KernelMean, starts: ArrayLike | int = 5, max_steps: int = 100, tolerance: float = 1e-9
) -> Array:
    """Return the pre-image (m,) of a kernel mean: argmin_x ‖k(·, x) − m‖ = argmax_x m(x).

    It is the best fixed point, from several starts, of equation iterationGaussPointEstimate.

    `starts` are points (s, m), or how many of the mean's own points to start from, those where m
    is highest. Setting ∇m to zero gives x = (Σ_i w_i s_i Σ⁻¹)⁻¹ Σ_i w_i s_i Σ⁻¹ X_i with s_i the
    profile's slope at X_i, which for Gaussians is the paper's iteration; profiles that are
    mixtures sum over their parts. Negative weights can throw an iterate off, so the best point
    met in between counts, never a worse one than the start.
    """
    if isinstance(mean, KernelMeanSum):
        raise ValueError("mean: its points have different noises; pass mean.projected(…)")
    if isinstance(starts, int | np.integer):
        if starts < 1:
            raise ValueError(f"starts: must be at least 1, got {starts}")
        order = np.argsort(-mean.evaluate(mean.points), kind="stable")
        current = mean.points[order[: int(starts)]].copy()
    else:
        current = as_points("starts", starts, mean.kernel.dimension).copy()
    best = current.copy()
    height = mean.evaluate(current)
    reach = tolerance * max(1.0, float(np.abs(mean.points).max()))
    for _ in range(max_steps):
        following = _fixed_point_step(mean, current)
        moving = np.abs(following - current).max(axis=1) > reach
        values = mean.evaluate(following)
        better = values > height
        best[better], height[better] = following[better], values[better]
        current = following
        if not moving.any():
            break
    return np.asarray(best[int(height.argmax())])


def _fixed_point_step(mean: KernelMean, current: Array) -> Array:
    """Make a step for each of the points `current` (s, m); one from which none leads stays."""
    size = mean.kernel.dimension
    left = np.zeros((len(current), size, size))
    right = np.zeros((len(current), size))
    for coefficient, part in mean.profile.components():
        slopes = part.radial_slope(part.squared_distances(current, mean.points)) * mean.weights
        totals = slopes.sum(axis=1)
        centres = slopes @ mean.points + totals[:, None] * part.location
        left += coefficient * totals[:, None, None] * part.precision
        right += coefficient * centres @ part.precision
    following = current.copy()
    # Slopes that cancel or vanish leave a singular system, hence no direction to go.
    strength = np.abs(left).max(axis=(1, 2))
    solvable = np.isfinite(strength) & (strength > 0.0)
    solvable[solvable] = np.linalg.cond(left[solvable]) < 1e12
    following[solvable] = np.linalg.solve(left[solvable], right[solvable][..., None])[..., 0]
    lost = ~np.isfinite(following).all(axis=1)
    following[lost] = current[lost]
    return np.asarray(following)


def herd(mean: KernelMean, count: int, candidates: ArrayLike | None = None) -> Array:
    """Return `count` points (count, m) whose equally weighted embedding approaches `mean`.

    Each is the candidate that maximizes m(x) − Σ_s k(x, x_s) / t over the points x_s chosen so far.
    `candidates` (c, m) are the mean's own points when omitted; for a mean with noise give a set
    that covers it, such as the points with noise added. A candidate can be taken more than once.
    """
    if count < 1:
        raise ValueError(f"count: must be at least 1, got {count}")
    pool = (
        mean.points
        if candidates is None
        else as_points("candidates", candidates, mean.kernel.dimension)
    )
    attraction = mean.evaluate(pool)
    repulsion = np.zeros(len(pool))
    chosen = np.empty(count, dtype=np.intp)
    for step in range(count):
        chosen[step] = int(np.argmax(attraction - repulsion / (step + 1)))
        repulsion += mean.kernel.gram(pool, pool[chosen[step]][None])[:, 0]
    return np.asarray(pool[chosen])
