"""Regressions of the calibration: similarity, relative pose, variances, evidence, correlation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy  # loads its parts at first use: only the calibration needs the optimizer

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import STUDENT_DOF
from kbf_localization.training_map.calibration import (
    VIEW_CORRELATION_LENGTH,
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
    table,
)

MIN_EXAMPLES = 60
"""Examples below which nothing is fitted and cautious defaults are used."""


def fit_similarity(
    distances: Array, angles: Array, contrasts: Array, start: SimilarityModel, extent: float
) -> SimilarityModel:
    """Fit h to pairs (m,) with these distances, angles and contrasts by robust least squares."""

    def misfit(p: Array) -> Array:
        separation = np.hypot(distances / p[1], angles / p[2])
        return np.asarray(p[0] * np.exp(-(separation ** p[3])) - contrasts)

    lower = (0.02, 1e-3 * extent, 0.05, 1.0)
    upper = (5.0, extent, 1.2, 2.0)
    first = (start.amplitude, start.distance_m, start.angle_rad, start.exponent)
    fit = scipy.optimize.least_squares(
        misfit,
        np.clip(first, np.multiply(lower, 1.001), np.multiply(upper, 0.999)),
        bounds=(lower, upper),
        loss="soft_l1",
        f_scale=0.1,
        x_scale=(1.0, start.distance_m, 0.5, 1.0),
    )
    return SimilarityModel(*(float(value) for value in fit.x))


def robust_ridge(features: Array, targets: Array) -> Array:
    """Return coefficients (targets, features) by iteratively reweighted least squares (Huber)."""
    scale = np.maximum(features.std(axis=0), 1e-6)
    scale[-1] = 1.0
    scaled = features / scale
    found = []
    for column in targets.T:
        weights = np.ones(len(scaled))
        for _ in range(10):
            weighted = scaled * weights[:, None]
            system = weighted.T @ scaled + np.eye(scaled.shape[1])
            solution = np.linalg.solve(system, weighted.T @ column)
            errors = np.abs(column - scaled @ solution)
            weights = 1.0 / np.maximum(1.0, errors / max(2.0 * float(np.median(errors)), 1e-9))
        found.append(solution / scale)
    return np.array(found)


def fit_variances(
    relative_pose: RelativePoseModel,
    errors: Array,
    prominence: Array,
    apparent: Array,
    scales: Array,
) -> RelativePoseModel:
    """Fit variances to Student-distributed errors (m, 3) by maximum likelihood for each axis."""
    quality = np.stack((prominence, apparent), axis=1)
    low, high = np.quantile(quality, (0.02, 0.98), axis=0)
    bounded = np.clip(quality, low, high)
    centre, spread = bounded.mean(axis=0), np.maximum(bounded.std(axis=0), 1e-6)
    scaled = (bounded - centre) / spread
    rows = []
    for axis in range(3):
        squares = errors[:, axis] ** 2 + (0.005 * scales[axis]) ** 2

        def loss(p: Array, squares: Array = squares) -> float:
            log_scale = np.clip(p[0] + scaled @ p[1:], -40.0, 40.0)
            tails = np.log1p(squares / STUDENT_DOF * np.exp(-log_scale))
            return float(np.mean(0.5 * log_scale + 0.5 * (STUDENT_DOF + 1.0) * tails))

        # The variance falls with the prominence and grows with the apparent separation.
        start = (float(np.log(np.median(squares))) + 0.8, 0.0, 0.0)
        fit = scipy.optimize.minimize(loss, start, bounds=((None, None), (None, 0.0), (0.0, None)))
        slopes = fit.x[1:] / spread
        # A Student variable's variance is its squared scale times ν / (ν − 2).
        intercept = fit.x[0] - slopes @ centre + np.log(STUDENT_DOF / (STUDENT_DOF - 2.0))
        rows.append((intercept, *slopes))
    return replace(
        relative_pose,
        log_variance=table(rows),
        prominence_range=(float(low[0]), float(high[0])),
        separation_range=(float(low[1]), float(high[1])),
    )


Features = list[tuple[float, float, float]]
"""Contrast, prominence and coverage of images at places."""


def fit_likelihood_ratio(
    right: Features, hardest: Features, random: Features
) -> LikelihoodRatioModel:
    """Fit a logistic regression of right against wrong places.

    A random wrong place has a quarter of the weight of a hard place: the hard places decide.
    """
    if min(len(right), len(hardest)) < MIN_EXAMPLES // 4:
        return LikelihoodRatioModel(0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    features = np.array([*right, *hardest, *random])
    sign = np.repeat((1.0, -1.0), (len(right), len(hardest) + len(random)))
    weight = np.repeat(
        (1.0 / len(right), 1.0 / len(hardest), 0.25 / max(len(hardest), 1)),
        (len(right), len(hardest), len(random)),
    )
    weight = weight * len(hardest)
    coverage = features[:, 2]
    scale = np.maximum(features.std(axis=0), 1e-6)
    scaled = np.hstack((features / scale, np.ones((len(features), 1))))
    penalty = np.array([0.1, 0.1, 0.1, 0.0])

    def loss(p: Array) -> tuple[float, Array]:
        logit = sign * coverage**2 * (scaled @ p)
        value = weight @ np.logaddexp(0.0, -logit) + 0.5 * float(penalty @ p**2)
        slope = -weight * sign * coverage**2 / (1.0 + np.exp(np.clip(logit, -50.0, 50.0)))
        return float(value), np.asarray(scaled.T @ slope + penalty * p)

    # Similarity is never evidence against a place, and expected similarity never evidence for it.
    bounds = ((0.0, None), (0.0, None), (None, 0.0), (None, None))
    fit = scipy.optimize.minimize(loss, np.zeros(4), jac=True, bounds=bounds)
    contrast, prominence, expected = (float(value) for value in fit.x[:3] / scale)
    return LikelihoodRatioModel(
        contrast,
        prominence,
        expected,
        intercept=float(fit.x[3]),
        limit=float(np.log(2.0 + len(hardest))),
        correlation_length=1.0,
        median=0.0,
        q005=0.0,
    )


def fit_correlation(
    distances: Array, correlations: Array, max_length: float
) -> tuple[float, float]:
    """Fit a · exp(−distance/ℓ) by least squares; return the length ℓ and the AR(1) fraction a."""
    best = (np.inf, 1.0, 1.0)
    for length in np.geomspace(VIEW_CORRELATION_LENGTH, max_length, 60):
        shape = np.exp(-distances / length)
        fraction = float(np.clip(shape @ correlations / max(shape @ shape, 1e-300), 0.0, 1.0))
        error = float(np.mean((correlations - fraction * shape) ** 2))
        best = min(best, (error, float(length), fraction))
    return best[1], best[2]
