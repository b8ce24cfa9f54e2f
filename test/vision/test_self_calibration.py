"""A camera is learned from matched images with known poses: against the truth of each scene."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import relative, wrap_angle
from kbf_localization.vision.camera import Camera, Mount, PanoramaCamera, PinholeCamera
from kbf_localization.vision.epipolar import MatchedPair
from kbf_localization.vision.keypoints import detect_keypoints, mutual_matches, squared_distances
from kbf_localization.vision.self_calibration import (
    FARTHEST_M,
    FEW_PAIRS,
    MAX_TURN_RAD,
    NEAREST_M,
    SelfCalibration,
    calibrate,
    choose_pairs,
)

SIZE = (320, 240)
PLAIN = PinholeCamera.from_focal(*SIZE, 233.0)


def winding_path(frames: int = 300) -> Array:
    """Poses every 5 cm along a path that bends to both sides."""
    heading = 1.2 * np.sin(np.arange(frames) / 12.0)
    steps = 0.05 * np.column_stack([np.cos(heading), np.sin(heading)])
    return np.column_stack([np.cumsum(steps, axis=0), heading])


def straight_path(frames: int = 300) -> Array:
    return np.column_stack([0.05 * np.arange(frames), np.zeros(frames), np.zeros(frames)])


def scene(
    camera: Camera,
    mount: Mount,
    poses: Array,
    *,
    seed: int = 0,
    outliers: float = 0.15,
    pairs: int = 40,
) -> list[MatchedPair]:
    """Matches of random points around the path, with errors of 0.4 px and some outliers."""
    rng = np.random.default_rng(seed)
    low, high = poses[:, :2].min(axis=0) - 5.0, poses[:, :2].max(axis=0) + 5.0
    points = rng.uniform([*low, -1.0], [*high, 1.5], (6000, 3))
    result = []
    for rows in choose_pairs(poses, pairs, seed):
        pixels = []
        for pose in poses[rows]:
            x, y, heading, height, pitch, roll = np.append(pose, np.zeros(6 - len(pose)))
            base = Rotation.from_euler("ZYX", [heading, pitch, roll]).as_matrix()
            in_base = (points - [x, y, height]) @ base
            pixels.append(camera.project(mount.to_optical(in_base)))
        seen = np.flatnonzero(np.isfinite(np.hstack(pixels)).all(axis=1))[:24]
        first, second = (
            projected[seen] + rng.normal(0.0, 0.4, (len(seen), 2)) for projected in pixels
        )
        wrong = rng.random(len(seen)) < outliers
        second[wrong] = rng.uniform((0, 0), (camera.width, camera.height), (wrong.sum(), 2))
        result.append(MatchedPair(poses[rows[0]], poses[rows[1]], first, second))
    return result


def assert_found(found: SelfCalibration, camera: PinholeCamera, mount: Mount) -> None:
    """All within four standard deviations, which are small, and no warning."""
    assert found.warnings == ()
    assert isinstance(found.camera, PinholeCamera)
    k1 = camera.distortion[0] if camera.distortion else 0.0
    assert abs(np.log(found.camera.fx / camera.fx)) < 4.0 * found.focal_sigma < 0.02
    assert abs(found.camera.distortion[0] - k1) < 4.0 * found.distortion_sigma < 0.1
    yaw, pitch, _ = np.subtract(found.mount.angles, mount.angles)
    assert abs(float(wrap_angle(yaw))) <= 4.0 * found.yaw_sigma < 0.03
    assert abs(pitch) <= 4.0 * found.pitch_sigma < 0.03


@pytest.mark.parametrize(
    ("camera", "mount"),
    [
        (PLAIN, Mount.ahead()),
        (PinholeCamera.from_focal(*SIZE, 150.0), Mount.ahead()),
        (PinholeCamera.from_focal(*SIZE, 600.0), Mount.ahead()),
        (PinholeCamera.from_focal(*SIZE, 233.0, (-0.15, 0.0, 0.0, 0.0)), Mount.ahead()),
        (PLAIN, Mount.from_angles(np.zeros(3), yaw=0.1, pitch=-0.15)),
        (PLAIN, Mount.from_angles(np.zeros(3), yaw=3.0, pitch=0.1)),
    ],
    ids=["plain", "wide", "narrow", "distorted", "turned", "rear"],
)
def test_focal_length_distortion_and_turn_are_found(camera: PinholeCamera, mount: Mount) -> None:
    found = calibrate(scene(camera, mount, winding_path()), *SIZE)
    assert_found(found, camera, mount)
    assert found.inliers == pytest.approx(0.85, abs=0.05)
    assert found.error_px == pytest.approx(0.4, abs=0.1)


def test_of_a_hand_held_camera_whose_tilt_is_known_the_lens_is_learned() -> None:
    rng = np.random.default_rng(3)
    states = np.hstack([winding_path(), rng.normal(0.0, 0.15, (300, 3))])
    camera = PinholeCamera.from_focal(*SIZE, 280.0, (-0.1, 0.0, 0.0, 0.0))
    found = calibrate(scene(camera, Mount.ahead(), states), *SIZE, mount=Mount.ahead())
    assert_found(found, camera, Mount.ahead())
    assert found.mount == Mount.ahead()


def test_a_lever_arm_ahead_is_not_taken_for_focal_length() -> None:
    mount = Mount.from_angles([0.25, 0.0, 0.0], yaw=0.1)
    pairs = scene(PLAIN, mount, winding_path())
    found = calibrate(pairs, *SIZE)
    assert_found(found, PLAIN, mount)
    assert abs(found.mount.translation[0] - 0.25) < 4.0 * found.forward_sigma_m < 0.1
    given = calibrate(pairs, *SIZE, translation=[0.25, 0.0, 0.0])
    assert_found(given, PLAIN, mount)
    assert given.forward_sigma_m == 0.0


def test_deviations_cover_the_errors_of_the_poses() -> None:
    """Over independent scenes whose poses are off by a centimetre, NEES is that of its freedom."""
    squares = []
    for seed in range(4):
        rng = np.random.default_rng(100 + seed)
        pairs = [
            MatchedPair(
                pair.first_pose + rng.normal(0.0, (0.01, 0.01, 0.004)),
                pair.second_pose + rng.normal(0.0, (0.01, 0.01, 0.004)),
                pair.first_pixels,
                pair.second_pixels,
            )
            for pair in scene(
                PLAIN, Mount.ahead(), winding_path(), seed=seed, outliers=0.0, pairs=25
            )
        ]
        found = calibrate(pairs, *SIZE)
        assert isinstance(found.camera, PinholeCamera)
        yaw, pitch, _ = found.mount.angles
        squares += [
            (np.log(found.camera.fx / PLAIN.fx) / found.focal_sigma) ** 2,
            (yaw / found.yaw_sigma) ** 2,
            (pitch / found.pitch_sigma) ** 2,
        ]
    # Three of the five are compared: 12 squares, a mean of 1 with a deviation of 0.4 if normal.
    assert 0.2 < np.mean(squares) < 2.5


def by_wheels(seed: int, mount: Mount, bias: float, slip: float) -> list[MatchedPair]:
    """Matches between images a step of 0.25 m apart, with motions as biased wheels report them.

    Each motion's turn and direction err by `slip` rad (σ), and turns by `bias` rad/s, 2 s a step.
    """
    rng = np.random.default_rng(seed)
    result = []
    for pair in scene(PLAIN, mount, winding_path(), seed=seed, outliers=0.1):
        moved = relative(pair.first_pose, pair.second_pose)
        seconds = 8.0 * float(np.hypot(*moved[:2]))
        turn, direction = rng.normal(0.0, slip, 2)
        angle = 0.5 * (bias * seconds + turn) + direction
        cos, sin = np.cos(angle), np.sin(angle)
        x, y, heading = moved
        reported = np.array([cos * x - sin * y, sin * x + cos * y, heading + bias * seconds + turn])
        result.append(
            MatchedPair(np.zeros(3), reported, pair.first_pixels, pair.second_pixels, seconds)
        )
    return result


@pytest.mark.parametrize("lever", [0.0, 0.5])
def test_wheels_that_drift_and_slip_are_not_taken_for_the_camera(lever: float) -> None:
    mount = Mount.from_angles([lever, 0.0, 0.0])
    pairs = by_wheels(1, mount, bias=0.01, slip=0.01)
    found = calibrate(pairs, *SIZE)
    assert isinstance(found.camera, PinholeCamera) and found.warnings == ()
    assert abs(np.log(found.camera.fx / PLAIN.fx)) < 4.0 * found.focal_sigma < 0.05
    assert abs(found.mount.angles[0]) < 4.0 * found.yaw_sigma < 0.05
    assert abs(found.mount.translation[0] - lever) < 4.0 * found.forward_sigma_m < 0.2


@pytest.fixture(scope="module")
def without_turns() -> SelfCalibration:
    return calibrate(scene(PLAIN, Mount.ahead(), straight_path()), *SIZE)


def test_what_the_pairs_leave_open_is_called_not_determined(without_turns: SelfCalibration) -> None:
    open_lens = replace(without_turns, focal_sigma=120.0, distortion_sigma=5.0, yaw_sigma=9.0)
    text = replace(open_lens, forward_sigma_m=50.0).described
    assert "%" not in text.split(";")[0] and "k1" not in text
    assert text.count("not determined") == 3


def test_a_camera_upside_down_is_found_out() -> None:
    mount = Mount.from_angles(np.zeros(3), roll=np.pi)
    found = calibrate(scene(PLAIN, mount, winding_path()), *SIZE)
    assert found.mount.is_upside_down
    assert any("upside down" in line for line in found.warnings)
    assert isinstance(found.camera, PinholeCamera)
    assert found.camera.fx == pytest.approx(233.0, rel=0.01)


@pytest.mark.parametrize(
    "camera",
    [
        PanoramaCamera.level(720, 200),
        PanoramaCamera.level(720, 200, "linear"),
        PinholeCamera.from_focal(*SIZE, 280.0, (-0.1, 0.0, 0.0, 0.0)),
    ],
    ids=["cylinder", "equirectangular", "pinhole"],
)
def test_of_a_known_camera_the_turn_and_the_place_are_learned(camera: Camera) -> None:
    mount = Mount.from_angles([0.2, 0.0, 0.0], yaw=0.7, pitch=0.03)
    found = calibrate(
        scene(camera, mount, winding_path()), camera.width, camera.height, camera=camera
    )
    assert found.camera == camera and found.warnings == () and found.shows_turn
    np.testing.assert_allclose(found.mount.angles[:2], [0.7, 0.03], atol=0.01)
    assert found.mount.translation[0] == pytest.approx(0.2, abs=4.0 * found.forward_sigma_m)
    assert found.forward_sigma_m < 0.05


def test_a_wide_image_that_is_not_declared_is_called_a_likely_panorama() -> None:
    camera = PanoramaCamera.level(720, 200)
    found = calibrate(scene(camera, Mount.ahead(), winding_path()), 720, 200)
    assert any("panorama" in line for line in found.warnings)


def test_without_turns_the_focal_length_is_called_not_determined(
    without_turns: SelfCalibration,
) -> None:
    assert any("focal length is not determined" in line for line in without_turns.warnings)


def test_few_pairs_are_called_poor_where_the_lever_arm_is_unknown() -> None:
    pairs = scene(PLAIN, Mount.ahead(), winding_path(), pairs=FEW_PAIRS)
    assert len(pairs) == FEW_PAIRS
    assert not calibrate(pairs, *SIZE).warnings
    assert any("lever arm" in line for line in calibrate(pairs[:-1], *SIZE).warnings)
    assert not calibrate(pairs[:-1], *SIZE, translation=np.zeros(3)).warnings


def test_matches_that_mean_nothing_are_called_so() -> None:
    pairs = scene(PLAIN, Mount.ahead(), winding_path(), outliers=1.0)
    found = calibrate(pairs, *SIZE)
    assert found.warnings
    assert any("of the matches fit" in line for line in found.warnings)
    assert np.isfinite([found.focal_sigma, found.yaw_sigma, found.error_px]).all()


def empty_pair(first: Any, second: Any) -> MatchedPair:
    return MatchedPair(np.zeros(3), np.array([0.3, 0.0, 0.0]), first, second)


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [empty_pair(np.zeros((0, 2)), np.zeros((0, 2)))] * 20,
        [empty_pair(np.full((50, 2), np.nan), np.zeros((50, 2)))] * 20,
        [empty_pair(np.zeros((5, 2)), np.zeros((6, 2)))],
        [empty_pair(np.zeros(5), np.zeros(5))],
        [MatchedPair(np.zeros(3), np.zeros(3), np.ones((50, 2)), np.ones((50, 2)))] * 20,
        [MatchedPair(np.full(3, np.nan), np.ones(3), np.ones((50, 2)), np.ones((50, 2)))] * 20,
        [MatchedPair(np.zeros(2), np.ones(2), np.ones((50, 2)), np.ones((50, 2)))] * 20,
    ],
    ids=["none", "empty", "nan", "lengths", "shape", "standing", "poses", "short poses"],
)
def test_too_little_is_refused_in_a_line(pairs: list[MatchedPair]) -> None:
    with pytest.raises(ParameterError):
        calibrate(pairs, *SIZE)


def test_matches_on_a_line_or_in_a_point_do_not_harm() -> None:
    column = np.column_stack([np.full(40, 160.0), np.linspace(0.0, 239.0, 40)])
    for pixels in (column, np.ones((40, 2)), np.full((40, 2), 1e9)):
        found = calibrate([empty_pair(pixels, pixels)] * 10, *SIZE)
        assert found.warnings
        assert np.isfinite(found.camera.rays(np.array([[10.0, 10.0]]))).all()


def test_pairs_are_a_baseline_apart_and_spread_over_turns() -> None:
    poses = winding_path()
    poses[10] = np.nan
    rows = choose_pairs(poses, 60, 1)
    away = poses[rows[:, 1]] - poses[rows[:, 0]]
    distance, turn = np.hypot(away[:, 0], away[:, 1]), np.abs(wrap_angle(away[:, 2]))
    assert len(rows) == 60 and len(np.unique(rows, axis=0)) == 60
    assert distance.min() >= NEAREST_M and distance.max() <= FARTHEST_M
    assert turn.max() < MAX_TURN_RAD
    assert (turn < 0.05).sum() >= 10 and (turn > 0.3).sum() >= 10
    assert len(choose_pairs(np.zeros((0, 3)))) == len(choose_pairs(np.zeros((9, 3)))) == 0


# Rendered offices.


def matched(images: dict[int, Any], poses: Array, rows: NDArray[np.intp]) -> list[MatchedPair]:
    seen = {row: detect_keypoints(image) for row, image in images.items()}
    result = []
    for first, second in rows.tolist():
        distances = squared_distances(seen[first].descriptors, seen[second].descriptors)
        left, right, _ = mutual_matches(distances)
        result.append(
            MatchedPair(
                poses[first], poses[second], seen[first].pixels[left], seen[second].pixels[right]
            )
        )
    return result


def assert_focal_length(found: SelfCalibration, truth: float) -> None:
    """Check that the error is one that the reported deviation allows, and that this is small."""
    assert isinstance(found.camera, PinholeCamera)
    assert abs(np.log(found.camera.fx / truth)) < 3.0 * found.focal_sigma
    assert found.focal_sigma < 0.005


def test_the_focal_length_of_a_rendered_office_is_found_where_the_lever_arm_is_known(
    office_drives: tuple[Path, Path],
) -> None:
    from kbf_localization.datasets.cold import ColdDrive

    drive = ColdDrive(office_drives[0])
    rows = choose_pairs(drive.poses, 30)
    images = dict(drive.images(np.unique(rows).tolist()))
    found = calibrate(matched(images, drive.poses, rows), *SIZE, translation=np.zeros(3))
    assert isinstance(drive.camera, PinholeCamera)
    assert_focal_length(found, drive.camera.fx)
    assert found.warnings == ()


def test_distortion_and_a_turned_mount_of_another_office_are_found(tmp_path: Path) -> None:
    from kbf_localization.datasets.cold import ColdDrive
    from kbf_localization.simulator.optics import SimulatedCamera
    from kbf_localization.simulator.simulated_drives import simulate

    camera = SimulatedCamera(yaw_rad=0.1, distortion=(-0.15,))
    (folder,) = simulate(tmp_path, runs=1, frames=90, seed=2, size=SIZE, camera=camera)
    drive = ColdDrive(folder)
    assert drive.camera is None
    rows = choose_pairs(drive.poses, 30)
    images = dict(drive.images(np.unique(rows).tolist()))
    found = calibrate(matched(images, drive.poses, rows), *SIZE, translation=np.zeros(3))
    assert isinstance(found.camera, PinholeCamera)
    assert_focal_length(found, camera.lens(*SIZE).fx)
    assert found.camera.distortion[0] == pytest.approx(-0.15, abs=0.02)
    assert found.mount.angles[0] == pytest.approx(0.1, abs=0.005)
