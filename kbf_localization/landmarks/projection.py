"""The residuals of `bearings` by components: the last axis counts matches, or samples of them.

Few matches at many steps make the cost of NumPy that of calls, not of numbers. Arrays whose last
axis is long need few calls and no small matrices. Derivatives are by a twist in the base frame,
(displacement, rotation); `twists` gives the matrix that turns them into those by a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Rows
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
)

_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


@dataclass(frozen=True)
class Pairs:
    """Points (3, ...) of the map with the bearings that see them.

    `axes` (3, 3, ...) has the unit ray and two tangents in its first axis; `scale` (...) is in
    pixels per radian, `centre` (3,) the camera's centre in the base frame.
    """

    axes: Array
    scale: Array
    points: Array
    centre: Array

    @classmethod
    def of(cls, bearings: Bearings, points: Array) -> Pairs:
        """Return the pairs of bearings (m) and points (m, 3)."""
        return cls(
            np.ascontiguousarray(np.moveaxis(bearings.axes, 0, -1)),
            bearings.scale,
            np.ascontiguousarray(points.T),
            bearings.centre,
        )

    def chosen(self, rows: Rows) -> Pairs:
        """Return the pairs `rows` (...) of all (m)."""
        return Pairs(
            self.axes.take(rows, axis=-1),
            self.scale.take(rows),
            self.points.take(rows, axis=-1),
            self.centre,
        )


@dataclass(frozen=True)
class Projection:
    """Residuals (2, ...) in pixels of points at `base` (3, ...) in the base frame.

    `slope` (2, 3, ...) is the derivative by those.
    """

    residuals: Array
    slope: Array
    base: Array

    def by_twist(self, rows: Rows | None = None) -> Array:
        """Return derivatives (2, 6, ...) by a twist: a displacement, then a rotation.

        `rows` selects from the last axis.
        """
        slope, base = self.slope, self.base
        if rows is not None:
            slope, base = slope.take(rows, axis=-1), base.take(rows, axis=-1)
        found = np.empty((2, STATES, *base.shape[1:]))
        found[:, :3] = slope
        # slope · (base × axis) = axis · (slope × base)
        np.multiply(slope[:, _NEXT], base[_AFTER], out=found[:, 3:])
        found[:, 3:] -= slope[:, _AFTER] * base[_NEXT]
        return found


def project(rotation: Array, origin: Array, pairs: Pairs) -> Projection:
    """Project points into bases at `origin` (3, ...) turned by `rotation` (3, 3, ...).

    The trailing axes are those of the pairs or of length one; a single rotation has none. Points
    behind a camera have the residual `BEHIND` and zero derivatives.
    """
    offset = pairs.points - origin
    if rotation.ndim == 2:
        base = rotation.T @ offset
    else:
        base = (rotation * offset[:, None]).sum(axis=0)
    centre = pairs.centre.reshape(3, *(1,) * (base.ndim - 1))
    along = (pairs.axes * (base - centre)).sum(axis=1)
    ahead = along[0] > NEAREST_M
    depth = np.where(ahead, along[0], 1.0)
    gain = np.where(ahead, pairs.scale / depth, 0.0)
    found = along[1:] * gain
    slope = pairs.axes[1:] * gain
    slope -= pairs.axes[0] * (found / depth)[:, None]
    return Projection(found if ahead.all() else np.where(ahead, found, BEHIND), slope, base)


def rotations_by_components(states: Array) -> Array:
    """Return Rz(heading) Ry(pitch) Rx(roll) (3, 3, ...) of states (6, ...)."""
    angles = states[[HEADING, PITCH, ROLL]]
    (cy, cp, cr), (sy, sp, sr) = np.cos(angles), np.sin(angles)
    found = np.empty((3, 3, *states.shape[1:]))
    found[0, 0], found[1, 0], found[2, 0] = cy * cp, sy * cp, -sp
    found[0, 1], found[1, 1] = cy * sp * sr - sy * cr, sy * sp * sr + cy * cr
    found[0, 2], found[1, 2] = cy * sp * cr + sy * sr, sy * sp * cr - cy * sr
    found[2, 1], found[2, 2] = cp * sr, cp * cr
    return found


def twists(states: Array, rotation: Array) -> Array:
    """Return the twists (6, 6, ...) in the base frame that changes of states (6, ...) make."""
    found = np.zeros((STATES, *states.shape))
    found[:3, X], found[:3, Y], found[:3, HEIGHT] = -rotation
    found[3:, HEADING] = rotation[2]
    found[4, PITCH], found[5, PITCH] = np.cos(states[ROLL]), -np.sin(states[ROLL])
    found[3, ROLL] = 1.0
    return found


def residual_information(
    slope: Array, covariances: Array, rotation: Array, variance: float
) -> tuple[Array, Array, Array]:
    """Return the entries (00, 01, 11), each (m,), of (σ² I + J_P C_P J_Pᵀ)⁻¹.

    `slope` (2, 3, m) is by the points in the base frame, `covariances` (3, 3, m) are in the map's.
    """
    by_point = np.matmul(rotation, slope)
    spread = (covariances * by_point[:, None]).sum(axis=2)
    a, d = (spread * by_point).sum(axis=1) + variance
    b = (spread[0] * by_point[1]).sum(axis=0)
    determinant = a * d - b * b
    return d / determinant, -b / determinant, a / determinant
