"""What a landmark fix is worth: the covariance of its true error, and evidence for its place.

Both are learned from held-out images. Map views near an image are left out at random, or all views
of its own drive, so that the errors at views the map lacks are among the examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts at first use: only the calibration needs the optimizer
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.bearings import Bearings
from kbf_localization.landmarks.pose_solver import STUDENT_NU, LandmarkFix, LandmarkSolver
from kbf_localization.landmarks.triangulation import HEADING_METRES

LEFT_OUT = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Radii within which map views are left out, one drawn for each image, in the map's own scales."""
REACH = 1.0
"""Metres, or radians, from a map image within which its landmarks are matched: keypoints outlast
the likeness of whole images, and farther views share few."""
COVERED = 1.0
"""Distance to the nearest view, in the map's own scales, within which the map shows a place."""
ROWS_PER_FIX = 4
MIN_EXAMPLES = 12
"""With fewer, the defaults stay."""
GAUSSIAN_OF_STUDENT = 2.0 * 2.0 * (0.02**-0.5 - 1.0) / 9.0
"""A Gaussian of this times Student's scale matrix has 3 σ where 98 % of Student's t in the plane
are: P(F(2, 4) > q) = (1 + q / 2)⁻². Its own covariance, twice the scale matrix, has 96.7 %."""
MIN_INLIERS = 12
"""Of a fix that measures a pose: fewer are met at wrong places too, so that such fixes are not used
and teach nothing about the covariance of those that are."""
FLOOR_BOUNDS = (1e-3, 0.5)
"""Metres, and radians."""
WRONG_POSE_M = 0.5
"""Scaled distance from which on a fix is of a wrong place."""
MIN_RATIO = -1e3
"""A fitted ratio has no bound."""
RIDGE = 0.05
"""Precision of the logistic weights about zero: separable examples have no finite fit else."""
MIN_SPREAD = 1.0 / 32.0
"""Half of a cell of the spread, in place of none."""
PRIOR_SIGMA = np.array([0.15, 0.15, 0.05])
"""Of the poses (m, m, rad) that held-out images are measured from."""


@dataclass(frozen=True)
class CovarianceModel:
    """R = κ² C + ((1 + growth · d) floor)², with d the scaled distance to the nearest map view.

    `floor_m` and `floor_rad` are standard deviations; `growth` is per metre.
    """

    kappa2: float = 2.0
    floor_m: float = 0.005
    floor_rad: float = 0.002
    growth: float = 2.0

    def covariance(self, claimed: Array, distance: float) -> Array:
        """Return the covariance (3, 3) of a fix whose own is `claimed`."""
        floor = np.array([self.floor_m, self.floor_m, self.floor_rad])
        wide = floor * (1.0 + self.growth * max(float(np.nan_to_num(distance)), 0.0))
        return np.asarray(self.kappa2 * claimed + np.diag(wide**2))


@dataclass(frozen=True)
class EvidenceModel:
    """Log-likelihood ratio of the right place against a similar place, linear in three features.

    The defaults, for maps without wrong places to learn from, are zero at 15 inliers: right places
    have 140 in the median, similar wrong places 7. They only ever speak for a place: `lowest` is
    the least ratio.
    """

    offset: float = -2.5 * math.log(16.0)
    by_inliers: float = 2.5
    by_matched: float = 0.0
    by_spread: float = 0.0
    lowest: float = 0.0

    def log_ratio(self, fix: LandmarkFix | None) -> float:
        """Return the log-likelihood ratio of a fix, or of none."""
        weights = np.array([self.offset, self.by_inliers, self.by_matched, self.by_spread])
        return max(float(features(fix) @ weights), self.lowest)


@dataclass(frozen=True)
class HeldOutImage:
    """An image of known pose: its keypoints and its drive's number.

    `wrong_rows` are map rows that look like it but are elsewhere, the most similar first.
    """

    bearings: Bearings
    descriptors: NDArray[np.uint8]
    pose: Array
    drive: int
    wrong_rows: Rows


