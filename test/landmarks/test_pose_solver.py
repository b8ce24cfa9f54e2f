import cv2
import numpy as np
import pytest

from kbf_localization.landmarks.bearings import (
    PITCH,
    ROLL,
    bearings_of,
    in_base,
    rotations,
    spatial,
)
from kbf_localization.landmarks.calibration import MIN_INLIERS
from kbf_localization.landmarks.pose_solver import LandmarkSolver
from test.landmarks.scene import CAMERA, LEVEL, Room

MAP = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, 0.1], [-0.2, -0.1, -0.1], [0.1, 0.2, 0.05]])
ROWS = np.arange(4)
TRUTH = np.array([0.13, -0.07, 0.06])
PRIOR = TRUTH + np.array([0.2, -0.15, 0.08])
WIDE = np.diag([0.04, 0.04, 0.01])


def measure(solver, found, rows=ROWS, prior=PRIOR):
    bearings = bearings_of(found.pixels, CAMERA, LEVEL)
    return solver.measure(bearings, found.descriptors, rows, prior, WIDE)


def test_pose_is_exact_without_noise_up_to_the_tables_millimetres():
    room = Room.of_seed(3)
    found, rows = room.image(spatial(TRUTH))
    fix = measure(LandmarkSolver(room.table(MAP), MAP), found)
    np.testing.assert_allclose(fix.pose, TRUTH, atol=3e-4)
    assert fix.inliers == fix.matched >= 150
    # The inliers are the right points.
    near = np.linalg.norm(fix.points - room.points[rows[fix.keypoints]], axis=1)
    assert near.max() < 1e-3


def test_pose_agrees_with_opencv_where_the_tilt_is_free():
    room = Room.of_seed(4)
    state = np.array([*TRUTH, 0.01, 0.02, -0.015])
    found, _ = room.image(state, 0.3, np.random.default_rng(5))
    solver = LandmarkSolver(room.table(MAP), MAP, sigma_px=0.3, attitude_sigma=(1.0, 1.0, 1.0))
    fix = measure(solver, found)
    intrinsic = np.array([[230.0, 0, 160], [0, 230, 120], [0, 0, 1.0]])
    start = (rotations(state) @ LEVEL.rotation).T
    at = (in_base(state, np.zeros((1, 3)))[0] - LEVEL.translation) @ LEVEL.rotation
    _, turn, shift = cv2.solvePnP(
        fix.points,
        np.ascontiguousarray(found.pixels[fix.keypoints]),
        intrinsic,
        None,
        rvec=cv2.Rodrigues(start)[0],
        tvec=at.reshape(3, 1).copy(),
        useExtrinsicGuess=True,
    )
    rotation = (LEVEL.rotation @ cv2.Rodrigues(turn)[0]).T
    eye = -cv2.Rodrigues(turn)[0].T @ shift[:, 0]
    base = eye - rotation @ LEVEL.translation
    heading = np.arctan2(rotation[1, 0], rotation[0, 0])
    sigma = np.sqrt(np.diag(fix.covariance))
    assert (np.abs(fix.pose - [base[0], base[1], heading]) < sigma).all()


def test_covariance_is_that_of_the_errors():
    rng = np.random.default_rng(6)
    nees = []
    for seed in range(60):
        room = Room.of_seed(100 + seed, count=120)
        table = room.table(MAP[:1], 0.01, rng)
        solver = LandmarkSolver(table, MAP[:1], sigma_px=0.5, attitude_sigma=(0.01, 0.005, 0.005))
        state = np.array([*TRUTH, *(rng.standard_normal(3) * [0.01, 0.005, 0.005])])
        found, _ = room.image(state, 0.5, rng)
        fix = measure(solver, found, ROWS[:1])
        error = fix.pose - TRUTH
        nees.append(error @ np.linalg.solve(fix.covariance, error) / 3)
    # The mean of 60 chi² with 3 degrees has a deviation of 0.105.
    assert 0.7 < np.mean(nees) < 1.4


def test_wrong_matches_do_not_move_the_pose():
    room = Room.of_seed(7)
    rng = np.random.default_rng(8)
    found, rows = room.image(spatial(TRUTH), 0.3, rng)
    pixels = found.pixels.copy()
    wrong = rng.choice(len(rows), int(0.6 * len(rows)), replace=False)
    pixels[wrong] = rng.uniform(0, [320, 240], (len(wrong), 2))
    fix = measure(LandmarkSolver(room.table(MAP), MAP, 0.3), type(found)(pixels, found.descriptors))
    assert np.linalg.norm(fix.pose[:2] - TRUTH[:2]) < 0.01
    assert 0.3 < fix.inliers / fix.matched < 0.5


def test_covariance_grows_with_the_part_of_the_matches_that_contradict():
    room = Room.of_seed(7)
    found, _ = room.image(spatial(TRUTH))
    solver = LandmarkSolver(room.table(MAP), MAP)
    moved = found.pixels.copy()
    moved[::2] += 40.0
    fix = measure(solver, type(found)(moved, found.descriptors))
    alone = measure(solver, type(found)(found.pixels[1::2], found.descriptors[1::2]))
    assert fix.inliers == alone.inliers == alone.matched
    expected = alone.covariance * (fix.matched / fix.inliers)
    # Of the standard deviations: a correlation near zero has no relative error.
    sigmas = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        fix.covariance / np.outer(sigmas, sigmas), expected / np.outer(sigmas, sigmas), atol=0.02
    )


