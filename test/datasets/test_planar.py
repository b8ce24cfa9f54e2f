"""Six degrees of freedom become three: checked against paths whose plane is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kbf_localization.datasets.planar import Axes, guess_axes, to_plane
from kbf_localization.datasets.trajectory import Trajectory, parse_stamp
from kbf_localization.geometry import relative
from test.datasets.public_folders import OPTICAL, matrices, planar_path


def trajectory(transforms: np.ndarray) -> Trajectory:
    stamps = np.arange(len(transforms), dtype=np.int64) * 10**8
    return Trajectory(stamps, transforms[:, :3, 3], transforms[:, :3, :3])


def pitched(transforms: np.ndarray, pitch: float) -> np.ndarray:
    """The same places, with the camera turned about its own x axis."""
    result = transforms.copy()
    result[:, :3, :3] = transforms[:, :3, :3] @ Rotation.from_euler("x", pitch).as_matrix()
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pitch", [0.0, -0.3])
def test_the_plane_is_found_in_any_world(seed: int, pitch: float) -> None:
    path = planar_path(200, step=2 * np.pi / 200)  # a full circle, so that up is up on average
    world = Rotation.random(random_state=seed).as_matrix()
    motion = to_plane(trajectory(pitched(matrices(path, world), pitch)), Axes.CAMERA)
    np.testing.assert_allclose(
        relative(motion.poses[0], motion.poses), relative(path[0], path), atol=1e-6
    )
    assert motion.tilt_rad < 1e-6 and motion.height_m < 1e-6 and motion.is_planar


def test_a_straight_path_is_level_by_gravity() -> None:
    """The path alone leaves the plane's roll open."""
    path = np.column_stack([np.linspace(0, 10, 50), np.zeros(50), np.zeros(50)])
    world = Rotation.from_euler("xyz", [0.4, 0.2, -0.3]).as_matrix()
    motion = to_plane(trajectory(matrices(path, world)), Axes.CAMERA)
    np.testing.assert_allclose(relative(motion.poses[0], motion.poses), path, atol=1e-6)


def test_tilt_and_height_are_measured() -> None:
    rng = np.random.default_rng(0)
    transforms = matrices(planar_path(2000, step=0.01))
    rolls = rng.normal(0, 0.2, 2000)
    transforms[:, :3, :3] = (
        transforms[:, :3, :3] @ Rotation.from_rotvec(rolls[:, None] * [0.0, 0.0, 1.0]).as_matrix()
    )
    transforms[:, 2, 3] += rng.normal(0, 0.3, 2000)
    motion = to_plane(trajectory(transforms), Axes.CAMERA)
    assert motion.tilt_rad == pytest.approx(0.2, rel=0.05)
    assert motion.height_m == pytest.approx(0.3, rel=0.05)
    assert not motion.is_planar


def test_a_cameras_own_height_pitch_and_roll_complete_its_planar_pose() -> None:
    """The camera's rotation is Rz(heading) Ry(pitch) Rx(roll) of a level one's, exactly."""
    rng = np.random.default_rng(1)
    transforms = matrices(planar_path(500, step=2 * np.pi / 500))
    turns = Rotation.from_euler("yxz", rng.normal(0, 0.2, (500, 3))).as_matrix()
    transforms[:, :3, :3] = transforms[:, :3, :3] @ turns
    transforms[:, 2, 3] += rng.normal(0, 0.2, 500)
    motion = to_plane(trajectory(transforms), Axes.CAMERA)
    assert motion.mount is None and motion.attitudes is not None
    height, pitch, roll = motion.attitudes.T
    np.testing.assert_allclose(height, transforms[:, 2, 3], atol=1e-9)
    angles = np.column_stack([motion.poses[:, 2], pitch, roll])
    np.testing.assert_allclose(
        Rotation.from_euler("ZYX", angles).as_matrix() @ OPTICAL, transforms[:, :3, :3], atol=1e-9
    )


def test_a_view_straight_down_has_no_pose() -> None:
    transforms = matrices(planar_path(100))
    transforms[40] = pitched(transforms[40:41], -np.pi / 2)[0]
    poses = to_plane(trajectory(transforms), Axes.CAMERA).poses
    assert np.flatnonzero(np.isnan(poses).any(axis=1)).tolist() == [40]


@pytest.mark.parametrize("step", [0.025, 0.0])
def test_whose_axes_they_are_is_guessed(step: float) -> None:
    transforms = matrices(planar_path(100, step=step) + np.linspace(0, 1, 100)[:, None] * [1, 0, 0])
    assert guess_axes(trajectory(transforms)) is Axes.CAMERA
    transforms[:, :3, :3] = transforms[:, :3, :3] @ OPTICAL.T
    assert guess_axes(trajectory(transforms)) is Axes.BASE


def test_a_camera_that_drives_straight_in_its_own_first_frame_is_no_robot() -> None:
    # Visual SLAM's world is the first camera's frame: z ahead, which would else be taken for up.
    transforms = np.tile(np.eye(4), (50, 1, 1))
    transforms[:, 2, 3] = 0.1 * np.arange(50)
    assert guess_axes(trajectory(transforms)) is Axes.CAMERA
    transforms[:, :3, 3] = transforms[:, [2, 0, 1], 3]
    assert guess_axes(trajectory(transforms)) is Axes.BASE


@pytest.mark.parametrize(
    ("text", "stamp_ns"),
    [
        ("1305031526.671473", 1305031526_671473000),
        ("1305031526", 1305031526_000000000),
        ("1403636579763555584", 1403636579763555584),
        ("0.1", 100_000_000),
        ("1.2e1", 12_000_000_000),
    ],
)
def test_stamps(text: str, stamp_ns: int) -> None:
    assert parse_stamp(text) == stamp_ns


@pytest.mark.parametrize("text", ["", "x", "-1.5", "nan", "9" * 30, "inf"])
def test_no_stamps(text: str) -> None:
    with pytest.raises(ValueError, match="no time|could not convert|negative"):
        parse_stamp(text)


def test_drives_of_one_world_agree_about_where_they_are() -> None:
    """Cameras that are pitched alike but drive elsewhere would each find another plane."""
    first, second = planar_path(60), planar_path(60)
    second[:, 2] += np.pi / 2  # sideways along the same path
    here, there = (
        to_plane(trajectory(pitched(matrices(path), -0.12)), Axes.CAMERA).poses
        for path in (first, second)
    )
    np.testing.assert_allclose(here[:, :2], first[:, :2], atol=1e-9)
    np.testing.assert_allclose(here[:, :2], there[:, :2], atol=1e-9)