@dataclass(frozen=True)
class Calibration:
    """The models, and how well held-out images are measured.

    `covered` counts the images at places that the remaining views cover, `solved` is the fraction
    of these with a usable fix, `median_error_m` that of these fixes; NaN without any image, or any
    fix.
    """

    covariance: CovarianceModel
    evidence: EvidenceModel
    examples: int
    covered: int
    solved: float
    median_error_m: float


def view_distance(poses: Array, pose: Array) -> Array:
    """Return scaled distances (n,) of map poses (n, 3) from a pose: metres, a radian as a metre."""
    offset = poses - pose
    turn = HEADING_METRES * wrap_angle(offset[:, 2])
    return np.asarray(np.sqrt(offset[:, 0] ** 2 + offset[:, 1] ** 2 + turn**2))


def features(fix: LandmarkFix | None) -> Array:
    """Return (4,): one, log(1 + inliers), matched fraction, log spread; of no fix, of nothing."""
    if fix is None:
        return np.array([1.0, 0.0, 0.0, np.log(MIN_SPREAD)])
    spread = max(fix.spread, MIN_SPREAD)
    return np.array([1.0, np.log1p(fix.inliers), fix.matched_fraction, np.log(spread)])


def calibrate(
    solver: LandmarkSolver,
    drives: Rows,
    images: Sequence[HeldOutImage],
    scales: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> Calibration:
    """Measure held-out images at right and wrong places; `drives` (n,) are the map images'.

    `scales` are the distance (m) and the turn (rad) over which the map's images cease to be
    similar. Places that the remaining views do not cover teach the covariance alone.
    """
    rng = np.random.default_rng(seed)
    errors, claimed, distances = [], [], []
    right, wrong, near_errors = [], [], []
    several = len(np.unique(drives)) > 1
    for image in images:
        away = view_distance(solver.poses, image.pose)
        offset = solver.poses - image.pose
        turn = np.abs(wrap_angle(offset[:, 2]))
        separation = np.hypot(np.hypot(offset[:, 0], offset[:, 1]) / scales[0], turn / scales[1])
        # The image may be one of the map's own.
        left_out = separation <= rng.choice(LEFT_OUT)
        if several:
            left_out |= drives == image.drive
        start = image.pose + PRIOR_SIGMA * rng.standard_normal(3)
        order = np.argsort(np.where(left_out, np.inf, away), kind="stable")
        rows = order[: min(ROWS_PER_FIX, int((~left_out).sum()))]
        if len(rows):
            fix = _measure(solver, image, rows, start)
            covered = bool(separation[rows].min() <= COVERED)
            if covered:
                right.append(features(fix))
            if fix is not None and fix.inliers >= MIN_INLIERS:
                error = fix.pose - image.pose
                errors.append(np.array([error[0], error[1], float(wrap_angle(error[2]))]))
                claimed.append(fix.covariance)
                distances.append(float(away[rows[0]]))
                if covered:
                    near_errors.append(float(np.hypot(error[0], error[1])))
        if len(image.wrong_rows):
            elsewhere = image.wrong_rows[:ROWS_PER_FIX]
            fix = _measure(solver, image, elsewhere, solver.poses[elsewhere[0]])
            # Map images elsewhere may show the same landmarks, which then measure the right pose.
            if fix is None or view_distance(image.pose[None], fix.pose)[0] > WRONG_POSE_M:
                wrong.append(features(fix))
    covariance = CovarianceModel()
    if len(errors) >= MIN_EXAMPLES:
        covariance = fit_covariance(np.array(errors), np.array(claimed), np.array(distances))
    evidence = EvidenceModel()
    if min(len(right), len(wrong)) >= MIN_EXAMPLES:
        evidence = fit_likelihood_ratio(np.array(right), np.array(wrong))
    solved = len(near_errors) / len(right) if right else np.nan
    median = float(np.median(near_errors)) if near_errors else np.nan
    return Calibration(covariance, evidence, len(errors), len(right), solved, median)


def _measure(
    solver: LandmarkSolver, image: HeldOutImage, rows: Rows, start: Array
) -> LandmarkFix | None:
    spread = np.diag(PRIOR_SIGMA**2)
    return solver.measure(image.bearings, image.descriptors, rows, start, spread)


def fit_covariance(errors: Array, claimed: Array, distances: Array) -> CovarianceModel:
    """Maximize the likelihood of errors (k, 3) as Student t, whose tails the covariances cover."""
    start = CovarianceModel()

    def cost(logs: Array) -> float:
        bounded = np.clip(logs, -12.0, 6.0)
        kappa2, floor_m, floor_rad, growth = np.exp(bounded)
        floor = np.array([floor_m, floor_m, floor_rad])
        wide = floor * (1.0 + growth * distances)[:, None]
        scale = kappa2 * claimed + wide[:, :, None] ** 2 * np.eye(3)
        scale = scale / GAUSSIAN_OF_STUDENT
        chi2 = np.einsum("ki,ki->k", errors, np.linalg.solve(scale, errors[..., None])[..., 0])
        likelihood = -0.5 * np.linalg.slogdet(scale)[1]
        likelihood = likelihood - 0.5 * (STUDENT_NU + 3.0) * np.log1p(chi2 / STUDENT_NU)
        # A weak prior about the defaults decides what few examples leave open.
        away = (logs - origin) / 2.0
        return float(-likelihood.sum() + 0.5 * (away @ away))

    origin = np.log([start.kappa2, start.floor_m, start.floor_rad, start.growth])
    found = scipy.optimize.minimize(
        cost, origin, method="Nelder-Mead", options={"maxiter": 800, "fatol": 1e-3}
    )
    kappa2, floor_m, floor_rad, growth = np.exp(np.clip(found.x, -12.0, 6.0)).tolist()
    return CovarianceModel(
        kappa2,
        float(np.clip(floor_m, *FLOOR_BOUNDS)),
        float(np.clip(floor_rad, *FLOOR_BOUNDS)),
        growth,
    )


def fit_likelihood_ratio(right: Array, wrong: Array) -> EvidenceModel:
    """Logistic regression (Newton's method) of features (k, 4) of right and of wrong places.

    Both classes weigh the same, so the log-odds are the log-likelihood ratio. Examples that do not
    separate teach nothing: the defaults stay.
    """
    inputs = np.concatenate((right, wrong))
    labels = np.concatenate((np.ones(len(right)), np.zeros(len(wrong))))
    balance = np.concatenate(
        (np.full(len(right), 0.5 / len(right)), np.full(len(wrong), 0.5 / len(wrong)))
    ) * len(inputs)
    weights = np.zeros(inputs.shape[1])
    # The offset is free but for what keeps the matrix regular.
    ridge = np.diag([1e-3, RIDGE, RIDGE, RIDGE])
    for _ in range(50):
        odds = np.clip(inputs @ weights, -30.0, 30.0)
        probability = 1.0 / (1.0 + np.exp(-odds))
        gradient = inputs.T @ (balance * (probability - labels)) + ridge @ weights
        curvature = (inputs * (balance * probability * (1.0 - probability))[:, None]).T @ inputs
        change = np.linalg.solve(curvature + ridge, gradient)
        weights = weights - np.clip(change, -2.0, 2.0)
        # More inliers, or a wider spread, are never evidence against a place.
        weights[1:] = np.maximum(weights[1:], 0.0)
        if np.abs(change).max() < 1e-8:
            break
    if np.quantile(right @ weights, 0.25) <= max(np.quantile(wrong @ weights, 0.75), 0.0):
        return EvidenceModel()
    offset, by_inliers, by_matched, by_spread = weights.tolist()
    return EvidenceModel(offset, by_inliers, by_matched, by_spread, MIN_RATIO)
