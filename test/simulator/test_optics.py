"""Simulated mounts, lenses and clocks, against OpenCV's warps of what a level pinhole sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import compose
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.optics import DEFAULT_CAMERA, Optics, SimulatedCamera
from kbf_localization.simulator.plans import plan_office
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import Scene, scene
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.vision.camera import Mount

SIZE = (320, 240)
# In the corridor of the invented office, looking along it.
POSE = np.array([4.0, 8.6, 0.0])


@pytest.fixture(scope="module")
def office() -> Scene:
    return scene(plan_office(1), lighting_for("cloudy", 1, 0), SIZE[0])


def seen(office: Scene, camera: SimulatedCamera, pose: np.ndarray = POSE) -> np.ndarray:
    optics = Optics(camera, *SIZE)
    (eye,) = camera.eyes(np.array([0]), pose[None])
    image = optics.image(Renderer(office, optics.level).render(eye))
    assert image.shape[:2] == SIZE[::-1]
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), dtype=np.float64)


def matrix() -> np.ndarray:
    lens = DEFAULT_CAMERA.lens(*SIZE)
    return np.array([[lens.fx, 0.0, lens.cx], [0.0, lens.fy, lens.cy], [0.0, 0.0, 1.0]])


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    # Smoothed: the two were sampled at other pixels.
    first, second = (cv2.GaussianBlur(image, (0, 0), 1.0) for image in (first, second))
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def shift(first: np.ndarray, second: np.ndarray) -> float:
    """How many pixels one lies beside the other."""
    (x, y), _ = cv2.phaseCorrelate(first.copy(), second.copy())
    return float(np.hypot(x, y))


def test_the_default_camera_is_the_one_that_readers_assume(tmp_path: Path) -> None:
    assert Optics(DEFAULT_CAMERA, *SIZE).level.focal == pytest.approx(DEFAULT_CAMERA.lens(*SIZE).fx)
    (folder,) = simulate(tmp_path, runs=1, frames=2, size=(64, 48))
    drive = ColdDrive(folder)
    assert drive.camera == DEFAULT_CAMERA.lens(64, 48)
    assert drive.mount == DEFAULT_CAMERA.mount == Mount.ahead(1.1)


def test_opencv_undistorts_a_distorted_image_to_the_plain_one(office: Scene) -> None:
    plain = seen(office, DEFAULT_CAMERA)
    bent = seen(office, SimulatedCamera(distortion=(-0.15, 0.02)))
    flat = cv2.undistort(bent, matrix(), np.array([-0.15, 0.02, 0.0, 0.0]))
    inside = np.s_[20:-20, 20:-20]
    assert correlation(flat[inside], plain[inside]) > 0.999
    assert shift(flat[inside], plain[inside]) < 0.05
    assert correlation(bent[inside], plain[inside]) < 0.98


def test_a_pitched_camera_sees_the_level_image_through_a_homography(office: Scene) -> None:
    plain = seen(office, DEFAULT_CAMERA)
    pitched = seen(office, SimulatedCamera(pitch_rad=0.1))
    # Looking down by 0.1 rad: a point straight ahead appears higher in the image.
    cos, sin = np.cos(0.1), np.sin(0.1)
    turn = np.array([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
    warp = matrix() @ turn @ np.linalg.inv(matrix())
    expected = cv2.warpPerspective(plain, warp, SIZE, flags=cv2.INTER_CUBIC)
    inside = np.s_[20:180, 30:-30]
    assert correlation(expected[inside], pitched[inside]) > 0.999
    assert shift(expected[inside], pitched[inside]) < 0.05


def test_a_lever_arm_and_a_turn_move_the_eye_with_the_robot(office: Scene) -> None:
    camera = SimulatedCamera(offset_m=(0.25, -0.1, 0.0), yaw_rad=0.1)
    pose = np.array([4.0, 8.6, 0.3])
    moved = seen(office, camera, pose)
    np.testing.assert_array_equal(
        moved, seen(office, DEFAULT_CAMERA, compose(pose, [0.25, -0.1, 0.1]))
    )
    assert camera.mount == Mount.from_angles([0.25, -0.1, 1.1], yaw=0.1)


def test_late_stamps_show_where_the_robot_was_before() -> None:
    stamps = 10**9 + 200_000_000 * np.arange(10)
    poses = np.column_stack([0.1 * np.arange(10), np.zeros(10), 0.02 * np.arange(10)])
    late = SimulatedCamera(time_offset_s=0.05).eyes(stamps, poses)
    # 0.05 s are a quarter of a step of 0.1 m and 0.02 rad.
    np.testing.assert_allclose(late[1:], poses[1:] - [0.025, 0.0, 0.005], atol=1e-9)


def test_the_true_camera_is_written_only_when_asked_for(tmp_path: Path) -> None:
    asked = SimulatedCamera((0.2, 0.0, 0.1), 0.1, -0.05, (-0.15,), write_info=True)
    (folder,) = simulate(tmp_path / "asked", runs=1, frames=2, size=(64, 48), camera=asked)
    drive = ColdDrive(folder)
    assert drive.camera == asked.lens(64, 48)
    assert drive.mount is not None
    np.testing.assert_allclose(drive.mount.rotation, asked.mount.rotation, atol=1e-12)
    np.testing.assert_allclose(drive.mount.translation, [0.2, 0.0, 1.2])
    secret = SimulatedCamera((0.2, 0.0, 0.1), 0.1, -0.05, (-0.15,))
    (folder,) = simulate(tmp_path / "secret", runs=1, frames=2, size=(64, 48), camera=secret)
    assert ColdDrive(folder).camera is None and ColdDrive(folder).mount is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset_m": (9.0, 0.0, 0.0)},
        {"offset_m": (0.0, 0.0, 1.6)},
        {"offset_m": (0.0, 0.0)},
        {"offset_m": (float("nan"), 0.0, 0.0)},
        {"yaw_rad": 90.0},
        {"pitch_rad": 5.0},
        {"distortion": (0.1, 0.1, 0.1)},
        {"distortion": (float("inf"),)},
        {"time_offset_s": 1e9},
    ],
    ids=str,
)
def test_a_camera_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="camera"):
        SimulatedCamera(**wrong)


@pytest.mark.parametrize("lens", [(-50.0,), (5e4,)])
def test_a_lens_that_cannot_be_is_refused(tmp_path: Path, lens: tuple[float, ...]) -> None:
    camera = SimulatedCamera(distortion=lens)
    with pytest.raises(ParameterError, match="camera"):
        simulate(tmp_path, runs=1, frames=2, size=(64, 48), camera=camera)
