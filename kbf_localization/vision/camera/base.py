"""What every camera model can do, and what models of lenses have in common.

The optical frame is that of REP 103: x to the right, y down, z ahead. Pixel (0, 0) is the centre of
the first pixel, as in OpenCV; an image covers [-0.5, width - 0.5] by [-0.5, height - 0.5].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array, Flags
from kbf_localization.errors import ParameterError
from kbf_localization.limits import Range, check_count, check_number, shortened

SIZES: Range = (1, 65_535)
"""Columns or rows of an image: what JPEG can hold."""
FOCAL_SIZES: Range = (0.02, 200.0)
"""A focal length in image widths or heights: from beyond a fisheye lens to a telescope."""
CENTRES: Range = (-2.0, 3.0)
"""The optical axis in image widths or heights: a region of a larger image may lie beside it."""
MIN_COVERAGE = 0.5
"""Fraction of the image for which a model must have rays; below it the distortion is absurd."""
_GRID = 16
"""Columns and rows of the grid of pixels on which the coverage is found."""


class Camera(Protocol):
    """An immutable calibrated camera; what it gives for NaN is NaN."""

    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...

    def rays(self, pixels: ArrayLike) -> Array:
        """Return unit rays (k, 3) in the optical frame through pixels (k, 2).

        NaN for a pixel that the model does not reach, such as one beyond the fold of a distortion.
        """

    def project(self, points: ArrayLike, inside: bool = True) -> Array:
        """Return the pixels (k, 2) at which points (k, 3) of the optical frame are seen.

        NaN where a point is not visible: behind the camera, beyond the model's reach or, if
        `inside`, outside the image. Without `inside`, pixels beyond the image's edges remain.
        """

    def pixels_per_radian(self, pixels: ArrayLike) -> Array:
        """Return the local scale (k,): the square root of pixels² per steradian."""

    def rays_and_scales(self, pixels: ArrayLike) -> tuple[Array, Array]:
        """Return `rays` (k, 3) and `pixels_per_radian` (k,) of pixels (k, 2)."""

    def resized(self, width: int, height: int) -> Camera:
        """Return the camera of the same image brought to another size."""

    def to_dict(self) -> dict[str, object]:
        """Return plain numbers and texts, for `camera_from_dict`."""


Lens = TypeVar("Lens", bound="LensCamera")


@dataclass(frozen=True)
class LensCamera(ABC):
    """A camera with focal lengths and centre in pixels, and coefficients of its distortion."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...] = ()

    model: ClassVar[str]
    coefficients: ClassVar[tuple[int, ...]]
    """How many distortion coefficients the model may have."""
    largest_coefficient: ClassVar[float]

    def __post_init__(self) -> None:
        check_size(self.width, self.height)
        check_focal("focal length fx", self.fx, self.width)
        check_focal("focal length fy", self.fy, self.height)
        check_centre("centre cx", self.cx, self.width)
        check_centre("centre cy", self.cy, self.height)
        check_coefficients(self.distortion, self.coefficients, self.largest_coefficient)
        check_coverage(self)

    @classmethod
    def from_dict(cls: type[Lens], values: Mapping[str, object]) -> Lens:
        """Return a stored camera; ParameterError for what is none."""
        width, height = check_size(number_of(values, "width"), number_of(values, "height"))
        return cls(
            width,
            height,
            check_focal("focal length fx", number_of(values, "fx"), width),
            check_focal("focal length fy", number_of(values, "fy"), height),
            check_centre("centre cx", number_of(values, "cx"), width),
            check_centre("centre cy", number_of(values, "cy"), height),
            check_coefficients(
                values.get("distortion", ()), cls.coefficients, cls.largest_coefficient
            ),
        )

    def to_dict(self) -> dict[str, object]:
        numbers = {name: float(getattr(self, name)) for name in ("fx", "fy", "cx", "cy")}
        return {
            "model": self.model,
            "width": int(self.width),
            "height": int(self.height),
            **numbers,
            "distortion": [float(value) for value in self.distortion],
        }

    def resized(self: Lens, width: int, height: int) -> Lens:
        check_size(width, height)
        return type(self)(
            width,
            height,
            self.fx * width / self.width,
            self.fy * height / self.height,
            scaled_centre(self.cx, self.width, width),
            scaled_centre(self.cy, self.height, height),
            self.distortion,
        )

    def covers(self, pixels: Array) -> Flags:
        """Return for which pixels (k, 2) the model has rays; (k,)."""
        return np.asarray(np.isfinite(self.rays(pixels)).all(axis=1))

    def _normalized(self, pixels: Array) -> Array:
        """Return pixels (k, 2) in focal lengths from the centre."""
        return np.asarray((pixels - (self.cx, self.cy)) / (self.fx, self.fy))

    def rays_and_scales(self, pixels: ArrayLike) -> tuple[Array, Array]:
        return self.rays(pixels), self.pixels_per_radian(pixels)

    @abstractmethod
    def rays(self, pixels: ArrayLike) -> Array: ...

    @abstractmethod
    def project(self, points: ArrayLike, inside: bool = True) -> Array: ...

    @abstractmethod
    def pixels_per_radian(self, pixels: ArrayLike) -> Array: ...


