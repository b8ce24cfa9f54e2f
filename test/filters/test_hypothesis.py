"""One hypothesis against textbook Gaussian conditioning on the pose and the lasting error."""

import numpy as np
import pytest

from kbf_localization.filters.hypothesis import FitErrors, MeasuredPose, born, given, rotation
from kbf_localization.geometry import compose
from kbf_localization.training_map.learned import MotionNoise

VARIANCES = np.array([0.04, 0.09, 0.01])


def measured(pose, lasting=0.6, fresh=1.0, variances=VARIANCES):
    return MeasuredPose(np.array(pose, dtype=float), variances, lasting, fresh)


def condition(mean, covariance, design, noise, value):
    """Mean and covariance of x given y = design x + noise, by the joint Gaussian of (x, y)."""
    cross = covariance @ design.T
    spread = design @ covariance @ design.T + noise
    weights = cross @ np.linalg.inv(spread)
    return mean + weights @ (value - design @ mean), covariance - weights @ cross.T


def design_and_noise(one):
    """y = pose + turn √(lasting V) error + white, with the white part as documented."""
    turn = rotation(one.pose[2])
    design = np.hstack((np.eye(3), turn @ np.diag(np.sqrt(one.lasting * one.variances))))
    white = (1.0 - one.lasting) / one.fresh + 0.01
    return design, white * turn @ np.diag(one.variances) @ turn.T


def test_a_correction_is_gaussian_conditioning():
    prior = given([1.0, 2.0, 0.3], np.diag([0.05, 0.02, 0.01]), 1)
    one = measured([1.1, 1.9, 0.35])
    corrected, squared = prior.corrected(one)
    assert squared < 1.0
    design, noise = design_and_noise(one)
    mean, covariance = condition(
        np.array([1.0, 2.0, 0.3, 0.0, 0.0, 0.0]), prior.joint, design, noise, one.pose
    )
    np.testing.assert_allclose(corrected.pose, mean[:3], atol=1e-12)
    np.testing.assert_allclose(corrected.error, mean[3:], atol=1e-12)
    np.testing.assert_allclose(corrected.joint, covariance, atol=1e-12)


def test_a_series_of_pictures_is_one_batch_of_measurements():
    """Five steps of motion noise and a fading lasting error, conditioned on at once."""
    generator = np.random.default_rng(0)
    start, lasts, walk = np.diag([0.05, 0.04, 0.02]), 0.8, np.array([0.003, 0.003, 0.001])
    values = generator.normal(0.0, 0.05, (5, 3))
    hypothesis = given(np.zeros(3), start, 1)
    for value in values:
        hypothesis = hypothesis.moved(np.zeros(3), walk, lasts)
        hypothesis, squared = hypothesis.corrected(measured(value))
        assert squared < 1.0

    # Pose k is the start and k walks; error k is lasts^k error_0 and fresh parts.
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
        covariance[at + 3 : at + 6, at + 3 : at + 6] = (1.0 - lasts**2) * np.eye(3)
        poses, errors = poses.copy(), lasts * errors
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
    np.testing.assert_allclose(hypothesis.error, (state @ mean)[3:], atol=1e-10)
    np.testing.assert_allclose(hypothesis.joint, state @ spread @ state.T, atol=1e-10)


def test_a_far_measurement_counts_as_one_of_more_noise():
    """Student's rule: with squared innovation s the covariance is (4 + s)/7 times as large."""
    prior = given(np.zeros(3), 0.01 * np.eye(3), 1)
    one = measured([2.0, 0.0, 0.0])
    corrected, squared = prior.corrected(one)
    design, noise = design_and_noise(one)
    spread = design @ prior.joint @ design.T + noise
    expected = one.pose @ np.linalg.inv(spread) @ one.pose
    assert squared == pytest.approx(expected / 3.0)
    doubt = (4.0 + expected) / 7.0
    mean, covariance = condition(
        np.zeros(6), prior.joint, design, noise + (doubt - 1.0) * spread, one.pose
    )
    np.testing.assert_allclose(corrected.pose, mean[:3], atol=1e-12)
    np.testing.assert_allclose(corrected.joint, covariance, atol=1e-12)


def test_the_measurement_that_gave_birth_tells_nothing_again():
    one = measured([3.0, -1.0, 2.0], lasting=1.0)
    child = born(one, 4)
    turn = rotation(2.0)
    np.testing.assert_allclose(child.covariance, turn @ np.diag(VARIANCES) @ turn.T)
    again, squared = child.corrected(one)
    assert squared == pytest.approx(0.0, abs=1e-20)
    np.testing.assert_allclose(again.pose, child.pose, atol=1e-12)
    np.testing.assert_allclose(again.joint, child.joint, atol=1e-10)


