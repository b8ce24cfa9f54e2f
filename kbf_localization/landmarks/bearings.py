"""Directions to image points, and how far a predicted point lies from them, in pixels.

A state is (x, y, heading, height, pitch, roll) of the robot's base in the map (metres, radians):
R = Rz(heading) Ry(pitch) Rx(roll). A keypoint is a unit ray in the base frame. A residual is the
gnomonic projection of the predicted direction onto the tangent plane of that ray, times the pixels
per radian there, so one code serves all camera models.

`project` gives them by components: the last axis counts matches, or samples of them. Few matches at
many steps make the cost of NumPy that of calls, not of numbers. Arrays whose last axis is long need
few calls and no small matrices. Derivatives are by a twist in the base frame, (displacement,
rotation); `twists` gives the matrix that turns them into those by a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.geometry import wrap_angle

X, Y, HEADING, HEIGHT, PITCH, ROLL = range(6)
STATES = 6
NEAREST_M = 0.05
"""No landmark is nearer to a camera; a point there counts as behind it."""
BEHIND = 1e6
"""Residual in pixels of a point that lies behind the tangent plane: an outlier at any scale."""

SPREAD_CELLS = 4
"""The spread over the image counts cells of 4 by 4."""

SIGMA_PX = 0.7
"""Standard deviation of a keypoint's position along each axis."""


class CameraModel(Protocol):
    """The part of a camera that landmarks need; the optical frame is x right, y down, z ahead."""

    def rays(self, pixels: Array) -> Array:
        """Return unit rays (k, 3) of pixels (k, 2), NaN where there is none."""

    def pixels_per_radian(self, pixels: Array) -> Array:
        """Return (k,) local focal length."""


class CameraMount(Protocol):
    """Where the optical frame is in the robot's base frame (x ahead, y left, z up)."""

    @property
    def rotation(self) -> Array:
        """Return the optical axes (3, 3) as columns."""

    @property
    def translation(self) -> Array:
        """Return the optical centre (3,) in metres."""


