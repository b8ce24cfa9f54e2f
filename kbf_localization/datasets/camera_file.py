"""`camera.yaml`: a calibration beside images, as ROS's camera_calibration writes it.

Beyond ROS's keys it may have `mount`, the optical frame in the robot's base frame: `translation`
(x, y, z in metres) and `quaternion` (x, y, z, w). A panorama is declared by `distortion_model:
cylindrical` or `equirectangular` and needs no matrix if it is a full turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from kbf_localization.datasets.files import read_yaml
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.limits import MAX_PARAMETER_FILE_BYTES, shortened
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_of_calibration
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.panorama import LINEAR, PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera

CAMERA_FILE = "camera.yaml"
_ROS_COEFFICIENTS = {0: "plumb_bob", 4: "plumb_bob", 5: "plumb_bob", 8: "rational_polynomial"}


def read_camera_file(path: Path) -> tuple[Camera, Mount | None]:
    """Return the camera and, where it is given, its mount; DatasetError, in one line, otherwise."""
    values = read_yaml(path, MAX_PARAMETER_FILE_BYTES)
    try:
        if not isinstance(values, Mapping):
            raise ParameterError("it has no image_width, image_height and camera_matrix")
        return _camera(values), _mount(values.get("mount"))
    except ParameterError as error:
        raise DatasetError(f"{path}: is no calibration: {error}") from error


def write_camera_file(path: Path, camera: Camera, mount: Mount | None = None) -> None:
    """Write what `read_camera_file` reads."""
    values: dict[str, object] = {"image_width": camera.width, "image_height": camera.height}
    values["distortion_model"], matrix, coefficients = calibration_of(camera)
    values["camera_matrix"] = {"rows": 3, "cols": 3, "data": matrix}
    values["distortion_coefficients"] = {
        "rows": 1,
        "cols": len(coefficients),
        "data": coefficients,
    }
    if mount is not None:
        values["mount"] = {
            "translation": mount.translation.tolist(),
            "quaternion": list(mount.quaternion),
        }
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="ascii")


def calibration_of(camera: Camera) -> tuple[str, list[float], list[float]]:
    """Return ROS's distortion model, the matrix (9) and the coefficients of a camera."""
    if isinstance(camera, PanoramaCamera):
        kind = "equirectangular" if camera.vertical == LINEAR else "cylindrical"
        rates = camera.columns_per_radian, camera.rows_per_radian
        return kind, _matrix(*rates, camera.ahead_column, camera.horizon_row), []
    if not isinstance(camera, (PinholeCamera, FisheyeCamera)):
        raise ParameterError(f"a {type(camera).__name__} cannot be written as a CameraInfo")
    matrix = _matrix(camera.fx, camera.fy, camera.cx, camera.cy)
    coefficients = [float(value) for value in camera.distortion] or [0.0] * 5
    if isinstance(camera, FisheyeCamera):
        return "equidistant", matrix, coefficients
    return _ROS_COEFFICIENTS.get(len(camera.distortion), "thin_prism"), matrix, coefficients


def _matrix(fx: float, fy: float, cx: float, cy: float) -> list[float]:
    return [float(value) for value in (fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0)]


def _camera(values: Mapping[str, object]) -> Camera:
    width, height = values.get("image_width"), values.get("image_height")
    if not isinstance(width, int) or not isinstance(height, int):
        raise ParameterError("it has no whole image_width and image_height")
    model = str(values.get("distortion_model", values.get("camera_model", "")))
    matrix, lens = values.get("camera_matrix"), values.get("distortion_coefficients")
    return camera_of_calibration(width, height, _data(matrix), model, _data(lens))


def _mount(values: object) -> Mount | None:
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise ParameterError(f"its mount is {shortened(values)}, not translation and quaternion")
    translation, quaternion = _data(values.get("translation")), _data(values.get("quaternion"))
    if len(translation) != 3 or len(quaternion) != 4:
        raise ParameterError("its mount has no translation of 3 and quaternion of 4 numbers")
    return Mount.from_transform(translation, quaternion)


def _data(values: object) -> list[float]:
    """Return the numbers of a matrix ("data", as ROS and OpenCV write it) or of a plain list."""
    if isinstance(values, Mapping):
        values = values.get("data")
    numbers = values if isinstance(values, list) else []
    if len(numbers) > 100 or not all(isinstance(number, (int, float)) for number in numbers):
        raise ParameterError(f"{shortened(values)} are not numbers")
    try:
        return [float(number) for number in numbers]
    except OverflowError as error:
        raise ParameterError("it has a number without end") from error
