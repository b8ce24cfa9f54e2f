"""The growth of the odometry's error is found back from simulated drives."""

import numpy as np
import pytest

from kbf_localization.geometry import compose
from kbf_localization.motion.noise import errors_over_windows, noise_growth

PER_METRE, PER_RADIAN = np.array([0.02, 0.01, 0.008]), np.array([0.004, 0.006, 0.03])
WINDOW_M, WINDOW_RAD = 4.0, 1.5


def windows(count, seed):
    """Errors whose variance is the path's: some windows are driven, some turned, most both."""
    generator = np.random.default_rng(seed)
    fraction = generator.uniform(size=count)
    lengths = np.column_stack((fraction * WINDOW_M, (1.0 - fraction) * WINDOW_RAD))
    sigma = np.sqrt(np.outer(lengths[:, 0], PER_METRE) + np.outer(lengths[:, 1], PER_RADIAN))
    return generator.normal(size=(count, 3)) * sigma, lengths


@pytest.mark.parametrize("seed", range(3))
def test_variances_per_metre_and_radian_are_recovered(seed):
    found_m, found_r, aside = noise_growth(*windows(5000, seed), WINDOW_M, WINDOW_RAD)
    # A variance from 5000 squares errs by 2 %, that of one of two causes by some times more.
    np.testing.assert_allclose(found_m, PER_METRE, rtol=0.1)
    np.testing.assert_allclose(found_r, PER_RADIAN, rtol=0.3)
    assert aside == 0


def test_one_glitch_of_100_m_moves_nothing_and_is_set_aside():
    errors, lengths = windows(300, 7)
    ordinary = noise_growth(errors, lengths, WINDOW_M, WINDOW_RAD)
    errors[100] = (100.0, -100.0, 1.5)
    found = noise_growth(errors, lengths, WINDOW_M, WINDOW_RAD)
    assert ordinary[2] == 0 and found[2] == 1
    # It counts as nine variances, by a leverage of at most 4/n in a line of two unknowns.
    for before, after in zip(ordinary[:2], found[:2], strict=True):
        np.testing.assert_allclose(after, before, rtol=9.0 * 4.0 / 300.0)


def test_no_record_is_better_than_two_percent_of_its_windows():
    _, lengths = windows(300, 7)
    per_metre, per_radian, _ = noise_growth(np.zeros((300, 3)), lengths, WINDOW_M, WINDOW_RAD)
    assert np.sqrt(per_metre[:2] * WINDOW_M) == pytest.approx(0.02 * WINDOW_M)
    # An arc that is off by 2 % of its length has turned by 0.02 rad.
    assert np.sqrt(per_metre[2] * WINDOW_M) == pytest.approx(0.02)
    assert np.sqrt(per_radian[2] * WINDOW_RAD) == pytest.approx(0.02 * WINDOW_RAD)
    assert (per_radian > 0).all()


@pytest.mark.parametrize("window_m", [1.0, 4.0, 40.0, 400.0, 1548.0, 2000.0])
def test_heading_noise_is_recovered_whatever_the_windows_length(window_m):
    """2.9° per square root of a metre, and 1.8° per square root of a radian."""
    generator = np.random.default_rng(int(window_m))
    fraction = generator.uniform(size=5000)
    lengths = np.column_stack((fraction * window_m, (1.0 - fraction) * WINDOW_RAD))
    per_metre = np.array([4e-3 * window_m, 4e-3 * window_m, np.radians(2.9) ** 2])
    per_radian = np.array([1e-3, 1e-3, np.radians(1.8) ** 2])
    sigma = np.sqrt(np.outer(lengths[:, 0], per_metre) + np.outer(lengths[:, 1], per_radian))
    errors = generator.normal(size=(5000, 3)) * sigma
    found, _, aside = noise_growth(errors, lengths, window_m, WINDOW_RAD)
    np.testing.assert_allclose(found, per_metre, rtol=0.1)
    assert aside == 0


@pytest.mark.parametrize("count", [0, 3])
def test_a_few_windows_give_the_least_noise(count):
    errors, lengths = windows(count, 1)
    per_metre, per_radian, aside = noise_growth(errors, lengths, WINDOW_M, WINDOW_RAD)
    assert (per_metre > 0).all() and (per_radian > 0).all() and aside == 0


def simulated_drive(steps, generator):
    """Truth that goes straight on for 15 m or turns on the spot; odometry with steps that err."""
    motions = np.tile([0.1, 0.0, 0.0], (steps, 1))
    motions[np.arange(steps) // 150 % 2 == 1] = (0.0, 0.0, 0.1)
    lengths = np.column_stack((np.hypot(motions[:, 0], motions[:, 1]), np.abs(motions[:, 2])))
    sigma = np.sqrt(
        np.outer(lengths[:, 0], [0.02, 0.0, 0.002]) + np.outer(lengths[:, 1], [0, 0, 0.02])
    )
    reported = motions + generator.normal(size=motions.shape) * sigma
    truth, odometry = [np.zeros(3)], [np.array([5.0, -2.0, 1.0])]
    for first, other in zip(motions, reported, strict=True):
        truth.append(compose(truth[-1], first))
        odometry.append(compose(odometry[-1], other))
    return np.array(truth), np.array(odometry)


def test_errors_of_a_random_walk_add_up_over_windows():
    drive = simulated_drive(20000, np.random.default_rng(3))
    errors, lengths = errors_over_windows([drive], 2.0, 1.5)
    per_metre, per_radian, _ = noise_growth(errors, lengths, 2.0, 1.5)
    assert len(errors) > 500
    assert (lengths / (2.0, 1.5)).sum(axis=1) == pytest.approx(1.0, abs=0.3)
    assert per_metre[0] == pytest.approx(0.02, rel=0.3)
    assert per_radian[2] == pytest.approx(0.02, rel=0.3)


def test_a_gap_in_the_record_is_no_error():
    truth, odometry = simulated_drive(600, np.random.default_rng(4))
    errors, _ = errors_over_windows([(truth, odometry)], 2.0, 1.5)
    moved = odometry.copy()
    moved[300:, 0] += 50.0
    jumped, _ = errors_over_windows([(truth, moved)], 2.0, 1.5)
    assert np.abs(jumped[:, :2]).max() < 3.0 * np.abs(errors[:, :2]).max()


def test_standing_still_is_no_window():
    still = np.zeros((50, 3))
    errors, lengths = errors_over_windows([(still, still)], 1.0, 1.0)
    assert errors.shape == (0, 3) and lengths.shape == (0, 2)
