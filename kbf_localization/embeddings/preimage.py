"""The point whose embedding is nearest to a kernel mean: a pseudo-MAP estimate."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean, KernelMeanSum
from kbf_localization.embeddings.validation import as_points


def preimage(
    mean: KernelMean, starts: ArrayLike | int = 5, max_steps: int = 100, tolerance: float = 1e-9
) -> Array:
    """Return the pre-image (m,) of a kernel mean: argmin_x ‖k(·, x) − m‖ = argmax_x m(x).

    It is the best fixed point, from several starts, of equation iterationGaussPointEstimate.

    `starts` are points (s, m), or how many of the mean's own points to start from, those where m
    is highest. Setting ∇m to zero gives x = (Σ_i w_i s_i Σ⁻¹)⁻¹ Σ_i w_i s_i Σ⁻¹ X_i with s_i the
    profile's slope at X_i, which for Gaussians is the paper's iteration; profiles that are
    mixtures sum over their parts. Negative weights can throw an iterate off, so the best point
    seen on the way counts, never a worse one than the start.
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
    """One step for each of the points `current` (s, m); a point with no way on stays."""
    size = mean.kernel.dimension
    left = np.zeros((len(current), size, size))
    right = np.zeros((len(current), size))
    for share, part in mean.profile.components():
        slopes = part.radial_slope(part.squared_distances(current, mean.points)) * mean.weights
        totals = slopes.sum(axis=1)
        centres = slopes @ mean.points + totals[:, None] * part.location
        left += share * totals[:, None, None] * part.precision
        right += share * centres @ part.precision
    following = current.copy()
    # Slopes that cancel or vanish leave a singular system, hence no direction to go.
    strength = np.abs(left).max(axis=(1, 2))
    solvable = np.isfinite(strength) & (strength > 0.0)
    solvable[solvable] = np.linalg.cond(left[solvable]) < 1e12
    following[solvable] = np.linalg.solve(left[solvable], right[solvable][..., None])[..., 0]
    lost = ~np.isfinite(following).all(axis=1)
    following[lost] = current[lost]
    return np.asarray(following)
