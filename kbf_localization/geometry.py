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
    """Return the angle wrapped to [-π, π)."""
    return np.asarray((np.asarray(angle, dtype=np.float64) + np.pi) % (2.0 * np.pi) - np.pi)


def compose(pose: ArrayLike, motion: ArrayLike) -> Array:
    """Return the pose reached from `pose` by `motion` in the frame of `pose` (⊕)."""
    pose, motion = np.asarray(pose, dtype=np.float64), np.asarray(motion, dtype=np.float64)
    x, y, heading = pose[..., 0], pose[..., 1], pose[..., 2]
    ahead, left = motion[..., 0], motion[..., 1]
    cos, sin = np.cos(heading), np.sin(heading)
    turned = wrap_angle(heading + motion[..., 2])
    # Filled, not stacked: filters compose single poses, of which most time would be np.stack's.
    found = np.empty((*turned.shape, 3))
    found[..., 0] = x + cos * ahead - sin * left
    found[..., 1] = y + sin * ahead + cos * left
    found[..., 2] = turned
    return found


def relative(origin: ArrayLike, pose: ArrayLike) -> Array:
    """Return `pose` relative to `origin` (⊖): compose(origin, relative(origin, pose)) == pose."""
    origin, pose = np.asarray(origin, dtype=np.float64), np.asarray(pose, dtype=np.float64)
    cos, sin = np.cos(origin[..., 2]), np.sin(origin[..., 2])
    away = pose - origin
    dx, dy = away[..., 0], away[..., 1]
    found: Array = np.empty_like(away)
    found[..., 0] = cos * dx + sin * dy
    found[..., 1] = cos * dy - sin * dx
    found[..., 2] = wrap_angle(away[..., 2])
    return found


def difference(pose: ArrayLike, origin: ArrayLike) -> Array:
    """Return `pose` − `origin` (..., 3) in the frame of both, the heading wrapped."""
    found: Array = np.asarray(pose, dtype=np.float64) - np.asarray(origin, dtype=np.float64)
    found[..., 2] = wrap_angle(found[..., 2])
    return found


def blend(start: Array, end: Array, fraction: float | Array) -> Array:
    """Return poses (..., 3) at fractions between `start` and `end`, along the shorter arc."""
    found: Array = start + fraction * difference(end, start)
    found[..., 2] = wrap_angle(found[..., 2])
    return found


def invert(pose: ArrayLike) -> Array:
    """Return the origin as seen from `pose`."""
    return relative(pose, np.zeros(3))


def rotation(heading: float) -> Array:
    """Return the matrix (3, 3) from the robot's axes to the map's, for (x, y, heading)."""
    cos, sin = np.cos(heading), np.sin(heading)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def motion_jacobian(start: ArrayLike, end: ArrayLike) -> Array:
    """Return the Jacobian (3, 3) of the pose `end` (3,) by the pose `start` (3,), motion fixed."""
    start, end = np.asarray(start, dtype=np.float64), np.asarray(end, dtype=np.float64)
    jacobian = np.eye(3)
    jacobian[0, 2], jacobian[1, 2] = start[1] - end[1], end[0] - start[0]
    return jacobian


def process_noise(start: Array, end: Array, variances: Array) -> Array:
    """Return the covariance (3, 3) of (x, y, heading) added by a motion from `start` to `end` (3,).

    `variances` (3,) are the motion's, forward, left and in heading. The heading's error grows along
    the path and turns the rest of it: a straight motion adds as much as many short motions.
    """
    turn = rotation(start[2] + 0.5 * wrap_angle(end[2] - start[2]))
    covariance = turn @ np.diag(variances) @ turn.T
    lever = np.array([start[1] - end[1], end[0] - start[0]])
    covariance[:2, :2] += variances[2] / 3.0 * np.outer(lever, lever)
    covariance[:2, 2] += variances[2] / 2.0 * lever
    covariance[2, :2] = covariance[:2, 2]
    return np.asarray(covariance)


