"""The equidistant (fisheye) camera of ROS and OpenCV, after Kannala and Brandt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.vision.camera.base import (
    LensCamera,
    as_pixels,
    as_points,
    first_fold,
    within,
)

MAX_ANGLE_RAD = np.radians(175.0)
"""From the axis: straight behind, all directions would be one pixel."""
_SAMPLES = 1024
_NEWTON_STEPS = 12
_TOLERANCE_RAD = 1e-9
_SMALL_RAD = 1e-9
"""Below it, sin θ = θ to double precision."""


@dataclass(frozen=True)
class FisheyeCamera(LensCamera):
    """A lens whose image radius is θ(1 + k1 θ² + k2 θ⁴ + k3 θ⁶ + k4 θ⁸) focal lengths.

    θ is the angle from the axis, which may exceed π/2. Lengths are in pixels.
    """

    distortion: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)

    model = "fisheye"
    coefficients = (4,)
    largest_coefficient = 1e2

    def rays(self, pixels: ArrayLike) -> Array:
        bent = self._normalized(as_pixels(pixels))
        radius = np.hypot(*bent.T)
        angle = self._angle(radius)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(radius > _SMALL_RAD, np.sin(angle) / radius, 1.0)
        # On the axis the factor is 1, but an unreachable or NaN radius must stay NaN.
        factor = np.where(np.isfinite(angle), factor, np.nan)
        return np.column_stack([bent * factor[:, None], np.cos(angle)])

    def project(self, points: ArrayLike, inside: bool = True) -> Array:
        points = as_points(points)
        across = np.hypot(points[:, 0], points[:, 1])
        angle = np.arctan2(across, points[:, 2])
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(across > 0.0, self._radius(angle) / across, 0.0)
            pixels = points[:, :2] * factor[:, None] * (self.fx, self.fy) + (self.cx, self.cy)
        seen = (angle <= self._reach) & (points != 0.0).any(axis=1)
        if inside:
            seen = seen & within(self, pixels)
        return np.asarray(np.where(seen[:, None], pixels, np.nan))

    def pixels_per_radian(self, pixels: ArrayLike) -> Array:
        radius = np.hypot(*self._normalized(as_pixels(pixels)).T)
        angle = self._angle(radius)
        with np.errstate(divide="ignore", invalid="ignore"):
            around = np.where(angle > _SMALL_RAD, radius / np.sin(angle), 1.0)
        around = np.where(np.isfinite(angle), around, np.nan)
        return np.asarray(np.sqrt(self.fx * self.fy * np.abs(self._slope(angle)) * around))

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Angles and their image radii, as far as the radius increases."""
        angles = np.linspace(0.0, MAX_ANGLE_RAD, _SAMPLES)
        radii = self._radius(angles)
        before = first_fold(angles, radii)
        return angles[:before], radii[:before]

    @cached_property
    def _reach(self) -> float:
        """The largest angle from the axis that the model sees."""
        return float(self._table[0][-1])

    def _radius(self, angle: Array) -> Array:
        k1, k2, k3, k4 = self.distortion
        s = angle * angle
        return np.asarray(angle * (1.0 + s * (k1 + s * (k2 + s * (k3 + s * k4)))))

    def _slope(self, angle: Array) -> Array:
        k1, k2, k3, k4 = self.distortion
        s = angle * angle
        return np.asarray(1.0 + s * (3.0 * k1 + s * (5.0 * k2 + s * (7.0 * k3 + s * 9.0 * k4))))

    def _angle(self, radius: Array) -> Array:
        """Return angles from the axis of image radii; NaN beyond the model's reach."""
        angles, radii = self._table
        angle = np.interp(radius, radii, angles)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for _ in range(_NEWTON_STEPS):
                step = (self._radius(angle) - radius) / self._slope(angle)
                angle = angle - step
                if not np.nanmax(np.abs(step), initial=0.0) > 0.1 * _TOLERANCE_RAD:
                    break
            error = np.abs(self._radius(angle) - radius)
        known = (error < _TOLERANCE_RAD) & (angle <= self._reach)
        return np.asarray(np.where(known, angle, np.nan))
