"""A hypothesis against textbook Gaussian conditioning of the pose and the measurement's bias."""

import numpy as np
import pytest

from kbf_localization.filters.hypothesis import Hypothesis, MeasuredPose
from kbf_localization.geometry import compose, rotation
from kbf_localization.motion.noise import MotionNoise

VARIANCES = np.array([0.04, 0.09, 0.01])


def measured(pose, bias_fraction=0.6, information=1.0, variances=VARIANCES):
    return MeasuredPose(np.array(pose, dtype=float), variances, bias_fraction, information)


def condition(mean, covariance, design, noise, value):
    """Mean and covariance of x given y = design x + noise, by the joint Gaussian of (x, y)."""
    cross = covariance @ design.T
    spread = design @ covariance @ design.T + noise
    weights = cross @ np.linalg.inv(spread)
    return mean + weights @ (value - design @ mean), covariance - weights @ cross.T


def design_and_noise(measurement):
    """y = pose + turn √(bias_fraction V) bias + white, with the white part as documented."""
    turn = rotation(measurement.pose[2])
    design = np.hstack(
        (np.eye(3), turn @ np.diag(np.sqrt(measurement.bias_fraction * measurement.variances)))
    )
    white = (1.0 - measurement.bias_fraction) / measurement.information_fraction + 0.01
    return design, white * turn @ np.diag(measurement.variances) @ turn.T


def test_an_update_is_gaussian_conditioning():
    prior = Hypothesis.from_prior([1.0, 2.0, 0.3], np.diag([0.05, 0.02, 0.01]), 1)
    measurement = measured([1.1, 1.9, 0.35])
    corrected, squared = prior.update(measurement)
    assert squared < 1.0
    design, noise = design_and_noise(measurement)
    mean, covariance = condition(
        np.array([1.0, 2.0, 0.3, 0.0, 0.0, 0.0]),
        prior.state_covariance,
        design,
        noise,
        measurement.pose,
    )
    np.testing.assert_allclose(corrected.pose, mean[:3], atol=1e-12)
    np.testing.assert_allclose(corrected.bias, mean[3:], atol=1e-12)
    np.testing.assert_allclose(corrected.state_covariance, covariance, atol=1e-12)


def mean_surprise(assumed=1.0, wheel_error=(0.0, 0.0, 0.0)):
    """Mean over drives of what the model itself draws, with `assumed` times its motion noise."""
    generator, surprises = np.random.default_rng(4), []
    walk, correlation = np.array([0.01, 0.01, 0.001]), 0.8
    for _ in range(100):
        hypothesis = Hypothesis.from_prior(np.zeros(3), 1e-6 * np.eye(3), 1)
        pose, bias = np.zeros(3), generator.normal(size=3)
        for step in range(40):
            pose = pose + generator.normal(size=3) * np.sqrt(walk) + wheel_error
            bias = correlation * bias + np.sqrt(1.0 - correlation**2) * generator.normal(size=3)
            design, noise = design_and_noise(measured(np.zeros(3)))
            white = np.sqrt(np.diag(noise)) * generator.normal(size=3)
            value = pose + design[:, 3:] @ bias + white
            hypothesis = hypothesis.predict(np.zeros(3), assumed * walk, correlation)
            hypothesis, surprise = hypothesis.update(measured(value))
            surprises += [surprise] if step >= 20 else []
    return np.mean(surprises)


def test_the_surprise_has_expectation_one_under_the_model():
    assert mean_surprise() == pytest.approx(1.0, abs=0.1)


def test_motion_noise_that_is_assumed_too_large_shows_in_the_surprise():
    assert mean_surprise(assumed=16.0) < 0.5


def test_wheels_with_a_constant_error_show_in_the_surprise():
    assert mean_surprise(wheel_error=(0.1, 0.0, 0.0)) > 1.5


def test_a_sequence_of_updates_is_one_batch_of_measurements():
    """Five steps of motion noise and a Gauss–Markov bias, conditioned on at once."""
    generator = np.random.default_rng(0)
    start, correlation, walk = np.diag([0.05, 0.04, 0.02]), 0.8, np.array([0.003, 0.003, 0.001])
    values = generator.normal(0.0, 0.05, (5, 3))
    hypothesis = Hypothesis.from_prior(np.zeros(3), start, 1)
    for value in values:
        hypothesis = hypothesis.predict(np.zeros(3), walk, correlation)
        hypothesis, squared = hypothesis.update(measured(value))
        assert squared < 1.0

    # Pose k is the start and k walks; bias k is correlation^k bias_0 and its innovations.
    steps = 5
    sources = 3 + 3 + 6 * steps
    covariance = np.zeros((sources, sources))
    covariance[:3, :3], covariance[3:6, 3:6] = start, np.eye(3)
    poses, errors = np.zeros((3, sources)), np.zeros((3, sources))
    poses[:, :3], errors[:, 3:6] = np.eye(3), np.eye(3)
    designs, noises = [], []
    for step, value in enumerate(values):
        at = 6 + 6 * step
        covariance[at : at + 3, at : at + 3] = np.diag(walk)
        covariance[at + 3 : at + 6, at + 3 : at + 6] = (1.0 - correlation**2) * np.eye(3)
        poses, errors = poses.copy(), correlation * errors
        poses[:, at : at + 3] = np.eye(3)
        errors[:, at + 3 : at + 6] = np.eye(3)
        design, noise = design_and_noise(measured(value))
        designs.append(design @ np.vstack((poses, errors)))
        noises.append(noise)
    whole = np.zeros((3 * steps, 3 * steps))
    for step, noise in enumerate(noises):
        whole[3 * step : 3 * step + 3, 3 * step : 3 * step + 3] = noise
    mean, spread = condition(
        np.zeros(sources), covariance, np.vstack(designs), whole, values.reshape(-1)
    )
    state = np.vstack((poses, errors))
    np.testing.assert_allclose(hypothesis.pose, (state @ mean)[:3], atol=1e-10)
    np.testing.assert_allclose(hypothesis.bias, (state @ mean)[3:], atol=1e-10)
    np.testing.assert_allclose(hypothesis.state_covariance, state @ spread @ state.T, atol=1e-10)


