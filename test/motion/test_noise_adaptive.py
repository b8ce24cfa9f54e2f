"""The adaptation of the motion noise, against its closed form."""

import numpy as np
import pytest

from kbf_localization.motion.noise import AdaptiveMotionNoise


def test_the_inflation_is_the_exponential_of_the_summed_surprises():
    """exp(Σ information · (min(surprise, 3.5) − 1)) while within its bounds."""
    noise, total = AdaptiveMotionNoise(), 0.0
    for surprise, information in [(3.0, 0.4), (2.5, 0.3), (50.0, 0.2), (0.6, 0.5)]:
        noise.update(surprise, information)
        total += information * (min(surprise, 3.5) - 1.0)
        assert total > 0.0
        assert noise.inflation == pytest.approx(np.exp(total))


def test_errors_as_on_the_mapping_drives_change_nothing():
    noise = AdaptiveMotionNoise()
    noise.update(4.0, 0.5)
    before = noise.inflation
    for _ in range(100):
        noise.update(1.0, 1.0)
    assert noise.inflation == pytest.approx(before)


def test_an_update_without_information_changes_nothing():
    noise = AdaptiveMotionNoise()
    noise.update(100.0, 0.0)
    assert noise.inflation == 1.0


def test_the_inflation_stays_between_the_calibrated_variance_and_a_hundred_times_it():
    noise = AdaptiveMotionNoise()
    for _ in range(50):
        noise.update(0.0, 1.0)
    assert noise.inflation == 1.0
    for _ in range(50):
        noise.update(1e9, 1.0)
    assert noise.inflation == 100.0


def test_inflating_at_once_multiplies_the_variance_by_four():
    noise = AdaptiveMotionNoise()
    noise.inflate()
    assert noise.inflation == pytest.approx(4.0)
    for _ in range(9):
        noise.inflate()
    assert noise.inflation == 100.0


def test_a_single_measurement_breaks_no_odometry_two_do():
    noise = AdaptiveMotionNoise()
    noise.update(1e9, 1.0)
    assert not noise.broken
    noise.update(1e9, 1.0)
    assert noise.broken


def test_odometry_is_broken_beyond_sixteen_times_the_calibrated_variance():
    noise = AdaptiveMotionNoise()
    noise.inflate()
    noise.inflate()
    assert noise.inflation == pytest.approx(16.0) and not noise.broken
    noise.update(1.1, 1.0)
    assert noise.broken
    noise.update(0.0, 1.0)
    assert not noise.broken
