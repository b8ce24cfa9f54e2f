"""Camera models against OpenCV's, their own inverses and numeric derivatives."""

import json
from typing import Any

import cv2
import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.vision.camera.base import Camera
from kbf_localization.vision.camera.camera_info import camera_from_dict
from kbf_localization.vision.camera.fisheye import FisheyeCamera
from kbf_localization.vision.camera.panorama import PanoramaCamera
from kbf_localization.vision.camera.pinhole import PinholeCamera

PLUMB_BOB = (-0.28, 0.09, 0.001, -0.0007, -0.012)
RATIONAL = (0.8, -0.3, 1e-4, -2e-4, 0.02, 1.1, -0.2, 0.05)
PRISM = (*RATIONAL, 0.002, -0.001, 0.0015, -0.0008)
TILTED = (*PRISM, 0.03, -0.02)
RADIAL = (-0.28, 0.09, 0.0, 0.0, -0.012)
RADIAL_RATIONAL = (*RATIONAL[:2], 0.0, 0.0, *RATIONAL[4:])
LENSES = [(), PLUMB_BOB[:4], PLUMB_BOB, RATIONAL, PRISM, TILTED, RADIAL, RADIAL_RATIONAL]


def pinhole(distortion: tuple[float, ...] = PLUMB_BOB) -> PinholeCamera:
    return PinholeCamera(640, 480, 520.0, 515.0, 311.0, 247.0, distortion)


def fisheye() -> FisheyeCamera:
    return FisheyeCamera(640, 480, 285.0, 286.0, 322.0, 238.0, (-0.01, 0.03, -0.02, 0.004))


CAMERAS: dict[str, Camera] = {
    "undistorted": pinhole(()),
    "plumb_bob": pinhole(),
    "rational": pinhole(RATIONAL),
    "radial": pinhole(RADIAL),
    "radial rational": pinhole(RADIAL_RATIONAL),
    "prism": pinhole(PRISM),
    "tilted": pinhole(TILTED),
    "fisheye": fisheye(),
    "cylinder": PanoramaCamera.level(800, 120),
    "cylinder, part": PanoramaCamera.level(800, 120, horizontal_rad=4.0),
    "mirrored": PanoramaCamera(800, 120, -800 / (2 * np.pi), 130.0, 17.0, 40.0),
    "linear rows": PanoramaCamera(800, 120, 800 / (2 * np.pi), 110.0, 200.0, 70.0, "linear"),
    "equirectangular": PanoramaCamera.level(400, 200, "linear"),
}
each_camera = pytest.mark.parametrize("camera", CAMERAS.values(), ids=CAMERAS.keys())


def pixels_of(camera: Camera, number: int = 400) -> np.ndarray:
    random = np.random.default_rng(5)
    return random.uniform((0, 0), (camera.width - 1, camera.height - 1), (number, 2))


