"""The statistical fits by which a map learns: resemblance, read-out, its errors, evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy  # whose parts are imported at their first use: only learning needs the optimizer

from kbf_localization.arrays import Array
from kbf_localization.training_map.learned import SAME_VIEW, Evidence, Readout, Resemblance, table
from kbf_localization.training_map.probes import Probes

STUDENT = 4.0
"""Degrees of freedom of the errors' Student distribution: matches have heavy tails."""

FEWEST = 60
"""Examples without which nothing is learned, and cautious numbers stand in."""


def fit_resemblance(
    distances: Array, angles: Array, contrasts: Array, start: Resemblance, extent: float
) -> Resemblance:
    """h of pairs (m,) so far apart with these contrasts, by robust least squares from `start`."""

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
    return Resemblance(*(float(value) for value in fit.x))


def robust_ridge(features: Array, targets: Array) -> Array:
    """Coefficients (targets, features) by iteratively reweighted least squares (Huber)."""
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
    readout: Readout, errors: Array, prominence: Array, apparent: Array, scales: Array
) -> Readout:
    """The variances that make the errors (m, 3) Student's, by maximum likelihood for each axis."""
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
            tails = np.log1p(squares / STUDENT * np.exp(-log_scale))
            return float(np.mean(0.5 * log_scale + 0.5 * (STUDENT + 1.0) * tails))

        # A better alignment never makes a pose worse, nor does a picture that looks farther.
        start = (float(np.log(np.median(squares))) + 0.8, 0.0, 0.0)
        fit = scipy.optimize.minimize(loss, start, bounds=((None, None), (None, 0.0), (0.0, None)))
        slopes = fit.x[1:] / spread
        # A Student variable's variance is its squared scale times ν / (ν − 2).
        intercept = fit.x[0] - slopes @ centre + np.log(STUDENT / (STUDENT - 2.0))
        rows.append((intercept, *slopes))
    return replace(
        readout,
        log_variance=table(rows),
        prominence=(float(low[0]), float(high[0])),
        apparent=(float(low[1]), float(high[1])),
    )


Features = list[tuple[float, float, float]]
"""Contrast, prominence and share of pictures at places."""


def fit_evidence(right: Features, hardest: Features, random: Features) -> Evidence:
    """Logistic regression of right against wrong places.

    A random wrong place counts a quarter: the hard ones are what decides.
    """
    if min(len(right), len(hardest)) < FEWEST // 4:
        return Evidence(0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)
    features = np.array([*right, *hardest, *random])
    sign = np.repeat((1.0, -1.0), (len(right), len(hardest) + len(random)))
    weight = np.repeat(
        (1.0 / len(right), 1.0 / len(hardest), 0.25 / max(len(hardest), 1)),
        (len(right), len(hardest), len(random)),
    )
    weight = weight * len(hardest)
    share = features[:, 2]
    scale = np.maximum(features.std(axis=0), 1e-6)
    scaled = np.hstack((features / scale, np.ones((len(features), 1))))
    penalty = np.array([0.1, 0.1, 0.1, 0.0])

    def loss(p: Array) -> tuple[float, Array]:
        logit = sign * share**2 * (scaled @ p)
        value = weight @ np.logaddexp(0.0, -logit) + 0.5 * float(penalty @ p**2)
        slope = -weight * sign * share**2 / (1.0 + np.exp(np.clip(logit, -50.0, 50.0)))
        return float(value), np.asarray(scaled.T @ slope + penalty * p)

    # More likeness is never evidence against; more was expected never evidence for.
    bounds = ((0.0, None), (0.0, None), (None, 0.0), (None, None))
    fit = scipy.optimize.minimize(loss, np.zeros(4), jac=True, bounds=bounds)
    contrast, prominence, expected = (float(value) for value in fit.x[:3] / scale)
    return Evidence(
        contrast,
        prominence,
        expected,
        bias=float(fit.x[3]),
        limit=float(np.log(2.0 + len(hardest))),
        correlation=1.0,
        usual=0.0,
        low=0.0,
    )


def fit_lasting(
    residuals: Array,
    numbers: Sequence[int],
    probes: Probes,
    resemblance: Resemblance,
    longest: float | None = None,
) -> tuple[float, float]:
    """The travel over which residuals (u, k) of these probes last, and the share that does.

    It is sought up to `longest`; without that up to the farthest that the probes of a run are
    apart, and not beyond one: a whole scale apart, views are others.
    """
    travels, products = [], []
    for first, a in enumerate(numbers):
        for second in range(first + 1, len(numbers)):
            b = numbers[second]
            if b <= a or probes.run_of[a] != probes.run_of[b]:
                break
            travels.append(resemblance.travel(*np.abs(probes.way[b] - probes.way[a])))
            products.append(float(np.mean(residuals[first] * residuals[second])))
    if len(travels) < FEWEST:
        return 1.0, 1.0
    measured = np.array(products) / max(float(np.mean(residuals**2)), 1e-12)
    return fit_correlation(np.array(travels), measured, longest or min(max(travels), 1.0))


def fit_correlation(travels: Array, correlations: Array, longest: float) -> tuple[float, float]:
    """ℓ and a of a · exp(−travel/ℓ), by least squares: what lasts, beside what errs in passing."""
    best = (np.inf, 1.0, 1.0)
    for length in np.geomspace(SAME_VIEW, longest, 60):
        shape = np.exp(-travels / length)
        share = float(np.clip(shape @ correlations / max(shape @ shape, 1e-300), 0.0, 1.0))
        error = float(np.mean((correlations - share * shape) ** 2))
        best = min(best, (error, float(length), share))
    return best[1], best[2]