@pytest.mark.parametrize("lasting", [0.0, 0.3, 0.9])
def test_a_second_picture_of_the_same_view_adds_its_white_part_alone(lasting):
    """Two measurements with a common error of share `lasting`: V (1 + lasting)/2 is left."""
    one = measured(np.zeros(3), lasting=lasting)
    again, _ = born(one, 1).corrected(one)
    # The hundredth that keeps matrices regular makes the second a little less precise.
    white = 1.0 - lasting
    share = white * (white + 0.01) / (2.0 * white + 0.01)
    np.testing.assert_allclose(np.diag(again.covariance), (lasting + share) * VARIANCES, rtol=1e-9)


def test_pictures_of_a_robot_that_hardly_moves_hardly_count():
    one = measured(np.zeros(3), lasting=0.5, fresh=1e-6)
    child = born(one, 1)
    for _ in range(100):
        child, _ = child.corrected(one)
    np.testing.assert_allclose(np.diag(child.covariance), VARIANCES, rtol=1e-3)


def test_moving_carries_the_covariance_by_the_jacobian_of_composition():
    pose, motion = np.array([1.0, 2.0, 0.7]), np.array([0.5, -0.2, 0.4])
    spread = np.array([[0.04, 0.01, 0.002], [0.01, 0.03, 0.001], [0.002, 0.001, 0.01]])
    moved = given(pose, spread, 1).moved(motion, np.zeros(3), 1.0)
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


def test_a_way_in_one_step_or_in_many_gives_the_same_covariance():
    """Straight on, where the heading's noise turns what is left of the way."""
    noise = MotionNoise((0.01, 0.02, 0.005), (0.0, 0.0, 0.0))
    start = given([1.0, 2.0, 0.7], np.diag([0.01, 0.02, 0.003]), 1)
    once = start.moved(np.array([2.0, 0.0, 0.0]), noise.variances(2.0, 0.0), np.exp(-2.0))
    often = start
    for _ in range(20):
        often = often.moved(np.array([0.1, 0.0, 0.0]), noise.variances(0.1, 0.0), np.exp(-0.1))
    np.testing.assert_allclose(often.pose, once.pose, atol=1e-12)
    np.testing.assert_allclose(often.joint, once.joint, atol=1e-12)


def test_what_is_not_finite_corrects_nothing():
    prior = given(np.zeros(3), np.eye(3), 1)
    assert prior.corrected(measured([np.nan, 0.0, 0.0]))[0] is prior


@pytest.mark.parametrize("lasting", [0.0, 0.4, 1.0])
def test_the_evidence_of_fits_that_err_alike_is_their_likelihood_ratio(lasting):
    """Against 1ᵀC⁻¹z, the log ratio of Gaussians with means of either sign and covariance C."""
    generator = np.random.default_rng(1)
    fits, informs = generator.normal(1.0, 3.0, 7), generator.uniform(0.3, 1.0, 7)
    lasts = np.array([0.0, 0.9, 0.99, 0.5, 0.97, 1.0, 0.8])
    errors, gained = FitErrors(), []
    for fit, part, kept in zip(fits, informs, lasts, strict=True):
        errors, gain = errors.after(fit, part, kept, lasting)
        gained.append(gain)
    way = np.concatenate(([0.0], np.cumsum(np.log(lasts[1:]))))
    covariance = lasting * np.exp(-np.abs(way[:, None] - way[None]))
    covariance += np.diag(1.0 / informs - lasting)
    for count in range(1, 8):
        part = np.linalg.solve(covariance[:count, :count], fits[:count])
        assert sum(gained[:count]) == pytest.approx(part.sum(), rel=1e-9)


def test_a_fit_that_stays_counts_once_and_one_that_changes_at_once():
    """The same view again tells nothing; another picture at the same pose tells at once."""
    errors, first = FitErrors().after(3.0, 1.0, 0.0, 1.0)
    errors, again = errors.after(3.0, 1.0, 1.0 - 1e-9, 1.0)
    _, sudden = errors.after(-5.0, 1.0, 1.0 - 1e-9, 1.0)
    assert first == pytest.approx(3.0)
    assert again == pytest.approx(0.0, abs=1e-6)
    assert sudden == pytest.approx(-4.0, rel=1e-6)
