"""The cameras of public data sets, as their authors publish them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.files import read_lines, read_opencv_yaml
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.limits import MAX_PARAMETER_FILE_BYTES
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_of_calibration
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera

COLD_VIEW_RAD = (float(np.radians(68.9)), float(np.radians(54.4)))
"""About the field of view of COLD's standard camera (Pronobis and Caputo 2009)."""

_TUM_NAME = re.compile(r"(?:freiburg|fr)([123])(?![0-9])")
_TUM = {
    "1": PinholeCamera(
        640, 480, 517.3, 516.5, 318.6, 255.3, (0.2624, -0.9531, -0.0054, 0.0026, 1.1633)
    ),
    "2": PinholeCamera(
        640, 480, 520.9, 521.0, 325.1, 249.7, (0.2312, -0.7849, -0.0033, -0.0001, 0.9172)
    ),
    "3": PinholeCamera(640, 480, 535.4, 539.2, 320.1, 247.6),
}
"""The colour cameras of freiburg1, 2 and 3; the images of the third are undistorted already."""

SIMULATED_VIEW_RAD, SIMULATED_HEIGHT_M = COLD_VIEW_RAD[0], 1.1
"""The simulator's camera unless it is asked for another: COLD's width of view, square pixels."""

SEVEN_SCENES = PinholeCamera(640, 480, 585.0, 585.0, 320.0, 240.0)

_LORIS_CAMERA, _LORIS_BASE = "d400_color_optical_frame", "base_link"
MAX_TRANSFORMS = 1000


def cold_camera(width: int, height: int) -> Camera | None:
    """Return COLD's standard camera at the images' size; None for other than 4:3 images."""
    if abs(width * 3 - height * 4) > 4:
        return None
    return PinholeCamera.from_field_of_view(width, height, *COLD_VIEW_RAD)


def simulated_camera(width: int, height: int) -> PinholeCamera:
    """Return the simulator's camera for images of this size."""
    focal = 0.5 * width / float(np.tan(0.5 * SIMULATED_VIEW_RAD))
    return PinholeCamera.from_focal(width, height, focal)


def tum_camera(name: str) -> Camera | None:
    """Return the camera of a TUM RGB-D sequence, such as "rgbd_dataset_freiburg2_desk"."""
    match = _TUM_NAME.search(name.lower())
    return _TUM[match[1]] if match else None


def kitti_camera(calibration: Path, images: str, width: int, height: int) -> tuple[Camera, Array]:
    """Return KITTI's rectified camera of `images` ("image_2": P2), and its centre (3,).

    P = K [I | t] in the optical frame of camera 0, whose the poses are; so is the centre.
    DatasetError for what is none.
    """
    wanted = f"P{images[-1]}:"
    for line in read_lines(calibration):
        if not line.startswith(wanted):
            continue
        try:
            p = [float(field) for field in line[len(wanted) :].split()]
            if len(p) != 12 or not np.isfinite(p).all():
                raise ParameterError("it has not twelve numbers")
            matrix = [*p[0:3], *p[4:7], *p[8:11]]
            camera = camera_of_calibration(width, height, matrix, "", ())
            return camera, -np.linalg.solve(np.reshape(matrix, (3, 3)), np.array(p[3::4]))
        except (ParameterError, ValueError, np.linalg.LinAlgError) as error:
            raise DatasetError(f"{calibration}: {wanted} is no camera: {error}") from error
    raise DatasetError(f"{calibration}: has no {wanted}")


def openloris_camera(path: Path) -> Camera:
    """Return the colour camera in a `sensors.yaml`; DatasetError for what is none.

    The order of its four intrinsics is fx, cx, fy, cy; fx and fy are nearly equal.
    """
    values = _table(path).get(_LORIS_CAMERA)
    if not isinstance(values, Mapping):
        raise DatasetError(f"{path}: has no {_LORIS_CAMERA}")
    try:
        fx, cx, fy, cy = _numbers(values.get("intrinsics"), 4)
        if abs(fx - fy) > abs(fx - cx):
            cx, fy = fy, cx
        lens = values.get("distortion_coefficients")
        return camera_of_calibration(
            _whole(values.get("width")),
            _whole(values.get("height")),
            (fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0),
            str(values.get("distortion_model", "")),
            [] if lens is None else _numbers(lens, None),
        )
    except ParameterError as error:
        raise DatasetError(f"{path}: {_LORIS_CAMERA}: {error}") from error


def openloris_mount(path: Path) -> Mount | None:
    """Return the colour camera's mount in a `trans_matrix.yaml`; None where it has no such edge."""
    listed = _table(path).get("trans_matrix")
    for item in listed[:MAX_TRANSFORMS] if isinstance(listed, list) else ():
        if not isinstance(item, Mapping) or item.get("child_frame") != _LORIS_CAMERA:
            continue
        if item.get("parent_frame") != _LORIS_BASE:
            continue
        try:
            matrix = np.reshape(_numbers(item.get("matrix"), 16), (4, 4))
            return Mount(_nearest_rotation(matrix[:3, :3]), matrix[:3, 3])
        except ParameterError as error:
            raise DatasetError(f"{path}: {_LORIS_CAMERA}: {error}") from error
    return None


def _table(path: Path) -> Mapping[str, object]:
    values = read_opencv_yaml(path, MAX_PARAMETER_FILE_BYTES)
    return values if isinstance(values, Mapping) else {}


def _numbers(values: object, count: int | None) -> list[float]:
    data = values.get("data") if isinstance(values, Mapping) else values
    if not isinstance(data, list) or (len(data) != count if count else len(data) > 100):
        raise ParameterError(f"there are not {count or 'some'} numbers")
    if not all(isinstance(item, (int, float)) and abs(item) < 1e12 for item in data):
        raise ParameterError("it is not made of numbers")
    return [float(item) for item in data]


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ParameterError("its width and height are not whole numbers")
    return value


def _nearest_rotation(matrix: Array) -> Array:
    """Return the rotation nearest to a matrix of a few digits.

    ParameterError where none is near.
    """
    left, scales, right = np.linalg.svd(matrix)
    if not np.abs(scales - 1.0).max() < 0.05 or np.linalg.det(left @ right) < 0.0:
        raise ParameterError("its matrix is no rotation")
    return np.asarray(left @ right)
