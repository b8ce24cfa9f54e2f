"""Fixes by landmarks: the Kalman step in closed form, the gate, the evidence."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kbf_localization.filters.association import agreement, log_ratio
from kbf_localization.filters.hypothesis import (
    MIN_INLIERS,
    REANCHOR_INLIERS,
    Hypothesis,
    MeasuredPose,
    contradicts,
    from_fix,
    landmark_update,
    odometry_surprise,
)
from kbf_localization.landmarks.landmark_map import MAX_LOG_RATIO
from test.filters.synthetic_world import Fix


def prior():
    measured = MeasuredPose(np.array([1.0, 2.0, 0.3]), np.array([0.2, 0.1, 0.1]) ** 2, 0.6, 1.0)
    return Hypothesis.from_measurement(measured, 4)


def test_the_update_is_the_product_of_both_gaussians():
    component = prior()
    fix = Fix(np.array([1.1, 1.9, 0.32]), np.diag([0.02, 0.03, 0.01]) ** 2)
    after, _ = landmark_update(component, fix)
    information = np.linalg.inv(component.covariance) + np.linalg.inv(fix.covariance)
    expected = np.linalg.inv(information)
    np.testing.assert_allclose(after.covariance, expected, rtol=1e-9)
    mean = expected @ (
        np.linalg.solve(component.covariance, component.pose)
        + np.linalg.solve(fix.covariance, fix.pose)
    )
    np.testing.assert_allclose(after.pose, mean, rtol=1e-9)
    assert np.linalg.eigvalsh(after.state_covariance).min() > 0.0
    # What the pose learns, the bias that it was correlated with learns, too.
    assert np.trace(after.state_covariance[3:, 3:]) < np.trace(component.state_covariance[3:, 3:])


def test_headings_are_compared_round_the_circle():
    component = Hypothesis.from_prior(np.array([0.0, 0.0, 3.1]), np.eye(3) * 0.01, 1)
    after, _ = landmark_update(component, Fix(np.array([0.0, 0.0, -3.1]), np.eye(3) * 0.01))
    assert abs(abs(after.pose[2]) - np.pi) < 1e-6


def test_few_inliers_or_numbers_that_are_none_measure_nothing():
    good = np.eye(3) * 1e-4
    assert landmark_update(prior(), Fix(prior().pose, good, MIN_INLIERS - 1)) is None
    assert landmark_update(prior(), Fix(np.full(3, np.nan), good)) is None
    assert landmark_update(prior(), Fix(prior().pose, np.full((3, 3), np.inf))) is None


def test_a_contradicting_fix_is_held_unless_many_landmarks_agree():
    far = prior().pose + np.array([3.0, 0.0, 0.0])
    covariance = np.eye(3) * 1e-4
    assert landmark_update(prior(), Fix(far, covariance, REANCHOR_INLIERS - 1)) is None
    assert landmark_update(prior(), Fix(far, covariance, 500), reanchor=False) is None
    after, innovation = landmark_update(prior(), Fix(far, covariance, REANCHOR_INLIERS))
    assert np.hypot(*(after.pose - far)[:2]) < 0.2
    assert innovation > 10.0


@pytest.mark.parametrize(("driven", "used"), [(1.9, False), (2.1, True)])
def test_a_fix_farther_away_than_the_robot_has_driven_since_the_last_is_a_copy(driven, used):
    covariance = np.eye(3) * 1e-4
    measured, _ = landmark_update(prior(), Fix(prior().pose, covariance))
    moved = measured
    for _ in range(10):
        moved = moved.predict(np.array([0.1 * driven, 0.0, 0.0]), np.full(3, 1e-6), 1.0)
    copy = Fix(moved.pose + np.array([2.0, 0.0, 0.0]), covariance, 500)
    assert (landmark_update(moved, copy) is not None) == used
    assert contradicts(moved, copy) != used


@pytest.mark.parametrize(("driven", "used"), [(0.0, False), (1.9, False), (2.1, True)])
def test_a_fix_farther_from_a_given_pose_than_the_robot_has_driven_since_contradicts_it(
    driven, used
):
    given = Hypothesis.from_prior(np.array([1.0, 2.0, 0.3]), np.eye(3) * 1e-2, 1)
    moved = given.predict(np.array([driven, 0.0, 0.0]), np.full(3, 1e-6), 1.0)
    elsewhere = Fix(moved.pose + np.array([2.0, 0.0, 0.0]), np.eye(3) * 1e-4, 500)
    assert (landmark_update(moved, elsewhere) is not None) == used
    assert contradicts(moved, elsewhere) != used


def test_a_fix_within_the_covariance_of_a_given_pose_is_used():
    given = Hypothesis.from_prior(np.array([1.0, 2.0, 0.3]), np.eye(3), 1)
    near = Fix(given.pose + np.array([2.0, 0.0, 0.0]), np.eye(3) * 1e-4)
    after, _ = landmark_update(given, near)
    np.testing.assert_allclose(after.pose, near.pose, atol=1e-3)


def test_after_an_unknown_motion_a_fix_may_be_anywhere():
    covariance = np.eye(3) * 1e-4
    measured, _ = landmark_update(prior(), Fix(prior().pose, covariance))
    given = Hypothesis.from_prior(prior().pose, covariance, 1)
    for known in (measured, given):
        copy = Fix(known.pose + np.array([2.0, 0.0, 0.0]), covariance, 500)
        assert landmark_update(known, copy) is None
        assert landmark_update(known.inflate(np.full(3, 1e-6)), copy) is not None


def test_the_evidence_is_the_fixs_own_and_bounded():
    covariance = np.eye(3)
    assert log_ratio(Fix(np.zeros(3), covariance, 60, -1.5)) == pytest.approx(-1.5)
    assert log_ratio(Fix(np.zeros(3), covariance, 60, 99.0)) == MAX_LOG_RATIO


def test_a_birth_has_the_fixs_pose_and_covariance():
    fix = Fix(np.array([1.0, 2.0, 3.0]), np.diag([0.1, 0.2, 0.3]))
    component = from_fix(fix, 7)
    np.testing.assert_allclose(component.pose, fix.pose)
    np.testing.assert_allclose(component.covariance, fix.covariance)
    assert component.number == 7


def test_agreement_is_the_density_of_the_fix_against_an_even_one():
    """SciPy's normal density of the fix's pose, times the volume in which a wrong one may be."""
    component = prior()
    fix = Fix(component.pose + np.array([0.05, -0.02, 0.01]), np.diag([0.02, 0.03, 0.01]) ** 2)
    scales = np.array([1.5, 1.5, 0.4])
    density = multivariate_normal(component.pose, component.covariance + fix.covariance)
    expected = np.log(density.pdf(fix.pose) * np.prod(2.0 * scales))
    assert expected > 0.0
    assert agreement(component, fix, scales) == pytest.approx(expected)


def test_a_fix_where_nothing_is_predicted_or_far_from_it_does_not_agree():
    scales = np.array([1.5, 1.5, 0.4])
    sharp = np.eye(3) * 1e-4
    vague = Hypothesis.from_prior(np.zeros(3), np.diag([9.0, 9.0, 3.0]), 1)
    assert agreement(vague, Fix(np.zeros(3), sharp), scales) == 0.0
    assert agreement(prior(), Fix(prior().pose + np.array([3.0, 0.0, 0.0]), sharp), scales) == 0.0
    assert agreement(prior(), Fix(np.full(3, np.nan), sharp), scales) == 0.0


def measured_and_moved(noise_factor):
    """A component that a fix measured, moved twice with so many times the odometry's variances."""
    component = from_fix(Fix(np.array([1.0, 2.0, 0.3]), np.diag([0.01, 0.02, 0.005]) ** 2), 4)
    for motion in ([0.3, 0.02, 0.2], [0.2, -0.01, -0.4]):
        variances = noise_factor * np.array([0.02, 0.01, 0.03]) ** 2
        component = component.predict(np.array(motion), variances, 0.9)
    return component


