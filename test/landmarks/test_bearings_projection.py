"""The camera equations by components against those point by point."""

import numpy as np

from kbf_localization.landmarks.bearings import (
    Pairs,
    bearings_of,
    cross,
    project,
    residual_information,
    rotations,
    rotations_by_components,
    twists,
)
from test.landmarks.plain_formulas import linearize
from test.landmarks.scene import CAMERA, LEVEL, Room

STATE = np.array([0.3, -0.2, 0.4, 0.02, 0.03, -0.05])


def scene():
    room = Room.of_seed(21, count=60)
    found, rows = room.image(STATE)
    points = room.points[rows]
    points[:3, 0] -= 20.0  # behind the camera
    return bearings_of(found.pixels, CAMERA, LEVEL), points


def test_vector_products_are_numpys():
    rng = np.random.default_rng(22)
    first, second = rng.normal(size=(5, 4, 3)), rng.normal(size=(4, 3))
    np.testing.assert_allclose(cross(first, second), np.cross(first, second), atol=1e-14)


def test_residuals_and_derivatives_are_those_of_the_plain_formula():
    bearings, points = scene()
    state = STATE + 0.01
    plain = linearize(state, points, bearings)
    rotation = rotations_by_components(state)
    np.testing.assert_allclose(rotation, rotations(state), atol=1e-15)
    at = project(rotation, state[[0, 1, 3], None], Pairs.of(bearings, points))
    np.testing.assert_allclose(at.residuals.T, plain.residuals, rtol=1e-12, atol=1e-9)
    by_state = np.einsum("kgm,ga->mka", at.by_twist(), twists(state, rotation))
    np.testing.assert_allclose(by_state, plain.by_state, rtol=1e-12, atol=1e-9)
    assert (plain.by_state[:3] == 0.0).all() and (at.by_twist()[..., :3] == 0.0).all()
    some = np.array([7, 5])
    np.testing.assert_array_equal(at.by_twist(some), at.by_twist()[..., some])


def test_samples_with_states_of_their_own_are_those_of_the_plain_formula():
    bearings, points = scene()
    rng = np.random.default_rng(23)
    rows = rng.integers(0, len(points), (7, 2))
    states = STATE + rng.normal(0.0, 0.02, (7, 6))
    plain = linearize(states, points[rows], bearings[rows])
    rotation = rotations_by_components(states.T)
    pairs = Pairs.of(bearings, points).chosen(rows.T)
    at = project(rotation[:, :, None], states.T[[0, 1, 3]][:, None], pairs)
    np.testing.assert_allclose(
        at.residuals.transpose(2, 1, 0), plain.residuals, rtol=1e-12, atol=1e-9
    )
    by_state = np.einsum("kgns,gas->snka", at.by_twist(), twists(states.T, rotation))
    np.testing.assert_allclose(by_state, plain.by_state, rtol=1e-12, atol=1e-9)


def test_information_of_residuals_is_the_inverse_of_their_covariance():
    bearings, points = scene()
    rng = np.random.default_rng(24)
    factors = rng.normal(0.0, 0.02, (len(points), 3, 3))
    covariances = factors @ factors.transpose(0, 2, 1)
    by_point = linearize(STATE, points, bearings).by_point
    expected = np.linalg.inv(
        0.7**2 * np.eye(2) + by_point @ covariances @ by_point.transpose(0, 2, 1)
    )
    rotation = rotations_by_components(STATE)
    at = project(rotation, STATE[[0, 1, 3], None], Pairs.of(bearings, points))
    slope = at.slope
    found = residual_information(slope, covariances.transpose(1, 2, 0), rotation, 0.7**2)
    np.testing.assert_allclose(found.transpose(2, 0, 1), expected, rtol=1e-9, atol=1e-12)


def test_no_direction_is_known_better_than_the_keypoint_however_badly_the_landmark_is():
    """30 km in one direction and 0.1 mm across it: the determinant's digits cancel."""
    rng = np.random.default_rng(4)
    far = rng.normal(size=(200, 3))
    covariances = 1e9 * far[:, :, None] * far[:, None] + 1e-8 * np.eye(3)
    slope = rng.normal(scale=1e5, size=(2, 3, 200))  # a few millimetres from the camera
    variance = 0.7**2
    found = residual_information(slope, covariances.transpose(1, 2, 0), np.eye(3), variance)
    largest = np.linalg.eigvalsh(found.transpose(2, 0, 1)).max(axis=1)
    assert (largest <= 2.0 / variance).all()