def embed(poses: ArrayLike) -> Array:
    """Embed poses as points (x, y, cos θ, sin θ) of R⁴, on which Gaussian kernels are defined."""
    poses = np.asarray(poses, dtype=np.float64)
    points = np.empty((*poses.shape[:-1], 4))
    points[..., :2] = poses[..., :2]
    np.cos(poses[..., 2], out=points[..., 2])
    np.sin(poses[..., 2], out=points[..., 3])
    return points


def unembed(points: ArrayLike) -> Array:
    """Return the poses nearest to points of R⁴; the heading is atan2(sin θ, cos θ)."""
    points = np.asarray(points, dtype=np.float64)
    heading = np.arctan2(points[..., 3], points[..., 2])
    return np.stack((points[..., 0], points[..., 1], heading), axis=-1)


def interpolate(stamps_ns: Stamps, poses: Array, at_ns: ArrayLike) -> Array:
    """Interpolate poses linearly at the times `at_ns`, headings along the shorter arc.

    Times outside `stamps_ns` (increasing) get the first or last pose.
    """
    at = np.asarray(at_ns, dtype=np.int64)
    right = np.clip(np.searchsorted(stamps_ns, at, side="left"), 1, max(len(stamps_ns) - 1, 1))
    right = np.minimum(right, len(stamps_ns) - 1)
    left = np.maximum(right - 1, 0)
    span = np.maximum(stamps_ns[right] - stamps_ns[left], 1)
    fraction = np.clip((at - stamps_ns[left]) / span, 0.0, 1.0)
    return blend(poses[left], poses[right], fraction[..., None])


def heading_of(x: float, y: float, z: float, w: float) -> float | None:
    """Return the yaw of a quaternion of about unit length; None for what is no rotation."""
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(length - 1.0) <= NORM_TOLERANCE:
        return None
    return math.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)


def quaternion_of(heading: float) -> tuple[float, float, float, float]:
    """Return (x, y, z, w) of a rotation about the vertical axis."""
    return 0.0, 0.0, math.sin(heading / 2.0), math.cos(heading / 2.0)


def planar_block(values: ArrayLike) -> Array:
    """Return the block (3, 3) of (x, y, heading) of ROS's covariance, 36 numbers."""
    planar: Array = np.asarray(values, dtype=np.float64).reshape(36)[_PLANAR]
    return planar.reshape(3, 3)


def spatial_numbers(covariance: Array) -> Array:
    """Return ROS's 36 numbers of a planar covariance (3, 3)."""
    full = np.zeros(36)
    full[_PLANAR] = covariance.reshape(9)
    return full


def position_sigma(covariance: Array) -> float:
    """Return the standard deviation in metres of a pose's position in its worst direction."""
    xx, xy, yy = float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])
    return math.sqrt(max(0.5 * (xx + yy) + math.hypot(0.5 * (xx - yy), xy), 0.0))


def sound_covariance(covariance: Array) -> Array:
    """Return the nearest symmetric matrix (3, 3) whose variances are within `limits.VARIANCES`.

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


def fit_rigid(points: ArrayLike, targets: ArrayLike) -> Array:
    """Return the pose (3,) of the frame of points (n, 2) in that of targets (n, 2).

    Least squares (Umeyama 1991, without scale): compose(pose, point) is nearest to the target.
    ValueError for fewer than two distinct points.
    """
    points, targets = np.asarray(points, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    middle, target_middle = points.mean(axis=0), targets.mean(axis=0)
    spread = (points - middle).T @ (targets - target_middle)
    if len(points) < 2 or not np.abs(points - middle).max() > 0.0:
        raise ValueError("two distinct points or more are needed")
    heading = float(np.arctan2(spread[0, 1] - spread[1, 0], spread[0, 0] + spread[1, 1]))
    cos, sin = np.cos(heading), np.sin(heading)
    turned = np.array([[cos, -sin], [sin, cos]]) @ middle
    return np.array([*(target_middle - turned), heading])
