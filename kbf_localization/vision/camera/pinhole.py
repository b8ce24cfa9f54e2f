"""The pinhole camera with OpenCV's distortion: radial, tangential, thin prism and tilted sensor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Flags
from kbf_localization.vision.camera.base import (
    LensCamera,
    as_pixels,
    as_points,
    first_fold,
    unit,
    within,
)

MAX_ANGLE_RAD = np.radians(85.0)
"""A pinhole sees nothing further from its axis: the focal plane would reach 11 focal lengths."""
_RADII = np.tan(np.linspace(0.0, MAX_ANGLE_RAD, 1024))
"""Radii at which the radial distortion is tabulated, in focal lengths."""
_NEWTON_STEPS = 12
_TOLERANCE = 1e-9
"""Of an undistorted point, in focal lengths: below a millionth of a pixel."""


@dataclass(frozen=True)
class PinholeCamera(LensCamera):
    """A pinhole camera; all lengths in pixels.

    `distortion` holds the first of OpenCV's coefficients k1, k2, p1, p2, k3, k4, k5, k6, s1, s2,
    s3, s4, τx, τy: 4 or 5 are ROS's plumb_bob, 8 its rational_polynomial.
    """

    model = "pinhole"
    coefficients = (0, 4, 5, 8, 12, 14)
    largest_coefficient = 1e4
    """Rational models have numbers in the tens or hundreds that nearly cancel."""

    @classmethod
    def from_focal(
        cls, width: int, height: int, focal: float, distortion: tuple[float, ...] = ()
    ) -> PinholeCamera:
        """Return a camera of square pixels whose axis meets the image's middle."""
        return cls(width, height, focal, focal, (width - 1) / 2, (height - 1) / 2, distortion)

    @classmethod
    def from_field_of_view(
        cls, width: int, height: int, horizontal_rad: float, vertical_rad: float
    ) -> PinholeCamera:
        """Return an undistorted camera whose image spans the angles from edge to edge."""
        fx = 0.5 * width / float(np.tan(0.5 * horizontal_rad))
        fy = 0.5 * height / float(np.tan(0.5 * vertical_rad))
        return cls(width, height, fx, fy, (width - 1) / 2, (height - 1) / 2)

    def rays(self, pixels: ArrayLike) -> Array:
        return _through_focal_plane(self._undistort(self._normalized(as_pixels(pixels))))

    def rays_and_scales(self, pixels: ArrayLike) -> tuple[Array, Array]:
        # Undistorted once for both: that takes longest.
        flat = self._undistort(self._normalized(as_pixels(pixels)))
        return _through_focal_plane(flat), self._scales(flat)

    def project(self, points: ArrayLike, inside: bool = True) -> Array:
        points = as_points(points)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            flat = points[:, :2] / points[:, 2:]
            seen = (points[:, 2] > 0.0) & (np.hypot(*flat.T) <= self._reach)
            pixels = self._distort(flat) * (self.fx, self.fy) + (self.cx, self.cy)
        if inside:
            seen = seen & within(self, pixels)
        return np.asarray(np.where(seen[:, None], pixels, np.nan))

    def pixels_per_radian(self, pixels: ArrayLike) -> Array:
        return self._scales(self._undistort(self._normalized(as_pixels(pixels))))

    def _scales(self, flat: Array) -> Array:
        """Return pixels per radian (k,) at undistorted points (k, 2) at focal length 1."""
        if self._is_radial:
            squares = (flat**2).sum(axis=1)
            factor, slope = self._radial(squares)
            area = np.abs(factor * (factor + 2.0 * squares * slope))
        else:
            area = np.abs(_determinant(self._jacobian(flat)))
        # The solid angle of an area of the focal plane shrinks with the cube of the distance.
        per_steradian = self.fx * self.fy * area * (1.0 + (flat**2).sum(axis=1)) ** 1.5
        return np.asarray(np.sqrt(per_steradian))

    def covers(self, pixels: Array) -> Flags:
        if not self._is_radial:
            return super().covers(pixels)
        return np.asarray(np.hypot(*self._normalized(pixels).T) <= self._radii[1][-1])

    @cached_property
    def _coefficients(self) -> Array:
        padded = np.zeros(14)
        padded[: len(self.distortion)] = self.distortion
        return padded

    @cached_property
    def _is_radial(self) -> bool:
        """Whether points only move along their radii: no tangential, prism or tilt coefficients."""
        return not self._coefficients[[2, 3, *range(8, 14)]].any()

    @cached_property
    def _tilt(self) -> Array | None:
        """The homography (3, 3) of a tilted sensor; None where it is not tilted."""
        if not self._coefficients[12:].any():
            return None
        (cx, cy), (sx, sy) = np.cos(self._coefficients[12:]), np.sin(self._coefficients[12:])
        about_x = np.array([[1.0, 0.0, 0.0], [0.0, cx, sx], [0.0, -sx, cx]])
        about_y = np.array([[cy, 0.0, -sy], [0.0, 1.0, 0.0], [sy, 0.0, cy]])
        turn = about_y @ about_x
        onto = np.array(
            [[turn[2, 2], 0.0, -turn[0, 2]], [0.0, turn[2, 2], -turn[1, 2]], [0.0, 0.0, 1.0]]
        )
        return np.asarray(onto @ turn)

    @cached_property
    def _radii(self) -> tuple[Array, Array]:
        """Radii before and after the radial distortion, as far as the latter increases."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            distorted = _RADII * self._radial(_RADII**2)[0]
        before = first_fold(_RADII, distorted)
        return _RADII[:before], distorted[:before]

    @cached_property
    def _reach(self) -> float:
        """The largest radius that the model sees, in focal lengths."""
        return float(self._radii[0][-1])

    def _radial(self, squares: Array) -> tuple[Array, Array]:
        """Return the radial factor at squared radii, and its derivative by the squared radius."""
        k = self._coefficients
        above = 1.0 + squares * (k[0] + squares * (k[1] + squares * k[4]))
        below = 1.0 + squares * (k[5] + squares * (k[6] + squares * k[7]))
        d_above = k[0] + squares * (2.0 * k[1] + 3.0 * squares * k[4])
        d_below = k[5] + squares * (2.0 * k[6] + 3.0 * squares * k[7])
        # Beyond a pole of the rational function it comes back with the wrong sign.
        below = np.where(below > 0.0, below, np.nan)
        return above / below, (d_above - above / below * d_below) / below

    def _lens(self, flat: Array) -> Array:
        """Return points (k, 2) at focal length 1 after the lens, before the tilt of the sensor."""
        _, _, p1, p2, _, _, _, _, s1, s2, s3, s4, _, _ = self._coefficients
        x, y = flat.T
        squares = x * x + y * y
        radial = self._radial(squares)[0]
        return np.column_stack(
            [
                x * radial + 2.0 * p1 * x * y + p2 * (squares + 2.0 * x * x)
                + squares * (s1 + s2 * squares),
                y * radial + p1 * (squares + 2.0 * y * y) + 2.0 * p2 * x * y
                + squares * (s3 + s4 * squares),
            ]
        )  # fmt: skip

    def _lens_jacobian(self, flat: Array) -> Array:
        """Return (k, 2, 2) derivatives of `_lens`."""
        _, _, p1, p2, _, _, _, _, s1, s2, s3, s4, _, _ = self._coefficients
        x, y = flat.T
        squares = x * x + y * y
        radial, slope = self._radial(squares)
        mixed = 2.0 * x * y * slope + 2.0 * p1 * x + 2.0 * p2 * y
        prism_x, prism_y = 2.0 * (s1 + 2.0 * s2 * squares), 2.0 * (s3 + 2.0 * s4 * squares)
        jacobian = np.empty((len(flat), 2, 2))
        jacobian[:, 0, 0] = radial + 2.0 * x * x * slope + 2.0 * p1 * y + 6.0 * p2 * x + x * prism_x
        jacobian[:, 0, 1] = mixed + y * prism_x
        jacobian[:, 1, 0] = mixed + x * prism_y
        jacobian[:, 1, 1] = radial + 2.0 * y * y * slope + 6.0 * p1 * y + 2.0 * p2 * x + y * prism_y
        return jacobian

    def _distort(self, flat: Array) -> Array:
        if not self._coefficients.any():
            return flat
        bent = self._lens(flat)
        return bent if self._tilt is None else _through(self._tilt, bent)

    def _jacobian(self, flat: Array) -> Array:
        jacobian = self._lens_jacobian(flat)
        if self._tilt is None:
            return jacobian
        bent = self._lens(flat)
        tilted = np.column_stack([bent, np.ones(len(bent))]) @ self._tilt.T
        image = tilted[:, :2] / tilted[:, 2:]
        by_bent = self._tilt[None, :2, :2] - image[:, :, None] * self._tilt[None, 2:, :2]
        return np.asarray(by_bent / tilted[:, 2, None, None] @ jacobian)

    def _undistort(self, distorted: Array) -> Array:
        """Points (k, 2) at focal length 1 whose distorted points are given; NaN where none is."""
        if not self._coefficients.any():
            return distorted
        if self._is_radial:
            return self._undistort_radially(distorted)
        bent = distorted
        if self._tilt is not None:
            bent = _through(np.asarray(np.linalg.inv(self._tilt)), distorted)
        # Start on the radial curve alone, which is inverted by its table; then Newton.
        before, after = self._radii
        radius = np.hypot(*bent.T)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            factor = np.where(radius > 0.0, np.interp(radius, after, before) / radius, 1.0)
            flat = bent * factor[:, None]
            for _ in range(_NEWTON_STEPS):
                residual = self._lens(flat) - bent
                jacobian = self._lens_jacobian(flat)
                step = _solve(jacobian, residual)
                flat = flat - step
                if not np.nanmax(np.abs(step), initial=0.0) > 0.1 * _TOLERANCE:
                    break
            error = np.abs(self._lens(flat) - bent).max(axis=1)
            known = (error < _TOLERANCE * (1.0 + radius)) & (np.hypot(*flat.T) <= self._reach)
        return np.asarray(np.where(known[:, None], flat, np.nan))

    def _undistort_radially(self, distorted: Array) -> Array:
        """Do as `_undistort` for a radial model, by Newton's method on the radius alone."""
        before, after = self._radii
        target = np.hypot(*distorted.T)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            radius = np.interp(target, after, before)
            for _ in range(_NEWTON_STEPS):
                squares = radius * radius
                factor, slope = self._radial(squares)
                step = (radius * factor - target) / (factor + 2.0 * squares * slope)
                radius = radius - step
                if not np.nanmax(np.abs(step), initial=0.0) > 0.1 * _TOLERANCE:
                    break
            error = np.abs(radius * self._radial(radius * radius)[0] - target)
            known = error < _TOLERANCE * (1.0 + target)
            known &= (radius >= 0.0) & (radius <= self._reach)
            factor = np.where(target > 0.0, radius / target, 1.0)
        return np.asarray(np.where(known[:, None], distorted * factor[:, None], np.nan))


def _through_focal_plane(flat: Array) -> Array:
    """Return unit rays (k, 3) through points (k, 2) at focal length 1."""
    return unit(np.column_stack([flat, np.ones(len(flat))]))


def _through(homography: Array, flat: Array) -> Array:
    mapped = np.column_stack([flat, np.ones(len(flat))]) @ homography.T
    return np.asarray(mapped[:, :2] / mapped[:, 2:])


def _determinant(matrices: Array) -> Array:
    """Return determinants of (k, 2, 2); numpy's warns of NaN."""
    return np.asarray(matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] * matrices[:, 1, 0])


def _solve(matrices: Array, vectors: Array) -> Array:
    """Solve (k, 2, 2) systems; a singular one gives infinity or NaN rather than an error."""
    x = matrices[:, 1, 1] * vectors[:, 0] - matrices[:, 0, 1] * vectors[:, 1]
    y = matrices[:, 0, 0] * vectors[:, 1] - matrices[:, 1, 0] * vectors[:, 0]
    return np.asarray(np.stack([x, y], axis=1) / _determinant(matrices)[:, None])
