"""Poses and covariances from the weights of a belief (section 5.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.base import Weights
from kbf_localization.filters.pose_space import PoseSpace
from kbf_localization.geometry import unembed, wrap_angle

STARTS = 30
MAX_ITERATIONS = 20
MODE_RADIUS = 3.0
"""Kernel widths round the mode within which poses belong to it."""

CLEAR_MODE = 0.8
"""From this share of the weight on, the other modes do not widen the covariance."""


@dataclass(frozen=True)
class PointEstimates:
    """The poses (3,) that a belief suggests, and the covariance (3, 3) round `mode_mean`."""

    highest_weight: Array
    preimage: Array
    mode_mean: Array
    covariance: Array


def point_estimates(belief: Weights, space: PoseSpace, least_sigma: Array) -> PointEstimates:
    """Estimates from normalized weights; `least_sigma` (3,) is the floor of the covariance."""
    points, weights = space.scaled[belief.rows], belief.values
    heaviest = int(np.argmax(weights))
    mode = _mode(points, weights)
    positive = np.maximum(weights, 0.0)
    near = ((points - mode) ** 2).sum(axis=1) <= MODE_RADIUS**2
    share = positive[near].sum() / positive.sum()
    if not share > 0.0:
        near[heaviest], share = True, 0.0
        positive[heaviest] = max(positive[heaviest], np.finfo(np.float64).tiny)
    mean = positive[near] @ points[near] / positive[near].sum()
    mode_mean = unembed(mean * space.widths)
    counted = near if share >= CLEAR_MODE else np.ones(len(near), dtype=bool)
    covariance = _spread(space.poses[belief.rows[counted]], positive[counted], mode_mean)
    return PointEstimates(
        highest_weight=space.poses[belief.rows[heaviest]].copy(),
        preimage=unembed(mode * space.widths),
        mode_mean=mode_mean,
        covariance=covariance + np.diag(least_sigma**2),
    )


def _mode(points: Array, weights: Array) -> Array:
    """argmax of the kernel mean, by the fixed point (iterationGaussPointEstimate) from its
    highest point among the heaviest map poses; points are in units of the kernel's widths.
    """
    heaviest = np.argsort(-weights)[:STARTS]
    squared = ((points[heaviest][:, None] - points[None]) ** 2).sum(axis=-1)
    heights = np.exp(-0.5 * squared) @ weights
    best = int(np.argmax(heights))
    mode, height = points[heaviest[best]], np.finfo(np.float64).tiny
    current = mode
    for _ in range(MAX_ITERATIONS):
        pull = np.exp(-0.5 * ((points - current) ** 2).sum(axis=1)) * weights
        total = float(pull.sum())
        if not total >= height:
            break
        mode, height = current, total
        following = pull @ points / total
        if ((following - current) ** 2).sum() < 1e-12:
            break
        current = following
    return np.asarray(mode)


def _spread(poses: Array, weights: Array, centre: Array) -> Array:
    """The weighted second moment (3, 3) of poses (s, 3) round `centre`."""
    offsets = poses - centre
    offsets[:, 2] = wrap_angle(offsets[:, 2])
    return np.asarray((weights[:, None] * offsets).T @ offsets / weights.sum())