@dataclass(frozen=True)
class Bearings:
    """What keypoints measure: directions in the base frame.

    `axes` (..., 3, 3) has the unit ray and the two tangents as rows; `scale` (...) is in pixels
    per radian; `centre` (3,) is the camera's centre in the base frame.
    """

    axes: Array
    scale: Array
    centre: Array

    def __len__(self) -> int:
        return len(self.scale)

    def __getitem__(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Bearings:
        return Bearings(self.axes[rows], self.scale[rows], self.centre)

    @cached_property
    def field_of_view(self) -> FieldOfView:
        """Return the smallest cone that holds the sound directions (k, 3, 3)."""
        rays = self.axes[:, 0][self.scale > 0.0]
        middle, slope = _middle_azimuth(rays), rays[:, 2]
        half = np.abs(wrap_angle(np.arctan2(rays[:, 1], rays[:, 0]) - middle)).max()
        return FieldOfView(middle, float(half), float(slope.min()), float(slope.max()))

    @cached_property
    def cells(self) -> Rows:
        """Return in which of 4 by 4 cells over all of them each direction (k, 3, 3) lies."""
        rays = self.axes[:, 0]
        across = np.stack((np.arctan2(rays[:, 1], rays[:, 0]), rays[:, 2]), axis=1)
        across[:, 0] = wrap_angle(across[:, 0] - _middle_azimuth(rays))
        low, high = across.min(axis=0), across.max(axis=0)
        cell = (across - low) / np.maximum(high - low, 1e-9) * SPREAD_CELLS
        cell = np.minimum(cell.astype(np.intp), SPREAD_CELLS - 1)
        return np.asarray(cell[:, 0] * SPREAD_CELLS + cell[:, 1])


@dataclass(frozen=True)
class FieldOfView:
    """A cone: azimuths (rad) within `half` of `middle`, slopes between `lowest` and `highest`."""

    middle: float
    half: float
    lowest: float
    highest: float

    def holds(self, rays: Array) -> NDArray[np.bool_]:
        """Tell which unit rays (k, 3) lie in it."""
        away = np.abs(wrap_angle(np.arctan2(rays[:, 1], rays[:, 0]) - self.middle))
        inside = (away <= self.half) & (rays[:, 2] >= self.lowest)
        return np.asarray(inside & (rays[:, 2] <= self.highest))


def _middle_azimuth(rays: Array) -> float:
    return float(np.arctan2(rays[:, 1].mean(), rays[:, 0].mean()))


def bearings_of(pixels: Array | Floats, camera: CameraModel, mount: CameraMount) -> Bearings:
    """Return bearings of pixels (k, 2); what the camera has no ray for gets a scale of zero."""
    pixels = np.asarray(pixels, dtype=np.float64).reshape(-1, 2)
    rays = camera.rays(pixels) @ mount.rotation.T
    scale = np.asarray(camera.pixels_per_radian(pixels), dtype=np.float64)
    sound = np.isfinite(rays).all(axis=1) & np.isfinite(scale) & (scale > 0.0)
    rays = np.where(sound[:, None], rays, np.array([1.0, 0.0, 0.0]))
    rays /= np.linalg.norm(rays, axis=1)[:, None]
    return Bearings(_axes(rays), np.where(sound, scale, 0.0), np.asarray(mount.translation))


def _axes(rays: Array) -> Array:
    """Return (k, 3, 3): each ray with two unit vectors perpendicular to it and to each other."""
    upright = np.abs(rays[:, 2]) > 0.9
    helper = np.where(upright[:, None], np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    first = cross(rays, helper)
    first /= np.linalg.norm(first, axis=1)[:, None]
    return np.stack((rays, first, cross(rays, first)), axis=1)


def cross(first: Array, second: Array) -> Array:
    """Return the vector products (..., 3), in about half of the time of `np.cross`."""
    (a, b, c), (x, y, z) = ((part[..., 0], part[..., 1], part[..., 2]) for part in (first, second))
    found = np.empty(np.broadcast_shapes(first.shape, second.shape))
    found[..., 0] = b * z - c * y
    found[..., 1] = c * x - a * z
    found[..., 2] = a * y - b * x
    return found


def rotations(states: Array) -> Array:
    """Return (..., 3, 3) from the base frame to the map's."""
    cy, sy = np.cos(states[..., HEADING]), np.sin(states[..., HEADING])
    cp, sp = np.cos(states[..., PITCH]), np.sin(states[..., PITCH])
    cr, sr = np.cos(states[..., ROLL]), np.sin(states[..., ROLL])
    rows = (
        np.stack((cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr), axis=-1),
        np.stack((sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr), axis=-1),
        np.stack((-sp, cp * sr, cp * cr), axis=-1),
    )
    return np.stack(rows, axis=-2)


def positions(states: Array) -> Array:
    """Return (..., 3) of the base in the map."""
    return states[..., [X, Y, HEIGHT]]


def spatial(poses: Array, attitudes: Array | None = None) -> Array:
    """States (..., 6) of planar poses (..., 3) with (height, pitch, roll), zero if not given."""
    poses = np.asarray(poses, dtype=np.float64)
    rest = np.zeros_like(poses) if attitudes is None else np.broadcast_to(attitudes, poses.shape)
    return np.concatenate((poses, rest), axis=-1)


def in_base(states: Array, points: Array) -> Array:
    """Return points (..., k, 3) of the map in the base frames of states (..., 6)."""
    return np.asarray(np.matmul(points - positions(states)[..., None, :], rotations(states)))


def rotate_to_map(headings: Array, vectors: Array) -> Array:
    """Return vectors (k, 3) turned about the vertical axis by headings (k,)."""
    cos, sin = np.cos(headings), np.sin(headings)
    x, y, z = vectors[:, 0], vectors[:, 1], vectors[:, 2]
    return np.stack((cos * x - sin * y, sin * x + cos * y, z), axis=1)


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
        for axis, (i, j) in enumerate(((1, 2), (2, 0), (0, 1)), start=3):
            np.multiply(slope[:, i], base[j], out=found[:, axis])
            found[:, axis] -= slope[:, j] * base[i]
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
    found, slope = gnomonic(pairs.axes, pairs.scale, base - centre)
    return Projection(found, slope, base)


def gnomonic(axes: Array, scale: Array, seen: Array) -> tuple[Array, Array]:
    """Return residuals (2, ...) and derivatives (2, 3, ...) of points `seen` (3, ...) by a camera.

    `axes` (3, 3, ...) has the unit ray and two tangents in its first axis.
    """
    along = (axes * seen).sum(axis=1)
    depth = along[0]
    ahead = depth > NEAREST_M
    everything = bool(ahead.all())
    depth = depth if everything else np.where(ahead, depth, 1.0)
    gain = scale / depth if everything else np.where(ahead, scale / depth, 0.0)
    found = along[1:] * gain
    slope = axes[1:] * gain
    slope -= axes[0] * (found / depth)[:, None]
    return found if everything else np.where(ahead, found, BEHIND), slope


def rotations_by_components(states: Array) -> Array:
    """Return Rz(heading) Ry(pitch) Rx(roll) (3, 3, ...) of states (6, ...)."""
    angles = states[[HEADING, PITCH, ROLL]]
    cosines, sines = np.cos(angles), np.sin(angles)
    if states.ndim == 1:  # Python's numbers take less time than NumPy's single ones.
        cosines, sines = cosines.tolist(), sines.tolist()
    (cy, cp, cr), (sy, sp, sr) = cosines, sines
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
) -> Array:
    """Return (σ² I + J_P C_P J_Pᵀ)⁻¹, (2, 2, m).

    `slope` (2, 3, m) is by the points in the base frame, `covariances` (3, 3, m) are in the map's.
    """
    by_point = np.matmul(rotation, slope)
    spread = (covariances * by_point[:, None]).sum(axis=2)
    a, d = (spread * by_point).sum(axis=1) + variance
    b = (spread[0] * by_point[1]).sum(axis=0)
    # No eigenvalue is below the variance; where rounding takes that away, none comes out as zero.
    found = np.stack((d, -b, -b, a))
    found /= np.maximum(a * d - b * b, variance * np.maximum(a, d))
    return found.reshape(2, 2, -1)
