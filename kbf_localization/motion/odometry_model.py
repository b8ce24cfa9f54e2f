"""The odometry motion model on embedded poses (section 6.3) and the likelihood of its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.geometry import embed, wrap_angle

STANDING_STILL_M = 0.003
"""Below this translation its direction is noise of the encoders: the motion is all rotation."""

GLITCH = 10.0
"""Wheels slip ten times their usual error now and then, but not farther."""

LEAST_VARIANCE = 1e-8
"""A drive whose odometry equals its poses gives zero, which no Gaussian density has."""


def rotate_translate_rotate(motion: ArrayLike) -> tuple[Array, Array, Array]:
    """Motions (..., 3) in the robot's frame as (δ_rot1, δ_trans, δ_rot2), in rad, m and rad.

    Standing still or turning on the spot has no direction of travel: δ_rot1 is 0 there, and the
    whole rotation is δ_rot2.
    """
    motion = np.asarray(motion, dtype=np.float64)
    translation = np.hypot(motion[..., 0], motion[..., 1])
    travels = translation >= STANDING_STILL_M
    first = np.where(travels, np.arctan2(motion[..., 1], motion[..., 0]), 0.0)
    return first, translation, wrap_angle(motion[..., 2] - first)


def transition(poses: ArrayLike, motion: ArrayLike) -> Array:
    """f(X_i): where poses (..., 3) get by motions (..., 3), embedded as (..., 4), without noise."""
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
    """Variances (σ_x², σ_y², σ_c², σ_s²) of one step, as (4,).

    Steps lead from true `poses` (t, 3) by the odometry's `motions` (t, 3) to `next_poses`; those
    with a number that is not finite are passed over. Errors beyond `GLITCH` usual ones are faults
    of the record and count as that, so that one wild reading does not make the noise.
    """
    before = np.asarray(poses, dtype=np.float64)
    motions = np.asarray(motions, dtype=np.float64)
    after = np.asarray(next_poses, dtype=np.float64)
    usable = np.isfinite(np.hstack((before, motions, after))).all(axis=1)
    if not usable.any():
        raise ValueError("motions: no step has finite poses and motion")
    errors = embed(after[usable]) - transition(before[usable], motions[usable])
    usual = 1.4826 * np.median(np.abs(errors), axis=0)
    bounded = np.minimum(np.abs(errors), np.maximum(GLITCH * usual, LEAST_VARIANCE**0.5))
    variances = np.mean(np.square(bounded), axis=0)
    return np.asarray(np.maximum(variances, LEAST_VARIANCE))
