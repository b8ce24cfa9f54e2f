"""The camera equations point by point, as they stand in books: what the fast ones must equal."""

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.landmarks.bearings import (
    BEHIND,
    HEADING,
    HEIGHT,
    NEAREST_M,
    PITCH,
    ROLL,
    STATES,
    Bearings,
    X,
    Y,
    cross,
    in_base,
    positions,
    rotations,
)


@dataclass(frozen=True)
class Linearization:
    """Residuals (..., 2) in pixels, with derivatives by state (..., 2, 6) and point (..., 2, 3)."""

    residuals: Array
    by_state: Array
    by_point: Array


def residuals(states: Array, points: Array, bearings: Bearings) -> Array:
    """(..., k, 2) pixels: where points (k, 3) appear, relative to the bearings (k)."""
    return _gnomonic(in_base(states, points) - bearings.centre, bearings)[0]


def _gnomonic(seen: Array, bearings: Bearings) -> tuple[Array, Array]:
    """Residuals (..., k, 2) of points (..., k, 3) relative to the camera, and their depths."""
    along = np.einsum("...ij,...j->...i", bearings.axes, seen)
    depth = along[..., 0]
    ahead = depth > NEAREST_M
    safe = np.where(ahead, depth, 1.0)
    found = along[..., 1:] * (bearings.scale / safe)[..., None]
    return np.where(ahead[..., None], found, BEHIND), np.where(ahead, depth, np.inf)


def linearize(states: Array, points: Array, bearings: Bearings) -> Linearization:
    """Residuals and derivatives of points (..., k, 3) seen from states (..., 6).

    Points behind a camera have residual `BEHIND` and zero derivatives.
    """
    rotation = rotations(states)
    base = np.matmul(points - positions(states)[..., None, :], rotation)
    found, slope = _slope(base, bearings)
    by_point = np.matmul(slope, np.swapaxes(rotation, -1, -2)[..., None, :, :])
    by_state = np.empty((*found.shape, STATES))
    by_state[..., [X, Y, HEIGHT]] = -by_point
    for angle, axis in ((HEADING, rotation[..., 2, :]), (PITCH, _roll_axis(states)), (ROLL, None)):
        turn = np.array([1.0, 0.0, 0.0]) if axis is None else axis[..., None, :]
        by_state[..., angle] = np.einsum("...ij,...j->...i", slope, cross(base, turn))
    return Linearization(found, by_state, by_point)


def linearize_points(states: Array, points: Array, bearings: Bearings) -> tuple[Array, Array]:
    """Residuals (..., k, 2) and derivatives by the points (..., k, 2, 3) alone."""
    rotation = rotations(states)
    base = np.matmul(points - positions(states)[..., None, :], rotation)
    found, slope = _slope(base, bearings)
    return found, np.matmul(slope, np.swapaxes(rotation, -1, -2)[..., None, :, :])


def _slope(base: Array, bearings: Bearings) -> tuple[Array, Array]:
    """Residuals of points in the base frame and derivatives: (tangent − residual · ray) / depth."""
    found, depth = _gnomonic(base - bearings.centre, bearings)
    ray, tangents = bearings.axes[..., :1, :], bearings.axes[..., 1:, :]
    gain = bearings.scale / depth
    slope = tangents * gain[..., None, None] - ray * (found / depth[..., None])[..., None]
    return found, np.where(np.isfinite(depth)[..., None, None], slope, 0.0)


def _roll_axis(states: Array) -> Array:
    """Return the pitch axis (..., 3) in the base frame: Rx(roll)ᵀ ŷ."""
    roll = states[..., ROLL]
    return np.stack((np.zeros_like(roll), np.cos(roll), -np.sin(roll)), axis=-1)
