"""Cameras from numbers: `sensor_msgs/CameraInfo` and calibrations of the same content, or a map's.

What the numbers hold may be hostile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kbf_localization.errors import ParameterError
from kbf_localization.limits import shortened
from kbf_localization.vision.camera.base import Camera, check_size, check_value, number_of
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.panorama import LINEAR, TANGENT, PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera


def camera_from_dict(values: object) -> Camera:
    """Return the camera that `Camera.to_dict` described; ParameterError for what is none."""
    if not isinstance(values, Mapping):
        raise ParameterError(f"the stored camera is {shortened(values)}, not a table")
    model = number_of(values, "model")
    if model == PinholeCamera.model:
        return PinholeCamera.from_dict(values)
    if model == FisheyeCamera.model:
        return FisheyeCamera.from_dict(values)
    if model == PanoramaCamera.model:
        return PanoramaCamera.from_dict(values)
    raise ParameterError(f"the stored camera is of the unknown model {shortened(model)}")


PINHOLE_MODELS = (
    "plumb_bob", "rational_polynomial", "thin_prism", "radtan", "radial-tangential",
)  # fmt: skip
"""OpenCV's coefficients in OpenCV's order; how many there are says which."""
FISHEYE_MODELS = ("equidistant", "fisheye", "kannala_brandt", "kannala_brandt4")
PANORAMAS = {"cylindrical": TANGENT, "equirectangular": LINEAR}
"""In place of a distortion model, and what a row is of the elevation."""
UNDISTORTED = ("", "none", "pinhole", "perspective")
MAX_SKEW = 0.02
"""Skew of the pixels in focal lengths; beyond it the matrix is no camera's that is built."""
MAX_ASPECT_ERROR = 0.02
"""Relative difference of two aspect ratios that rounding to whole pixels explains."""
PANORAMA_ASPECT = 3.0
"""An image this many times wider than high is most likely an unwrapped panorama."""


def is_rectified(image_topic: str) -> bool:
    """Return whether a topic has images that are undistorted already: image_rect, by convention."""
    return any(part.startswith("image_rect") for part in image_topic.split("/"))


def is_panorama(model: str) -> bool:
    """Return whether a distortion model declares a panorama."""
    return model.strip().lower() in PANORAMAS


def camera_from_info(info: Any, *, rectified: bool = False) -> Camera:
    """Return the camera of a CameraInfo, of rclpy or of a bag; ParameterError for what is none.

    The calibration (`k`, `d`) is that of the full image; `roi` and `binning_x`, `binning_y` bring
    it to the images that are published. `rectified` images have the projection `p` and no
    distortion.
    """
    width, height = check_size(_whole(info.width), _whole(info.height))
    if rectified:
        p = _numbers("p", info.p, 12)
        matrix, model, coefficients = [*p[0:3], *p[4:7], *p[8:11]], "", []
    else:
        matrix, model = _numbers("k", info.k, 9), str(info.distortion_model)
        coefficients = _numbers("d", info.d)
    camera = camera_of_calibration(width, height, matrix, model, coefficients)
    roi = info.roi
    region = [_whole(value) for value in (roi.x_offset, roi.y_offset, roi.width, roi.height)]
    return _binned(
        _cropped(camera, *region), _whole(info.binning_x) or 1, _whole(info.binning_y) or 1
    )


