"""The odometry motion model on embedded poses (section 6.3) and the variances of its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.geometry import embed, wrap_angle

STANDING_STILL_M = 0.003
"""Below this translation its direction is noise of the encoders: the motion is all rotation."""

GLITCH = 10.0
"""Wheels slip ten times their ordinary error now and then, but not farther."""

MIN_VARIANCE = 1e-8
"""A drive whose odometry equals its poses gives zero, which no Gaussian density has."""


def rotate_translate_rotate(motion: ArrayLike) -> tuple[Array, Array, Array]:
    """Convert motions (..., 3) in the robot's frame to (δ_rot1, δ_trans, δ_rot2).

    Standing still or turning on the spot has no direction of travel: δ_rot1 is 0 there, and the
    whole rotation is δ_rot2.
    """
    motion = np.asarray(motion, dtype=np.float64)
    translation = np.hypot(motion[..., 0], motion[..., 1])
    travels = translation >= STANDING_STILL_M
    first = np.where(travels, np.arctan2(motion[..., 1], motion[..., 0]), 0.0)
    return first, translation, wrap_angle(motion[..., 2] - first)


def transition(poses: ArrayLike, motion: ArrayLike) -> Array:
    """Return f(X_i): poses (..., 3) moved by motions (..., 3) without noise, embedded (..., 4)."""
    poses = np.asarray(poses, dtype=np.float64)
    first, translation, second = rotate_translate_rotate(motion)
    heading = poses[..., 2] + first
    return embed(
        np.stack(
            (
                poses[..., 0] + translation * np.cos(heading),
                poses[..., 1] + translation * np.sin(heading),
                heading + second,
            ),
            axis=-1,
        )
    )


def noise_between(poses: ArrayLike, motions: ArrayLike, next_poses: ArrayLike) -> Array:
    """Estimate the variances (4,) of one step: (σ_x², σ_y², σ_c², σ_s²).

    Steps lead from true `poses` (t, 3) by the odometry's `motions` (t, 3) to `next_poses`; those
    with a number that is not finite are passed over. Errors beyond `GLITCH` robust σ are faults
    of the record and count as that, so that one wild reading does not make the noise.
    """
    errors = transition_errors(poses, motions, next_poses)
    sigma = 1.4826 * np.median(np.abs(errors), axis=0)
    bounded = np.minimum(np.abs(errors), np.maximum(GLITCH * sigma, MIN_VARIANCE**0.5))
    variances = np.mean(np.square(bounded), axis=0)
    return np.asarray(np.maximum(variances, MIN_VARIANCE))


def maximum_likelihood_noise(poses: ArrayLike, motions: ArrayLike, next_poses: ArrayLike) -> Array:
    """Return variances (σ_x², σ_y², σ_c², σ_s²) of a step by maximum likelihood, as in the paper.

    The transition errors are independent and Gaussian with mean zero, so each variance is the mean
    of the squared errors. Arguments as for `noise_between`, which equals it on records without
    faults and is what maps use.
    """
    squares = np.square(transition_errors(poses, motions, next_poses))
    return np.asarray(np.maximum(squares.mean(axis=0), MIN_VARIANCE))


def transition_errors(poses: ArrayLike, motions: ArrayLike, next_poses: ArrayLike) -> Array:
    """Return embedded next poses minus f(poses), (s, 4), of steps with finite numbers alone."""
    before = np.asarray(poses, dtype=np.float64)
    motions = np.asarray(motions, dtype=np.float64)
    after = np.asarray(next_poses, dtype=np.float64)
    usable = np.isfinite(np.hstack((before, motions, after))).all(axis=1)
    if not usable.any():
        raise ValueError("motions: no step has finite poses and motion")
    return np.asarray(embed(after[usable]) - transition(before[usable], motions[usable]))
