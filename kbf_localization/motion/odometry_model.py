"""The odometry motion model on embedded poses (section 6.3) and the likelihood of its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbf_localization.geometry import embed, wrap_angle

Array = NDArray[np.float64]

STANDING_STILL_M = 0.003
"""Below this translation its direction is noise of the encoders: the motion is all rotation."""

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


def estimate_noise(poses: ArrayLike, motions: ArrayLike) -> Array:
    """Maximum-likelihood variances (σ_x², σ_y², σ_c², σ_s²) of one step, as (4,).

    `poses` (t, 3) are the true poses of a drive, `motions` (t-1, 3) the odometry's motion from
    each to the next. Steps with a non-finite number are passed over.
    """
    poses = np.asarray(poses, dtype=np.float64)
    motions = np.asarray(motions, dtype=np.float64)
    if len(motions) != max(len(poses) - 1, 0):
        raise ValueError(f"motions: {len(motions)} for {len(poses)} poses, need one fewer")
    return noise_between(poses[:-1], motions, poses[1:])


def noise_between(poses: ArrayLike, motions: ArrayLike, next_poses: ArrayLike) -> Array:
    """The same for separate steps: from `poses` (t, 3) by `motions` (t, 3) to `next_poses`."""
    before = np.asarray(poses, dtype=np.float64)
    motions = np.asarray(motions, dtype=np.float64)
    after = np.asarray(next_poses, dtype=np.float64)
    usable = np.isfinite(np.hstack((before, motions, after))).all(axis=1)
    if not usable.any():
        raise ValueError("motions: no step has finite poses and motion")
    errors = embed(after[usable]) - transition(before[usable], motions[usable])
    variances = np.mean(np.square(errors), axis=0)
    return np.asarray(np.maximum(variances, LEAST_VARIANCE))