def camera_of_calibration(
    width: int,
    height: int,
    matrix: Sequence[float],
    model: str,
    coefficients: Sequence[float],
) -> Camera:
    """Return the camera of a matrix (9 numbers, row by row) and ROS's name of a distortion model.

    ParameterError for what is not calibrated, is absurd, or is of a model that is not known. A
    panorama's matrix has pixels per radian for focal lengths, and the column ahead and the level
    row for the centre; without one it is a full turn, level, its middle ahead.
    """
    check_size(width, height)
    model = model.strip().lower()
    if is_panorama(model) and not np.any(matrix):
        return PanoramaCamera.level(width, height, PANORAMAS[model])
    if len(matrix) != 9 or not np.isfinite(matrix).all():
        raise ParameterError("the camera's matrix is not nine finite numbers")
    if not np.any(matrix):
        raise ParameterError("the camera is not calibrated: its matrix is zero")
    fx, skew, cx, _, fy, cy, _, _, last = (float(value) for value in matrix)
    if [matrix[3], matrix[6], matrix[7]] != [0.0, 0.0, 0.0] or last != 1.0:
        raise ParameterError(f"the camera's matrix is {shortened(list(matrix))}, not a camera's")
    if abs(skew) > MAX_SKEW * abs(fx):
        raise ParameterError(f"the camera's matrix has a skew of {skew:g} pixels; not supported")
    if is_panorama(model):
        return PanoramaCamera(width, height, fx, fy, cx, cy, PANORAMAS[model])
    lens = [float(value) for value in coefficients]
    if not np.any(lens) and (model in UNDISTORTED or model not in FISHEYE_MODELS):
        return PinholeCamera(width, height, fx, fy, cx, cy)
    if model in FISHEYE_MODELS:
        return FisheyeCamera(width, height, fx, fy, cx, cy, _without_zeros(lens, (4,)))
    if model in PINHOLE_MODELS:
        return PinholeCamera(
            width, height, fx, fy, cx, cy, _without_zeros(lens, PinholeCamera.coefficients)
        )
    raise ParameterError(
        f"the camera's distortion_model is {shortened(model)}: known are "
        f"{', '.join((*PINHOLE_MODELS, *FISHEYE_MODELS, *PANORAMAS))}"
    )


def fitted(camera: Camera, width: int, height: int) -> Camera:
    """Return the camera at the size of the images; ParameterError for another aspect ratio.

    An image of another aspect ratio is a region of the calibrated image, and nobody knows which.
    """
    check_size(width, height)
    if (width, height) == (camera.width, camera.height):
        return camera
    # Compared in pixels: 3 x 2 is the rounded 640 x 480.
    rounding = 1.0 / min(width, height, camera.width, camera.height)
    ratio = (width / height) / (camera.width / camera.height)
    if abs(ratio - 1.0) > MAX_ASPECT_ERROR + rounding:
        raise ParameterError(
            f"the camera is calibrated for {camera.width}x{camera.height}, the images are "
            f"{width}x{height}, of another aspect ratio"
        )
    return camera.resized(width, height)


def _cropped(camera: Camera, left: int, top: int, width: int, height: int) -> Camera:
    """Return the camera of a region; all zero is the whole image."""
    if (width, height) in ((0, 0), (camera.width, camera.height)) and left == top == 0:
        return camera
    if min(left, top) < 0 or left + width > camera.width or top + height > camera.height:
        raise ParameterError(
            f"the camera's region {width}x{height} at ({left}, {top}) is not within its "
            f"{camera.width}x{camera.height} pixels"
        )
    check_size(width, height)
    if isinstance(camera, (PinholeCamera, FisheyeCamera)):
        lens = camera.fx, camera.fy, camera.cx - left, camera.cy - top, camera.distortion
        return type(camera)(width, height, *lens)
    if isinstance(camera, PanoramaCamera):
        ahead, level = camera.ahead_column - left, camera.horizon_row - top
        return replace(camera, width=width, height=height, ahead_column=ahead, horizon_row=level)
    raise ParameterError(f"a region of a {type(camera).__name__} is not supported")


def _binned(camera: Camera, columns: int, rows: int) -> Camera:
    """Return the camera whose pixels are blocks of so many columns and rows."""
    for what, pixels in (("binning_x", columns), ("binning_y", rows)):
        check_value(what, pixels, (1, 64))
    if columns == rows == 1:
        return camera
    return camera.resized(max(camera.width // columns, 1), max(camera.height // rows, 1))


def _numbers(field: str, values: Any, count: int | None = None) -> list[float]:
    """Return a field's finite numbers; ParameterError where they are none, or not as many."""
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise ParameterError(f"the camera's {field} is not made of numbers") from error
    if count is not None and len(numbers) != count:
        raise ParameterError(f"the camera's {field} has {len(numbers)} numbers, not {count}")
    if len(numbers) > 100 or not np.isfinite(numbers).all():
        raise ParameterError(f"the camera's {field} has numbers that are not finite, or too many")
    return numbers


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"the camera has {shortened(value)} for a whole number") from error


def _without_zeros(lens: list[float], counts: Sequence[int]) -> tuple[float, ...]:
    """Return the coefficients in one of `counts`, with zeros at the end cut off or put there."""
    while lens and lens[-1] == 0.0:
        lens = lens[:-1]
    count = min((count for count in counts if count >= len(lens)), default=None)
    if count is None:
        raise ParameterError(f"the camera's distortion has {len(lens)} coefficients")
    return (*lens, *[0.0] * (count - len(lens)))