def check_size(width: object, height: object) -> tuple[int, int]:
    """Return the size of an image in pixels; ParameterError where it cannot be one."""
    try:
        return check_count("the camera's width", width, SIZES), check_count(
            "the camera's height", height, SIZES
        )
    except ValueError as error:
        raise ParameterError(str(error)) from error


def check_value(what: str, value: object, limits: Range) -> float:
    """Return a number of a camera within its limits; ParameterError where it is not."""
    try:
        return check_number(f"the camera's {what}", value, limits)
    except ValueError as error:
        raise ParameterError(str(error)) from error


def check_focal(what: str, value: object, size: int) -> float:
    """Return a focal length in pixels that an image of `size` pixels may have."""
    return check_value(what, value, (FOCAL_SIZES[0] * size, FOCAL_SIZES[1] * size))


def check_centre(what: str, value: object, size: int) -> float:
    """Return a coordinate of the optical axis that an image of `size` pixels may have."""
    return check_value(what, value, (CENTRES[0] * size, CENTRES[1] * size))


def check_coefficients(values: object, counts: Iterable[int], limit: float) -> tuple[float, ...]:
    """Return distortion coefficients, as many as one of `counts`, none beyond ±`limit`."""
    counts = tuple(counts)
    if not isinstance(values, (tuple, list)) or len(values) not in counts:
        raise ParameterError(
            f"the camera's distortion is {shortened(values)}: give "
            f"{' or '.join(map(str, counts))} numbers"
        )
    return tuple(check_value("distortion", value, (-limit, limit)) for value in values)


def check_coverage(camera: LensCamera) -> None:
    """Refuse a model whose distortion leaves most of the image without rays."""
    covered = float(camera.covers(_pixel_grid(camera.width, camera.height)).mean())
    if covered < MIN_COVERAGE:
        raise ParameterError(
            f"the camera's distortion is absurd: only {covered:.0%} of the image can be seen by it"
        )


@lru_cache(maxsize=8)
def _pixel_grid(width: int, height: int) -> Array:
    """Return pixels (k, 2) evenly over an image: self-calibration tries hundreds of cameras."""
    columns, rows = (np.linspace(0.0, length - 1.0, _GRID) for length in (width, height))
    grid = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
    grid.flags.writeable = False
    return grid


def number_of(values: Mapping[str, object], key: str) -> object:
    """Return a stored value; ParameterError where it is missing."""
    if key not in values:
        raise ParameterError(f"the stored camera has no {key}")
    return values[key]


def as_pixels(pixels: ArrayLike) -> Array:
    """Return pixels as floats (k, 2); ParameterError for another shape."""
    return _rows_of("pixels", pixels, 2)


def as_points(points: ArrayLike) -> Array:
    """Return points as floats (k, 3); ParameterError for another shape."""
    return _rows_of("points", points, 3)


def within(camera: Camera, pixels: Array) -> Flags:
    """Return which pixels (k, 2) lie in the image; (k,)."""
    limits = np.array([camera.width - 0.5, camera.height - 0.5])
    return np.asarray(((pixels >= -0.5) & (pixels <= limits)).all(axis=1))


def unit(vectors: Array) -> Array:
    """Return vectors (k, 3) divided by their lengths."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def scaled_centre(centre: float, old: int, new: int) -> float:
    """Return a pixel coordinate in an image of another size, whose edges coincide."""
    return (centre + 0.5) * (new / old) - 0.5


def first_fold(angles_or_radii: Array, distorted: Array) -> int:
    """Return how many of the increasing samples lie before the distortion stops increasing."""
    stops = np.flatnonzero(~(np.diff(distorted) > 0.0))
    return len(angles_or_radii) if not len(stops) else int(stops[0]) + 1


def _rows_of(what: str, values: ArrayLike, columns: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != columns:
        raise ParameterError(f"{what} have the shape {array.shape}: give (k, {columns})")
    finite = np.asarray(np.isfinite(array).all(axis=1))
    return array if finite.all() else np.where(finite[:, None], array, np.nan)