@pytest.mark.parametrize("noise_factor", [0.3, 1.0, 20.0])
def test_the_surprise_at_the_odometry_is_the_score_of_its_noise(noise_factor):
    """∂ log N(r; 0, S)/∂ log λ in units of its Fisher information 3/2 for S ∝ λ, by differences."""
    covariance = np.diag([0.01, 0.008, 0.004]) ** 2
    fix = Fix(measured_and_moved(1.0).pose + np.array([0.05, -0.03, 0.02]), covariance)

    def log_likelihood(log_factor):
        component = measured_and_moved(np.exp(log_factor))
        total = component.covariance + covariance
        return multivariate_normal.logpdf(fix.pose, component.pose, total)

    at, step = np.log(noise_factor), 1e-5
    score = (log_likelihood(at + step) - log_likelihood(at - step)) / (2.0 * step)
    surprise, information = odometry_surprise(measured_and_moved(noise_factor), fix)
    assert information * (surprise - 1.0) == pytest.approx(score / 1.5, rel=1e-6)
    assert 0.0 < information < 1.0


def test_landmarks_say_nothing_of_an_odometry_that_reports_no_motion_since_the_last():
    fix = Fix(np.array([0.1, 0.0, 0.0]), np.eye(3) * 1e-4)
    component = measured_and_moved(1.0)
    after, _ = landmark_update(component, Fix(component.pose, np.eye(3) * 1e-4))
    for same in (after, after.predict(np.zeros(3), np.zeros(3), 1.0)):
        assert odometry_surprise(same, fix) == (1.0, 0.0)


def test_a_new_bias_leaves_what_the_odometry_has_added():
    moved = measured_and_moved(1.0)
    renewed = moved.decorrelate(0.5)
    np.testing.assert_allclose(renewed.odometry_covariance, moved.odometry_covariance)
