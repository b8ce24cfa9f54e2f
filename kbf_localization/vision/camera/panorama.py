"""Panoramas: the bearing by the column, cylindrical or equirectangular."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.errors import ParameterError
from kbf_localization.limits import shortened
from kbf_localization.vision.camera.base import (
    as_pixels,
    as_points,
    check_centre,
    check_size,
    check_value,
    number_of,
    scaled_centre,
    within,
)

TANGENT, LINEAR = "tangent", "linear"
"""A row is the tangent of the elevation (a cylinder), or the elevation (a sphere)."""
FULL_TURN = 2.0 * np.pi
_ROUNDING = 1e-6
"""Relative excess over a full turn that is rounding; a panorama this near to one wraps round."""


@dataclass(frozen=True)
class PanoramaCamera:
    """An unwrapped image all round, or part of it.

    A column is a bearing: `columns_per_radian` to the right, negative in a mirrored image, from
    `ahead_column`. `horizon_row` is level; a row below it is `rows_per_radian` times the elevation
    ("linear": equirectangular) or its tangent ("tangent": cylindrical).
    """

    width: int
    height: int
    columns_per_radian: float
    rows_per_radian: float
    ahead_column: float
    horizon_row: float
    vertical: str = TANGENT

    model = "panorama"

    def __post_init__(self) -> None:
        check_size(self.width, self.height)
        # A full turn takes the whole width at least: more would show a direction twice.
        least = self.width / FULL_TURN * (1.0 - _ROUNDING)
        rate = self.columns_per_radian
        check_value("columns per radian", rate, (-200.0 * self.width, 200.0 * self.width))
        if abs(rate) < least:
            raise ParameterError(
                f"the camera's {rate:g} columns per radian make the image wider than a full turn"
            )
        check_value("rows per radian", self.rows_per_radian, (0.02, 200.0 * self.height))
        check_centre("ahead column", self.ahead_column, self.width)
        check_centre("horizon row", self.horizon_row, self.height)
        if self.vertical not in (TANGENT, LINEAR):
            raise ParameterError(
                f'the camera\'s vertical is {shortened(self.vertical)}: give "tangent" or "linear"'
            )
        if self.vertical == LINEAR and self.height > np.pi * self.rows_per_radian * (1 + _ROUNDING):
            raise ParameterError("the camera's rows reach beyond the zenith or the nadir")

    @classmethod
    def level(
        cls, width: int, height: int, vertical: str = TANGENT, horizontal_rad: float = FULL_TURN
    ) -> PanoramaCamera:
        """Return an image of square pixels whose middle is level and looks ahead."""
        check_size(width, height)
        rate = width / horizontal_rad
        return cls(width, height, rate, rate, (width - 1) / 2, (height - 1) / 2, vertical)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> PanoramaCamera:
        """Return a stored camera; ParameterError for what is none."""
        width, height = check_size(number_of(values, "width"), number_of(values, "height"))
        sizes = (-200.0 * width, 200.0 * width)
        return cls(
            width,
            height,
            check_value("columns per radian", number_of(values, "columns_per_radian"), sizes),
            check_value(
                "rows per radian", number_of(values, "rows_per_radian"), (0.02, 200.0 * height)
            ),
            check_centre("ahead column", number_of(values, "ahead_column"), width),
            check_centre("horizon row", number_of(values, "horizon_row"), height),
            str(number_of(values, "vertical")),
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "model": self.model,
            "width": int(self.width),
            "height": int(self.height),
            "columns_per_radian": float(self.columns_per_radian),
            "rows_per_radian": float(self.rows_per_radian),
            "ahead_column": float(self.ahead_column),
            "horizon_row": float(self.horizon_row),
            "vertical": self.vertical,
        }

    def resized(self, width: int, height: int) -> PanoramaCamera:
        check_size(width, height)
        return PanoramaCamera(
            width,
            height,
            self.columns_per_radian * width / self.width,
            self.rows_per_radian * height / self.height,
            scaled_centre(self.ahead_column, self.width, width),
            scaled_centre(self.horizon_row, self.height, height),
            self.vertical,
        )

    @property
    def is_full_turn(self) -> bool:
        """Whether the left and the right edge see the same direction."""
        return self.width >= FULL_TURN * abs(self.columns_per_radian) * (1.0 - _ROUNDING)

    def rays(self, pixels: ArrayLike) -> Array:
        pixels = as_pixels(pixels)
        bearing = (pixels[:, 0] - self.ahead_column) / self.columns_per_radian
        cos, down = self._level_and_down(pixels[:, 1])
        return np.column_stack([np.sin(bearing) * cos, down, np.cos(bearing) * cos])

    def project(self, points: ArrayLike, inside: bool = True) -> Array:
        points = as_points(points)
        across = np.hypot(points[:, 0], points[:, 2])
        columns = self.ahead_column + self.columns_per_radian * np.arctan2(
            points[:, 0], points[:, 2]
        )
        if self.is_full_turn:
            columns = (columns + 0.5) % self.width - 0.5
        else:
            # Of the columns a turn apart that see the same bearing, the nearest to the middle.
            turn, middle = FULL_TURN * abs(self.columns_per_radian), (self.width - 1) / 2
            columns = (columns - middle + turn / 2) % turn + middle - turn / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            down = points[:, 1] / across
            if self.vertical == LINEAR:
                down = np.arctan2(points[:, 1], across)
        pixels = np.column_stack([columns, self.horizon_row + self.rows_per_radian * down])
        seen = np.isfinite(pixels).all(axis=1) & (points != 0.0).any(axis=1)
        if inside:
            seen = seen & within(self, pixels)
        return np.asarray(np.where(seen[:, None], pixels, np.nan))

    def rays_and_scales(self, pixels: ArrayLike) -> tuple[Array, Array]:
        return self.rays(pixels), self.pixels_per_radian(pixels)

    def pixels_per_radian(self, pixels: ArrayLike) -> Array:
        pixels = as_pixels(pixels)
        cos, _ = self._level_and_down(pixels[:, 1])
        cos = np.where(np.isfinite(pixels[:, 0]), np.maximum(cos, 1e-12), np.nan)
        # d(row)/d(elevation) is rate / cos² on a cylinder; a bearing shrinks by cos on both.
        power = 3 if self.vertical == TANGENT else 1
        rates = abs(self.columns_per_radian) * self.rows_per_radian
        return np.asarray(np.sqrt(rates / cos**power))

    def _level_and_down(self, rows: Array) -> tuple[Array, Array]:
        """Return the level and the downward part of the unit rays of rows."""
        below = (rows - self.horizon_row) / self.rows_per_radian
        if self.vertical == TANGENT:
            cos = 1.0 / np.sqrt(1.0 + below * below)
            return cos, below * cos
        below = np.where(np.abs(below) <= np.pi / 2 * (1.0 + _ROUNDING), below, np.nan)
        return np.asarray(np.abs(np.cos(below))), np.asarray(np.sin(below))