def matrix_of(camera: Any) -> np.ndarray:
    return np.array([[camera.fx, 0.0, camera.cx], [0.0, camera.fy, camera.cy], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("distortion", LENSES, ids=str)
def test_a_pinhole_projects_as_opencv_does(distortion: tuple[float, ...]) -> None:
    camera = pinhole(distortion)
    random = np.random.default_rng(1)
    points = random.uniform((-1.0, -0.8, 1.6), (1.0, 0.8, 9.0), (300, 3))
    coefficients = np.array(distortion) if distortion else None
    expected, _ = cv2.projectPoints(
        points, np.zeros(3), np.zeros(3), matrix_of(camera), coefficients
    )
    np.testing.assert_allclose(camera.project(points, inside=False), expected[:, 0], atol=1e-9)


@pytest.mark.parametrize("distortion", LENSES, ids=str)
def test_a_pinhole_undistorts_as_opencv_does(distortion: tuple[float, ...]) -> None:
    camera = pinhole(distortion)
    pixels = pixels_of(camera)
    coefficients = np.array(distortion) if distortion else None
    matrix = matrix_of(camera)
    # OpenCV's own default of 5 iterations is too coarse to compare with.
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-14)
    if hasattr(cv2, "undistortPointsIter"):  # before OpenCV 5
        undistorted = cv2.undistortPointsIter(
            pixels[:, None], matrix, coefficients, np.eye(3), np.eye(3), criteria
        )
    else:
        undistorted = cv2.undistortPoints(pixels[:, None], matrix, coefficients, criteria=criteria)
    expected = undistorted[:, 0]
    rays = camera.rays(pixels)
    np.testing.assert_allclose(rays[:, :2] / rays[:, 2:], expected, atol=1e-8)


def test_a_fisheye_projects_and_undistorts_as_opencv_does() -> None:
    camera = fisheye()
    pixels = pixels_of(camera)
    random = np.random.default_rng(1)
    points = random.uniform((-3.0, -2.0, 1.0), (3.0, 2.0, 4.0), (300, 3))
    lens = np.array(camera.distortion)
    expected, _ = cv2.fisheye.projectPoints(
        points[:, None], np.zeros(3), np.zeros(3), matrix_of(camera), lens
    )
    np.testing.assert_allclose(camera.project(points, inside=False), expected[:, 0], atol=1e-8)
    flat = cv2.fisheye.undistortPoints(pixels[:, None], matrix_of(camera), lens)[:, 0]
    rays = camera.rays(pixels)
    np.testing.assert_allclose(rays[:, :2] / rays[:, 2:], flat, atol=1e-5)


def test_a_fisheye_sees_behind_its_image_plane() -> None:
    camera = FisheyeCamera(600, 600, 150.0, 150.0, 299.5, 299.5)
    angle = 1.8  # equidistant without distortion: the radius is the angle
    pixel = camera.project(np.array([[np.sin(angle), 0.0, np.cos(angle)]]))
    np.testing.assert_allclose(pixel, [[299.5 + 150.0 * angle, 299.5]])


@each_camera
def test_a_ray_leads_back_to_its_pixel_at_every_distance(camera: Camera) -> None:
    pixels = pixels_of(camera)
    rays = camera.rays(pixels)
    np.testing.assert_allclose(np.linalg.norm(rays, axis=1), 1.0)
    for distance in (1e-3, 1.0, 1e6):
        np.testing.assert_allclose(camera.project(distance * rays), pixels, atol=1e-6)


@each_camera
def test_the_scale_is_the_root_of_the_solid_angle_by_differences(camera: Camera) -> None:
    pixels, step = pixels_of(camera), 1e-4
    column, row = np.array([[step, 0.0], [0.0, step]])
    right = camera.rays(pixels + column) - camera.rays(pixels - column)
    down = camera.rays(pixels + row) - camera.rays(pixels - row)
    area = np.linalg.norm(np.cross(right, down), axis=1) / (2.0 * step) ** 2
    np.testing.assert_allclose(camera.pixels_per_radian(pixels), area**-0.5, rtol=1e-5)


@each_camera
def test_rays_and_scales_together_are_those_of_each_to_the_bit(camera: Camera) -> None:
    pixels = pixels_of(camera)
    rays, scales = camera.rays_and_scales(pixels)
    np.testing.assert_array_equal(rays, camera.rays(pixels))
    np.testing.assert_array_equal(scales, camera.pixels_per_radian(pixels))


@each_camera
def test_a_resized_camera_has_the_rays_of_the_resized_pixels(camera: Camera) -> None:
    small = camera.resized(camera.width // 2, camera.height // 2)
    pixels = pixels_of(camera)
    np.testing.assert_allclose(
        small.rays((pixels + 0.5) / 2 - 0.5), camera.rays(pixels), rtol=0, atol=1e-8
    )


@each_camera
def test_what_is_stored_is_the_same_camera(camera: Camera) -> None:
    assert camera_from_dict(json.loads(json.dumps(camera.to_dict()))) == camera


@each_camera
def test_what_is_not_finite_is_neither_seen_nor_an_error(camera: Camera) -> None:
    bad = np.array([[np.nan, 0.0, 1.0], [np.inf, np.inf, np.inf], [0.0, 0.0, 0.0]])
    assert np.isnan(camera.project(bad)).all()
    assert np.isnan(camera.rays(np.array([[np.nan, 3.0], [np.inf, np.inf]]))).any(axis=1).all()
    assert np.isnan(camera.pixels_per_radian(np.array([[np.nan, np.nan]]))).all()
    assert camera.project(np.zeros((0, 3))).shape == (0, 2)
    assert camera.rays(np.zeros((0, 2))).shape == (0, 3)
    with pytest.raises(ParameterError, match="shape"):
        camera.project(np.zeros(3))


def test_points_behind_or_beside_a_pinhole_are_not_visible() -> None:
    camera = pinhole(())
    points = np.array([[0.0, 0.0, -1.0], [5.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    pixels = camera.project(points)
    assert np.isnan(pixels[:2]).all()
    np.testing.assert_allclose(pixels[2], [311.0, 247.0])
    assert np.isfinite(camera.project(points, inside=False)[1]).all()


def test_beyond_the_fold_of_a_distortion_nothing_is_visible() -> None:
    # r (1 + k1 r²) has its largest value at r² = -1 / (3 k1).
    camera = PinholeCamera.from_focal(640, 480, 600.0, (-0.3, 0.0, 0.0, 0.0))
    fold = (1.0 / 0.9) ** 0.5
    points = np.array([[0.98 * fold, 0.0, 1.0], [1.5 * fold, 0.0, 1.0]])
    pixels = camera.project(points, inside=False)
    assert np.isfinite(pixels[0]).all() and np.isnan(pixels[1]).all()
    beyond = 319.5 + 600.0 * (fold * (1.0 - 0.3 * fold**2)) + 5.0
    assert np.isnan(camera.rays(np.array([[beyond, 239.5]]))).all()


@pytest.mark.parametrize("lens", [RADIAL, RADIAL_RATIONAL, (-0.5, 0.0, 0.0, 0.0)], ids=str)
def test_newtons_method_on_the_radius_finds_the_rays_of_that_on_both_coordinates(
    lens: tuple[float, ...],
) -> None:
    """A tangential coefficient below rounding selects the general method."""
    radial, general = pinhole(lens), pinhole((*lens[:2], 1e-18, *lens[3:]))
    pixels = pixels_of(radial)
    rays, expected = radial.rays(pixels), general.rays(pixels)
    np.testing.assert_array_equal(np.isfinite(rays), np.isfinite(expected))
    np.testing.assert_allclose(rays, expected, atol=1e-9)
    np.testing.assert_allclose(
        radial.pixels_per_radian(pixels), general.pixels_per_radian(pixels), rtol=1e-8
    )
    np.testing.assert_array_equal(radial.covers(pixels), np.isfinite(rays).all(axis=1))


def test_a_panorama_of_a_full_turn_wraps_round() -> None:
    camera = PanoramaCamera.level(800, 120)
    behind = np.array([[1e-6, 0.0, -1.0], [-1e-6, 0.0, -1.0]])
    columns = camera.project(behind)[:, 0]
    np.testing.assert_allclose(np.abs(columns[0] - columns[1]), 800.0, atol=1e-3)
    np.testing.assert_allclose(camera.rays(np.array([[599.5, 59.5]])), [[1.0, 0.0, 0.0]], atol=1e-9)
    mirrored = PanoramaCamera(800, 120, -800 / (2 * np.pi), 130.0, 399.5, 59.5)
    np.testing.assert_allclose(
        mirrored.rays(np.array([[599.5, 59.5]])), [[-1.0, 0.0, 0.0]], atol=1e-9
    )


def test_part_of_a_turn_does_not_see_what_is_behind() -> None:
    camera = PanoramaCamera.level(800, 120, horizontal_rad=4.0)
    points = np.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]])
    seen = np.isfinite(camera.project(points)).all(axis=1)
    assert seen.tolist() == [False, True]


def test_a_field_of_view_is_measured_between_the_edges() -> None:
    camera = PinholeCamera.from_field_of_view(640, 480, np.radians(68.9), np.radians(54.4))
    left, right = camera.rays(np.array([[-0.5, 239.5], [639.5, 239.5]]))
    top, bottom = camera.rays(np.array([[319.5, -0.5], [319.5, 479.5]]))
    assert np.degrees(np.arccos(left @ right)) == pytest.approx(68.9)
    assert np.degrees(np.arccos(top @ bottom)) == pytest.approx(54.4)


GOOD = pinhole().to_dict()
ROUND = PanoramaCamera.level(800, 120).to_dict()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        "pinhole",
        {},
        {**GOOD, "model": "kaleidoscope"},
        {**GOOD, "model": ["pinhole"]},
        {key: value for key, value in GOOD.items() if key != "fy"},
        {**GOOD, "width": 0},
        {**GOOD, "width": 640.0},
        {**GOOD, "width": 10**4300},
        {**GOOD, "fx": 0.0},
        {**GOOD, "fx": -520.0},
        {**GOOD, "fx": float("nan")},
        {**GOOD, "fx": float("inf")},
        {**GOOD, "fx": "520"},
        {**GOOD, "fx": True},
        {**GOOD, "cx": 1e9},
        {**GOOD, "distortion": [0.1]},
        {**GOOD, "distortion": [0.1] * 1000},
        {**GOOD, "distortion": [0.1, 0.1, float("nan"), 0.0]},
        {**GOOD, "distortion": [-1000.0, 0.0, 0.0, 0.0]},
        {**GOOD, "distortion": "0.1"},
        {**GOOD, "model": "fisheye", "distortion": [0.0] * 5},
        {**ROUND, "columns_per_radian": 1.0},
        {**ROUND, "columns_per_radian": float("nan")},
        {**ROUND, "vertical": "upside down"},
        {**ROUND, "vertical": "linear", "rows_per_radian": 1.0},
        {**ROUND, "horizon_row": [1.0]},
    ],
    ids=range(28),
)
def test_a_hostile_camera_is_refused_by_name(stored: Any) -> None:
    with pytest.raises(ParameterError, match="camera"):
        camera_from_dict(stored)
