"""Planar poses (x, y in metres, heading in radians) as arrays whose last axis has length 3."""

import math

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Stamps
from kbf_localization.limits import VARIANCES

_PLANAR = np.array([0, 1, 5, 6, 7, 11, 30, 31, 35])
NORM_TOLERANCE = 0.1
"""A quaternion this near to unit length was only rounded; tf2 draws the line there too."""


def wrap_angle(angle: ArrayLike) -> Array:
    """The same angle in [-π, π)."""
    return np.asarray((np.asarray(angle, dtype=np.float64) + np.pi) % (2.0 * np.pi) - np.pi)


def compose(pose: ArrayLike, motion: ArrayLike) -> Array:
    """The pose reached from `pose` by `motion`, which is given in the frame of `pose` (⊕)."""
    pose, motion = np.asarray(pose, dtype=np.float64), np.asarray(motion, dtype=np.float64)
    cos, sin = np.cos(pose[..., 2]), np.sin(pose[..., 2])
    return np.stack(
        (
            pose[..., 0] + cos * motion[..., 0] - sin * motion[..., 1],
            pose[..., 1] + sin * motion[..., 0] + cos * motion[..., 1],
            wrap_angle(pose[..., 2] + motion[..., 2]),
        ),
        axis=-1,
    )


def relative(origin: ArrayLike, pose: ArrayLike) -> Array:
    """`pose` as seen from `origin` (⊖): compose(origin, relative(origin, pose)) == pose."""
    origin, pose = np.asarray(origin, dtype=np.float64), np.asarray(pose, dtype=np.float64)
    cos, sin = np.cos(origin[..., 2]), np.sin(origin[..., 2])
    dx, dy = pose[..., 0] - origin[..., 0], pose[..., 1] - origin[..., 1]
    return np.stack(
        (cos * dx + sin * dy, -sin * dx + cos * dy, wrap_angle(pose[..., 2] - origin[..., 2])),
        axis=-1,
    )


def invert(pose: ArrayLike) -> Array:
    """The origin as seen from `pose`."""
    return relative(pose, np.zeros(3))


def embed(poses: ArrayLike) -> Array:
    """Poses as points (x, y, cos θ, sin θ) of R⁴, where Gaussian kernels live."""
    poses = np.asarray(poses, dtype=np.float64)
    return np.stack(
        (poses[..., 0], poses[..., 1], np.cos(poses[..., 2]), np.sin(poses[..., 2])), axis=-1
    )


def unembed(points: ArrayLike) -> Array:
    """The poses nearest to points of R⁴: the heading is the direction of (cos θ, sin θ)."""
    points = np.asarray(points, dtype=np.float64)
    heading = np.arctan2(points[..., 3], points[..., 2])
    return np.stack((points[..., 0], points[..., 1], heading), axis=-1)


def interpolate(stamps_ns: Stamps, poses: Array, at_ns: ArrayLike) -> Array:
    """Poses at the times `at_ns`, linear between neighbours, headings along the shorter arc.

    Times outside `stamps_ns` (increasing) get the first or last pose.
    """
    at = np.asarray(at_ns, dtype=np.int64)
    right = np.clip(np.searchsorted(stamps_ns, at, side="left"), 1, max(len(stamps_ns) - 1, 1))
    right = np.minimum(right, len(stamps_ns) - 1)
    left = np.maximum(right - 1, 0)
    span = np.maximum(stamps_ns[right] - stamps_ns[left], 1)
    share = np.clip((at - stamps_ns[left]) / span, 0.0, 1.0)
    step = poses[right] - poses[left]
    step[..., 2] = wrap_angle(step[..., 2])
    result = poses[left] + share[..., None] * step
    result[..., 2] = wrap_angle(result[..., 2])
    return np.asarray(result)


def heading_of(x: float, y: float, z: float, w: float) -> float | None:
    """The heading (yaw) of a quaternion of about unit length; None for what is no rotation."""
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(length - 1.0) <= NORM_TOLERANCE:
        return None
    return math.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def quaternion_of(heading: float) -> tuple[float, float, float, float]:
    """(x, y, z, w) of a rotation about the vertical axis."""
    return 0.0, 0.0, math.sin(heading / 2.0), math.cos(heading / 2.0)


def planar_block(values: ArrayLike) -> Array:
    """(3, 3) of (x, y, heading) in ROS's 36 numbers of (x, y, z, roll, pitch, yaw)."""
    planar: Array = np.asarray(values, dtype=np.float64).reshape(36)[_PLANAR]
    return planar.reshape(3, 3)


def spatial_numbers(covariance: Array) -> Array:
    """ROS's 36 numbers of a planar covariance (3, 3)."""
    full = np.zeros(36)
    full[_PLANAR] = covariance.reshape(9)
    return full


def position_sigma(covariance: Array) -> float:
    """The standard deviation in metres of a pose's position in its worst direction."""
    xx, xy, yy = float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])
    return math.sqrt(max(0.5 * (xx + yy) + math.hypot(0.5 * (xx - yy), xy), 0.0))


def sound_covariance(covariance: Array) -> Array:
    """The nearest symmetric matrix (3, 3) whose variances are within `limits.VARIANCES`.

    What is sound already is only made symmetric. ArithmeticError for what is not finite.
    """
    if not np.isfinite(covariance).all():
        raise ArithmeticError("a covariance is not finite")
    symmetric: Array = 0.5 * (covariance + covariance.T)
    low, high = VARIANCES
    variances, directions = np.linalg.eigh(symmetric)
    # Rounding is relative to the largest variance: the smallest must stand clear of it.
    low = max(low, 1e-13 * min(float(variances[-1]), high))
    if low <= variances[0] and variances[-1] <= high:
        return symmetric
    bounded = (directions * np.clip(variances, 10.0 * low, high)) @ directions.T
    return np.asarray(0.5 * (bounded + bounded.T))
