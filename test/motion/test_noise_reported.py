"""The odometry's own covariances against the recursion by which a robot makes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.geometry import compose
from kbf_localization.limits import MAX_SIGMA_M, MAX_SIGMA_RAD
from kbf_localization.motion.noise import (
    MAX_REPORTED,
    MIN_REPORTED,
    added_variances,
    is_covariance,
    sane_variances,
)

CALIBRATION = np.array([1e-4, 4e-5, 2e-4])


def accumulated(start, covariance, motion, noise):
    """P' = J P Jᵀ + G Q Gᵀ by the derivatives of the motion, taken numerically."""
    end, step = compose(start, motion), 1e-6
    jacobian = np.column_stack(
        [
            (compose(start + step * axis, motion) - compose(start - step * axis, motion))
            / (2.0 * step)
            for axis in np.eye(3)
        ]
    )
    turn = start[2] + 0.5 * motion[2]
    axes = np.array(
        [[np.cos(turn), -np.sin(turn), 0.0], [np.sin(turn), np.cos(turn), 0.0], [0.0, 0.0, 1.0]]
    )
    return end, jacobian @ covariance @ jacobian.T + axes @ noise @ axes.T


@pytest.mark.parametrize("seed", range(5))
def test_the_noise_of_the_recursion_comes_back(seed: int) -> None:
    draw = np.random.default_rng(seed)
    pose, covariance = draw.normal(size=3), np.diag([1e-4, 2e-4, 3e-4])
    for _ in range(50):
        motion = draw.normal(size=3) * (0.2, 0.05, 0.1)
        root = draw.normal(size=(3, 3)) * 1e-2
        noise = root @ root.T
        end, after = accumulated(pose, covariance, motion, noise)
        found = added_variances(pose, covariance, end, after)
        assert found is not None
        np.testing.assert_allclose(found, np.diag(noise), rtol=1e-4, atol=1e-9)
        pose, covariance = end, after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([1e-3, 1e-3, 1e-2], [1e-3, 1e-3, 1e-2], id="constant"),
        pytest.param([1e6, 1e6, 1e3], [1e6, 1e6, 1e3], id="constant and large"),
        pytest.param([1e-3, 1e-3, 1e3], [1e-9, 1e-3, 1e-9], id="of driving, then of standing"),
        pytest.param([1e-3, 1e-3, 1e-3], [1e-4, 1e-4, 1e-4], id="corrected by another sensor"),
    ],
)
def test_covariances_that_no_motion_explains(before: list[float], after: list[float]) -> None:
    start, end = np.zeros(3), np.array([0.1, 0.02, 0.05])
    assert added_variances(start, np.diag(before), end, np.diag(after)) is None


@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(np.zeros((3, 3)), id="zero"),
        pytest.param(np.full((3, 3), np.nan), id="not a number"),
        pytest.param(np.diag([1.0, np.inf, 1.0]), id="infinite"),
        pytest.param(np.diag([1.0, -1.0, 1.0]), id="negative"),
        pytest.param(np.diag([1e12, 1e12, 1e12]), id="beyond the earth"),
        pytest.param(np.eye(3) + np.triu(np.ones((3, 3)), 1), id="not symmetric"),
        pytest.param(np.eye(2), id="of another shape"),
    ],
)
def test_what_is_no_covariance(matrix: np.ndarray) -> None:
    assert not is_covariance(matrix)


def test_sane_variances_are_taken_and_the_smallest_are_raised() -> None:
    found = sane_variances(CALIBRATION * (4.0, 0.0, 0.9), CALIBRATION)
    np.testing.assert_allclose(found, CALIBRATION * (4.0, MIN_REPORTED, 0.9), rtol=1e-12)


@pytest.mark.parametrize("factor", [0.0, -1.0, 0.5 * MIN_REPORTED, 1.01 * MAX_REPORTED])
def test_variances_that_are_not_sane(factor: float) -> None:
    assert sane_variances(factor * CALIBRATION, CALIBRATION) is None


def test_a_robot_that_stands_has_no_noise_whatever_its_covariance_does() -> None:
    assert sane_variances(np.full(3, 1e-6), np.zeros(3)) is None


def test_noise_beyond_a_hundred_times_the_calibrated_or_all_too_small_is_passed_over() -> None:
    """Against its definition, for noises over eight orders of magnitude."""
    draw = np.random.default_rng(0)
    low, high = MIN_REPORTED * CALIBRATION, MAX_REPORTED * CALIBRATION
    outcomes = set()
    for _ in range(300):
        pose, motion = draw.normal(size=3), 0.1 * draw.normal(size=3)
        covariance, noise = (
            np.diag(10.0 ** draw.uniform(-5.0, -3.0, 3)),
            10.0 ** draw.uniform(-8, 0, 3),
        )
        end, after = accumulated(pose, covariance, motion, np.diag(noise))
        added = added_variances(pose, covariance, end, after)
        found = sane_variances(added, CALIBRATION)
        sane = not (noise > high).any() and (noise > low).any()
        assert (found is not None) == sane
        if sane:
            np.testing.assert_allclose(found, np.maximum(noise, low), rtol=1e-4)
        outcomes.add(sane)
    assert outcomes == {True, False}


values = st.lists(st.floats(), min_size=6, max_size=6)


@given(values)
def test_a_covariance_is_finite_with_variances_within_the_limits(numbers: list[float]) -> None:
    matrix = np.zeros((3, 3))
    matrix[np.triu_indices(3)] = numbers
    matrix = np.where(np.tri(3, dtype=bool), matrix.T, matrix)
    limits = np.square((MAX_SIGMA_M, MAX_SIGMA_M, MAX_SIGMA_RAD))
    variances = np.diag(matrix)
    finite = bool(np.isfinite(matrix).all())
    within = ((variances >= 0.0) & (variances <= limits)).all() and variances.any()
    assert is_covariance(matrix) == bool(finite and within)
    if finite and np.abs(matrix).max() < 1e100:
        skew = matrix + np.triu(np.full((3, 3), 1.0 + 1e-5 * np.abs(matrix).max()), 1)
        assert not is_covariance(skew)
