"""CameraInfo to cameras: against OpenCV's images of the same scene, and every fault by name."""

from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.vision.camera.camera_info import camera_from_info, fitted
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.panorama import PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera

K = [520.0, 0.0, 311.0, 0.0, 515.0, 247.0, 0.0, 0.0, 1.0]
D = [-0.28, 0.09, 0.001, -0.0007, -0.012]


def info(**changes: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "width": 640,
        "height": 480,
        "distortion_model": "plumb_bob",
        "d": D,
        "k": np.array(K),
        "p": [400.0, 0.0, 300.0, 0.0, 0.0, 401.0, 250.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        "binning_x": 0,
        "binning_y": 0,
        "roi": SimpleNamespace(x_offset=0, y_offset=0, width=0, height=0, do_rectify=False),
    }
    return SimpleNamespace(**{**fields, **changes})


def region(left: int, top: int, width: int, height: int) -> SimpleNamespace:
    return SimpleNamespace(x_offset=left, y_offset=top, width=width, height=height)


def test_a_camera_info_is_its_calibration() -> None:
    camera = camera_from_info(info())
    assert camera == PinholeCamera(640, 480, 520.0, 515.0, 311.0, 247.0, tuple(D))


def test_the_distortion_model_is_taken_by_its_name() -> None:
    eight = [0.8, -0.3, 1e-4, -2e-4, 0.02, 1.1, -0.2, 0.05]
    rational = camera_from_info(info(distortion_model="rational_polynomial", d=eight))
    assert isinstance(rational, PinholeCamera) and rational.distortion == tuple(eight)
    four = [-0.01, 0.03, -0.02, 0.004]
    fisheye = camera_from_info(info(distortion_model="equidistant", d=four))
    assert fisheye == FisheyeCamera(640, 480, 520.0, 515.0, 311.0, 247.0, tuple(four))
    none = camera_from_info(info(distortion_model="", d=[]))
    assert none == PinholeCamera(640, 480, 520.0, 515.0, 311.0, 247.0)
    round_about = camera_from_info(info(distortion_model="cylindrical", k=[0.0] * 9, d=[]))
    assert round_about == PanoramaCamera.level(640, 480)


def test_a_panoramas_matrix_has_pixels_per_radian_and_a_region_keeps_the_directions() -> None:
    k = [-100.0, 0.0, 200.0, 0.0, 160.0, 180.0, 0.0, 0.0, 1.0]
    part = region(40, 60, 320, 240)
    whole = camera_from_info(info(width=600, distortion_model="equirectangular", k=k, d=[]))
    assert whole == PanoramaCamera(600, 480, -100.0, 160.0, 200.0, 180.0, "linear")
    # The second radian to the left, half a radian down.
    np.testing.assert_allclose(
        whole.rays([[300.0, 260.0]]),
        [[-np.sin(1.0) * np.cos(0.5), np.sin(0.5), np.cos(1.0) * np.cos(0.5)]],
    )
    cut = camera_from_info(info(width=600, distortion_model="equirectangular", k=k, d=[], roi=part))
    np.testing.assert_allclose(cut.rays([[260.0, 200.0]]), whole.rays([[300.0, 260.0]]))


def test_zeros_at_the_end_of_the_distortion_do_not_count() -> None:
    padded = camera_from_info(info(d=[*D, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(
        padded.rays(np.array([[10.0, 20.0]])), camera_from_info(info()).rays([[10.0, 20.0]])
    )


def test_a_rectified_image_has_the_projection_and_no_distortion() -> None:
    camera = camera_from_info(info(), rectified=True)
    assert camera == PinholeCamera(640, 480, 400.0, 401.0, 300.0, 250.0)


def test_region_and_binning_see_what_opencv_crops_and_shrinks() -> None:
    whole = camera_from_info(info())
    part = camera_from_info(info(roi=region(40, 60, 320, 240), binning_x=2, binning_y=2))
    assert (part.width, part.height) == (160, 120)
    # An image whose values are its own coordinates, cropped and averaged in blocks.
    rows, columns = np.mgrid[0:480, 0:640].astype(np.float64)
    crop = np.s_[60:300, 40:360]
    at = [
        cv2.resize(plane[crop], (160, 120), interpolation=cv2.INTER_AREA)[30, 100]
        for plane in (columns, rows)
    ]
    np.testing.assert_allclose(
        part.rays(np.array([[100.0, 30.0]])), whole.rays(np.array([at])), atol=1e-9
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k": [0.0] * 9}, "not calibrated"),
        ({"k": [520.0] * 9}, "matrix"),
        ({"k": K[:8]}, "9"),
        ({"k": [float("nan"), *K[1:]]}, "finite"),
        ({"k": ["a"] * 9}, "numbers"),
        ({"k": [-520.0, *K[1:]]}, "fx"),
        ({"k": [1e9, *K[1:]]}, "fx"),
        ({"k": [520.0, 300.0, *K[2:]]}, "skew"),
        ({"width": 0}, "width"),
        ({"width": 10**12}, "width"),
        ({"width": None}, "whole"),
        ({"height": -480}, "height"),
        ({"distortion_model": "kaleidoscope"}, "distortion_model"),
        ({"distortion_model": "cylindrical", "k": [9.0, *K[1:]]}, "full turn"),
        ({"distortion_model": "x" * 10_000}, "distortion_model"),
        ({"distortion_model": "equidistant"}, "coefficients"),
        ({"d": [0.1] * 30}, "coefficients"),
        ({"d": [0.1] * 1000}, "too many"),
        ({"d": [float("inf"), 0.0, 0.0, 0.0]}, "finite"),
        ({"d": [-900.0, 0.0, 0.0, 0.0]}, "absurd"),
        ({"roi": region(600, 0, 320, 240)}, "region"),
        ({"roi": region(0, 0, 0, 240)}, "width"),
        ({"binning_x": 1000}, "binning"),
        ({"binning_x": -2}, "binning"),
    ],
)
def test_a_camera_info_that_is_none_is_refused_in_one_short_line(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as error:
        camera_from_info(info(**changes))
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_an_uncalibrated_projection_is_refused() -> None:
    with pytest.raises(ParameterError, match="not calibrated"):
        camera_from_info(info(p=[0.0] * 12), rectified=True)


def test_other_sizes_scale_the_calibration_and_other_shapes_are_refused() -> None:
    camera = camera_from_info(info())
    assert fitted(camera, 640, 480) is camera
    assert fitted(camera, 320, 240) == camera.resized(320, 240)
    assert fitted(camera, 213, 160) == camera.resized(213, 160)
    with pytest.raises(ParameterError, match="aspect"):
        fitted(camera, 1280, 720)
