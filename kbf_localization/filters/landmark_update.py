"""How a component uses a pose that landmarks measured: gate, Kalman step and evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.pose_solver import LandmarkFix

MIN_INLIERS = 12
"""Of a fix that measures a pose: fewer are met at wrong places, too."""

GATE_MAHALANOBIS = 16.3
"""Squared, of a fix's innovation: the 99.9 % quantile of χ² with three degrees of freedom."""

REANCHOR_INLIERS = 25
"""Of a fix beyond the gate that is used none the less, with the component inflated to meet it."""

MAX_LOG_RATIO = 4.0
"""Bound of a fix's log likelihood ratio: look-alikes have landmarks, too."""

LANDMARK_ROWS = 4
"""The heaviest map images whose landmarks are matched with the camera's image."""

MAX_MEASURED, MIN_MEASURED_PROBABILITY = 4, 1e-3
"""Components that landmarks measure at an image, the heaviest ones above a probability."""


def log_ratio(fix: LandmarkFix) -> float:
    """Return the calibrated log likelihood ratio of "here" against "elsewhere", bounded."""
    return float(np.clip(fix.log_likelihood_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def is_sound(fix: LandmarkFix) -> bool:
    """Return whether a fix has enough inliers and finite numbers."""
    finite = np.isfinite(fix.pose).all() and np.isfinite(fix.covariance).all()
    return bool(finite) and fix.inliers >= MIN_INLIERS


def innovation(component: Hypothesis, fix: LandmarkFix) -> tuple[Array, Array, float]:
    """Return a fix's residual (3,), its covariance (3, 3) and squared Mahalanobis length."""
    residual = fix.pose - component.pose
    residual[2] = wrap_angle(residual[2])
    covariance = component.covariance + fix.covariance
    return residual, covariance, float(residual @ np.linalg.solve(covariance, residual))


def landmark_update(component: Hypothesis, fix: LandmarkFix) -> tuple[Hypothesis, float] | None:
    """Return the component after a Kalman step by a fix, with the innovation's mean square.

    None where the fix is not used. One beyond the gate with many inliers re-anchors the component:
    its covariance is inflated until the fix is within reach.
    """
    if not is_sound(fix):
        return None
    residual, total, squared = innovation(component, fix)
    if not np.isfinite(squared):
        return None
    joint = component.state_covariance
    if squared > GATE_MAHALANOBIS:
        if fix.inliers < REANCHOR_INLIERS:
            return None
        joint = joint.copy()
        joint[:3, :3] += (squared / 4.0) * component.covariance
        total = joint[:3, :3] + fix.covariance
    gain = np.linalg.solve(total, joint[:3]).T
    change = gain @ residual
    kept = np.eye(6)
    kept[:, :3] -= gain
    updated = kept @ joint @ kept.T + gain @ fix.covariance @ gain.T
    pose = component.pose + change[:3]
    pose[2] = wrap_angle(pose[2])
    after = replace(
        component,
        pose=pose,
        state_covariance=0.5 * (updated + updated.T),
        bias=component.bias + change[3:],
    )
    return after, squared / 3.0


def from_fix(fix: LandmarkFix, number: int) -> Hypothesis:
    """Return the component of a fix alone."""
    joint = np.eye(6)
    joint[:3, :3] = fix.covariance
    return Hypothesis(np.array(fix.pose, dtype=np.float64), joint, number)