def test_an_outlier_is_weighted_by_students_rule():
    """Student's rule: with squared innovation s the covariance is (4 + s)/7 times as large."""
    prior = Hypothesis.from_prior(np.zeros(3), 0.01 * np.eye(3), 1)
    measurement = measured([2.0, 0.0, 0.0])
    corrected, surprise = prior.update(measurement)
    design, noise = design_and_noise(measurement)
    spread = design @ prior.state_covariance @ design.T + noise
    expected = measurement.pose @ np.linalg.inv(spread) @ measurement.pose
    doubt = (4.0 + expected) / 7.0
    mean, covariance = condition(
        np.zeros(6),
        prior.state_covariance,
        design,
        noise + (doubt - 1.0) * spread,
        measurement.pose,
    )
    np.testing.assert_allclose(corrected.pose, mean[:3], atol=1e-12)
    np.testing.assert_allclose(corrected.state_covariance, covariance, atol=1e-12)
    # Three components of the innovation, and as many of the bias as the posterior knows.
    degrees = 3.0 + 3.0 - np.trace(covariance[3:, 3:])
    assert surprise == pytest.approx((expected + mean[3:] @ mean[3:]) / degrees)


def test_the_measurement_of_a_birth_adds_no_information_again():
    measurement = measured([3.0, -1.0, 2.0], bias_fraction=1.0)
    child = Hypothesis.from_measurement(measurement, 4)
    turn = rotation(2.0)
    np.testing.assert_allclose(child.covariance, turn @ np.diag(VARIANCES) @ turn.T)
    again, squared = child.update(measurement)
    assert squared == pytest.approx(0.0, abs=1e-20)
    np.testing.assert_allclose(again.pose, child.pose, atol=1e-12)
    np.testing.assert_allclose(again.state_covariance, child.state_covariance, atol=1e-10)


@pytest.mark.parametrize("bias_fraction", [0.0, 0.3, 0.9])
def test_a_second_image_of_the_same_view_adds_its_white_part_alone(bias_fraction):
    """Two measurements with a common bias: V (1 + bias_fraction)/2 remains."""
    measurement = measured(np.zeros(3), bias_fraction=bias_fraction)
    again, _ = Hypothesis.from_measurement(measurement, 1).update(measurement)
    # The hundredth that keeps matrices regular makes the second a little less precise.
    white = 1.0 - bias_fraction
    averaged = white * (white + 0.01) / (2.0 * white + 0.01)
    np.testing.assert_allclose(
        np.diag(again.covariance), (bias_fraction + averaged) * VARIANCES, rtol=1e-9
    )


def test_images_of_a_robot_at_rest_add_no_information():
    measurement = measured(np.zeros(3), bias_fraction=0.5, information=1e-6)
    child = Hypothesis.from_measurement(measurement, 1)
    for _ in range(100):
        child, _ = child.update(measurement)
    np.testing.assert_allclose(np.diag(child.covariance), VARIANCES, rtol=1e-3)


def test_prediction_propagates_the_covariance_by_the_jacobian_of_composition():
    pose, motion = np.array([1.0, 2.0, 0.7]), np.array([0.5, -0.2, 0.4])
    spread = np.array([[0.04, 0.01, 0.002], [0.01, 0.03, 0.001], [0.002, 0.001, 0.01]])
    moved = Hypothesis.from_prior(pose, spread, 1).predict(motion, np.zeros(3), 1.0)
    step = 1e-6
    jacobian = np.column_stack(
        [
            (compose(pose + step * axis, motion) - compose(pose - step * axis, motion)) / (2 * step)
            for axis in np.eye(3)
        ]
    )
    np.testing.assert_allclose(moved.pose, compose(pose, motion), atol=1e-15)
    np.testing.assert_allclose(moved.covariance, jacobian @ spread @ jacobian.T, atol=1e-9)


def test_motion_noise_adds_up_over_steps():
    noise = MotionNoise((0.01, 0.02, 0.03), (0.004, 0.005, 0.006))
    whole = noise.variances(2.0, 1.5)
    parts = sum(noise.variances(0.2, 0.15) for _ in range(10))
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    assert (noise.variances(0.0, 0.0) == 0.0).all()


def test_a_path_in_one_step_or_in_many_gives_the_same_covariance():
    """Straight on, where the heading's noise turns the rest of the path."""
    noise = MotionNoise((0.01, 0.02, 0.005), (0.0, 0.0, 0.0))
    start = Hypothesis.from_prior([1.0, 2.0, 0.7], np.diag([0.01, 0.02, 0.003]), 1)
    once = start.predict(np.array([2.0, 0.0, 0.0]), noise.variances(2.0, 0.0), np.exp(-2.0))
    often = start
    for _ in range(20):
        often = often.predict(np.array([0.1, 0.0, 0.0]), noise.variances(0.1, 0.0), np.exp(-0.1))
    np.testing.assert_allclose(often.pose, once.pose, atol=1e-12)
    np.testing.assert_allclose(often.state_covariance, once.state_covariance, atol=1e-12)


def test_a_measurement_that_is_not_finite_is_ignored():
    prior = Hypothesis.from_prior(np.zeros(3), np.eye(3), 1)
    assert prior.update(measured([np.nan, 0.0, 0.0]))[0] is prior
