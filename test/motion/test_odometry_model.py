import numpy as np
import pytest

from kbf_localization.geometry import compose, embed, relative
from kbf_localization.motion.odometry_model import (
    maximum_likelihood_noise,
    noise_between,
    rotate_translate_rotate,
    transition,
)


@pytest.mark.parametrize("motion", [[0.3, 0.1, 0.4], [-0.2, 0.0, 0.1], [0.5, -0.5, -3.0]])
def test_moves_as_the_composition_of_poses_does(motion):
    poses = np.array([[1.0, 2.0, 0.5], [-3.0, 0.0, 3.1]])
    np.testing.assert_allclose(transition(poses, motion), embed(compose(poses, motion)), atol=1e-12)


def test_turning_on_the_spot_has_no_first_rotation():
    first, translation, second = rotate_translate_rotate([1e-4, -1e-4, 0.7])
    assert first == 0.0
    assert translation == pytest.approx(np.hypot(1e-4, 1e-4))
    assert second == pytest.approx(0.7)


def test_standing_still_stays():
    pose = np.array([[1.0, -2.0, 0.3]])
    np.testing.assert_allclose(transition(pose, np.zeros(3)), embed(pose), atol=1e-15)


def test_driving_backwards_is_two_half_turns():
    first, translation, second = rotate_translate_rotate([-0.2, 0.0, 0.0])
    assert abs(first) == pytest.approx(np.pi)
    assert translation == pytest.approx(0.2)
    assert abs(second) == pytest.approx(np.pi)


def test_noise_is_the_mean_square_of_the_errors_in_the_embedding():
    generator = np.random.default_rng(0)
    poses = np.column_stack((generator.normal(size=(50, 2)), generator.uniform(-3, 3, 50)))
    motions = relative(poses[:-1], poses[1:]) + generator.normal(0.0, 0.01, (49, 3))
    errors = [
        embed(poses[i + 1]) - embed(compose(poses[i], motions[i])) for i in range(len(motions))
    ]
    expected = np.mean(np.square(errors), axis=0)
    found = noise_between(poses[:-1], motions, poses[1:])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_steps_without_a_motion_are_passed_over():
    poses = np.array([[0.0, 0.0, 0.0], [1.1, 0.0, 0.0], [2.1, 0.0, 0.0]])
    motions = np.array([[1.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    assert noise_between(poses[:-1], motions, poses[1:])[0] == pytest.approx(0.01)


def test_perfect_odometry_has_a_positive_variance():
    assert (noise_between(*np.zeros((3, 2, 3))) > 0).all()


def test_refuses_drives_without_a_usable_step():
    with pytest.raises(ValueError, match="no step"):
        noise_between(np.zeros((1, 3)), np.full((1, 3), np.nan), np.zeros((1, 3)))


def test_one_wild_reading_does_not_make_the_noise():
    generator = np.random.default_rng(1)
    motions = generator.normal(0.0, 0.01, (400, 3))
    ordinary = noise_between(np.zeros((400, 3)), motions, np.zeros((400, 3)))
    motions[7] = (100.0, -100.0, 3.0)
    wild = noise_between(np.zeros((400, 3)), motions, np.zeros((400, 3)))
    # It counts as ten ordinary errors: as a hundred variances among four hundred.
    np.testing.assert_array_less(wild[[0, 1, 3]], 1.4 * ordinary[[0, 1, 3]])


def test_maximum_likelihood_is_where_the_likelihoods_slope_is_zero():
    """Also with a wild reading, which the robust estimate bounds."""
    generator = np.random.default_rng(2)
    poses = np.cumsum(generator.normal(0.0, 0.1, (60, 3)), axis=0)
    motions = relative(poses[:-1], poses[1:]) + generator.normal(0.0, 0.02, (59, 3))
    motions[7, 0] += 5.0
    found = maximum_likelihood_noise(poses[:-1], motions, poses[1:])
    errors = embed(poses[1:]) - transition(poses[:-1], motions)

    def log_likelihood(variances):
        return -0.5 * (np.log(variances) + errors**2 / variances).sum(axis=0)

    for factor in (0.99, 1.01):
        assert (log_likelihood(found) > log_likelihood(factor * found)).all()
    assert (found[:2] > 2.0 * noise_between(poses[:-1], motions, poses[1:])[:2]).any()
    sound = np.delete(np.arange(59), 7)
    parts = (poses[:-1][sound], motions[sound], poses[1:][sound])
    np.testing.assert_allclose(maximum_likelihood_noise(*parts), noise_between(*parts), rtol=1e-12)