@pytest.mark.parametrize(
    ("axis", "tilt"), [(PITCH, 0.05), (PITCH, -0.15), (ROLL, 0.05), (ROLL, -0.1)]
)
def test_a_tilted_camera_is_measured_with_its_tilt(axis, tilt):
    """By 9° of pitch, and 6° of roll, far beyond what the map's images say of it."""
    room = Room.of_seed(19)
    state = spatial(TRUTH).copy()
    state[axis] = tilt
    found, _ = room.image(state, 0.5, np.random.default_rng(20))
    fix = measure(LandmarkSolver(room.table(MAP), MAP), found)
    assert np.linalg.norm(fix.pose[:2] - TRUTH[:2]) < 0.01
    assert abs(fix.state[axis] - tilt) < 0.002


@pytest.mark.parametrize("axis", [PITCH, ROLL])
@pytest.mark.parametrize("seed", range(4))
def test_a_camera_that_has_fallen_over_measures_nothing_that_is_used(axis, seed):
    """What few landmarks agree with by chance is below the least number of inliers."""
    room = Room.of_seed(40 + seed)
    state = spatial(TRUTH).copy()
    state[axis] = 0.5
    found, _ = room.image(state, 0.5, np.random.default_rng(21))
    fix = measure(LandmarkSolver(room.table(MAP), MAP), found)
    assert fix is None or fix.inliers < MIN_INLIERS or np.abs(fix.pose - TRUTH).max() < 0.02


def test_the_fix_does_not_depend_on_the_prior():
    room = Room.of_seed(9)
    found, _ = room.image(spatial(TRUTH), 0.3, np.random.default_rng(10))
    solver = LandmarkSolver(room.table(MAP), MAP)
    fix = measure(solver, found)
    other = measure(solver, found, prior=TRUTH - np.array([0.3, 0.2, 0.1]))
    np.testing.assert_allclose(fix.pose, other.pose, atol=1e-4)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_features_give_no_fix(count):
    room = Room.of_seed(11)
    found, _ = room.image(spatial(TRUTH))
    few = type(found)(found.pixels[:count], found.descriptors[:count])
    assert measure(LandmarkSolver(room.table(MAP), MAP), few) is None


def degenerate(kind):
    room = Room.of_seed(12)
    points = room.points.copy()
    if kind == "line":
        points[:, 1:] = [0.0, 1.1]
    elif kind == "upright line":
        points[:, :2] = [4.0, 0.1]
    elif kind == "plane":
        points[:, 0] = 4.0
    elif kind == "point":
        points[:] = [4.0, 0.0, 1.2]
    elif kind == "far":
        points *= 30.0 / np.linalg.norm(points, axis=1)[:, None]
    return Room(points, room.descriptors)


def fix_in(kind):
    room = degenerate(kind)
    found, _ = room.image(spatial(TRUTH), 0.3, np.random.default_rng(13))
    return measure(LandmarkSolver(room.table(MAP), MAP, 0.3), found)


@pytest.mark.parametrize("kind", ["line", "upright line", "point"])
def test_landmarks_on_a_line_or_at_a_point_give_no_fix(kind):
    assert fix_in(kind) is None


def test_keypoints_in_one_column_of_the_image_give_no_fix():
    """Of a wall seen from its edge: a wrong place, where the rows are as they should be."""
    room = Room.of_seed(12)
    found, _ = room.image(spatial(TRUTH))
    column = type(found)(found.pixels * [0.0, 1.0] + [160.0, 0.0], found.descriptors)
    assert measure(LandmarkSolver(room.table(MAP), MAP), column) is None


@pytest.mark.parametrize("kind", ["plane", "far"])
def test_landmarks_in_a_plane_or_far_away_give_a_consistent_covariance(kind):
    """Within the 99.9 % quantile of chi² with three degrees of freedom, 16.3."""
    fix = fix_in(kind)
    error = fix.pose - TRUTH
    assert error @ np.linalg.solve(fix.covariance, error) < 16.3


@pytest.mark.parametrize("away", [(12.0, 0.0, 0.0), (0.0, 0.0, np.pi)])
def test_a_prior_with_the_landmarks_behind_the_camera_does_not_move_the_fix(away):
    room = Room.of_seed(14)
    found, _ = room.image(spatial(TRUTH))
    prior = TRUTH + np.array(away)
    assert (in_base(spatial(prior), room.points)[:, 0] < 0.0).all()
    fix = measure(LandmarkSolver(room.table(MAP), MAP), found, prior=prior)
    np.testing.assert_allclose(fix.pose, TRUTH, atol=3e-4)


def test_nan_gives_no_fix():
    room = Room.of_seed(15)
    found, _ = room.image(spatial(TRUTH))
    solver = LandmarkSolver(room.table(MAP), MAP)
    assert measure(solver, found, prior=np.array([np.nan, 0.0, 0.0])) is None
    lost = type(found)(np.full_like(found.pixels, np.nan), found.descriptors)
    assert measure(solver, lost) is None


def test_no_map_images_or_images_without_landmarks_give_no_fix():
    room = Room.of_seed(16)
    found, _ = room.image(spatial(TRUTH))
    solver = LandmarkSolver(room.table(MAP), MAP)
    assert measure(solver, found, rows=ROWS[:0]) is None
    away = np.array([[50.0, 50.0, 0.0]])
    assert measure(LandmarkSolver(room.table(away), away), found, rows=ROWS[:1]) is None
