"""The calibration, against models planted in the data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.mapping.held_out import path_lengths_of, runs_along
from kbf_localization.mapping.regression import (
    fit_correlation,
    fit_likelihood_ratio,
    fit_similarity,
    fit_variances,
    robust_ridge,
)
from kbf_localization.training_map.calibration import (
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from test.conftest import learning_quickly
from test.filters.synthetic_world import FIELD_OF_VIEW, World, drive, loop, map_of

START = SimilarityModel(0.8, 3.0, 0.5, 1.5)


@pytest.mark.parametrize(
    "planted",
    [
        SimilarityModel(0.85, 1.9, 0.45, 1.5),
        SimilarityModel(0.3, 0.4, 0.2, 1.1),
        SimilarityModel(1.5, 6.0, 0.9, 1.9),
    ],
)
def test_a_planted_similarity_model_is_recovered_despite_outliers(planted):
    generator = np.random.default_rng(0)
    distances = generator.uniform(0.0, 1.6 * planted.distance_m, 4000)
    angles = generator.uniform(0.0, 1.5 * planted.angle_rad, 4000)
    separation = np.hypot(distances / planted.distance_m, angles / planted.angle_rad)
    contrasts = planted.amplitude * np.exp(-(separation**planted.exponent))
    contrasts += generator.normal(0.0, 0.05 * planted.amplitude, 4000)
    wild = generator.random(4000) < 0.02
    contrasts[wild] += generator.normal(0.0, planted.amplitude, wild.sum())
    found = fit_similarity(distances, angles, contrasts, START, extent=20.0)
    assert found.amplitude == pytest.approx(planted.amplitude, rel=0.03)
    assert found.distance_m == pytest.approx(planted.distance_m, rel=0.05)
    assert found.angle_rad == pytest.approx(planted.angle_rad, rel=0.05)
    assert found.exponent == pytest.approx(planted.exponent, rel=0.05)


def places(count, right, generator):
    """Features of two normal classes, whose log-likelihood ratio is known in closed form.

    Contrast and prominence are N(s² μ, σ²) at right places and N(0, σ²) at wrong ones, s being the
    coverage.
    """
    coverage = generator.uniform(0.6, 1.0, count)
    contrast = generator.normal(0.5 * coverage**2 * right, 0.3)
    prominence = generator.normal(0.2 * coverage**2 * right, 0.15)
    return np.column_stack((contrast, prominence, coverage))


def true_ratio(features):
    contrast, prominence, coverage = features.T
    linear = 0.5 / 0.3**2 * contrast + 0.2 / 0.15**2 * prominence
    return coverage**2 * (linear - 0.5 * coverage**2 * (0.5**2 / 0.3**2 + 0.2**2 / 0.15**2))


@pytest.fixture(scope="module")
def fitted():
    generator = np.random.default_rng(1)
    right, wrong = (places(4000, label, generator) for label in (1.0, 0.0))
    return fit_likelihood_ratio([tuple(row) for row in right], [tuple(row) for row in wrong], [])


def test_evidence_is_the_log_likelihood_ratio(fitted):
    features = places(2000, 1.0, np.random.default_rng(2))
    found, expected = fitted.log_ratio(*features.T), true_ratio(features)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.15 * expected.std()


def test_predicted_probabilities_are_the_observed_frequencies(fitted):
    """In ten bins of new examples, half of them right, to three standard errors and 0.01."""
    generator = np.random.default_rng(3)
    features = np.vstack([places(20000, right, generator) for right in (1.0, 0.0)])
    label = np.repeat((1.0, 0.0), 20000)
    predicted = 1.0 / (1.0 + np.exp(-fitted.log_ratio(*features.T)))
    edges = np.quantile(predicted, np.linspace(0.0, 1.0, 11)[1:-1])
    bins = np.searchsorted(edges, predicted)
    for number in range(10):
        own = bins == number
        error = np.sqrt(predicted[own].mean() * (1.0 - predicted[own].mean()) / own.sum())
        assert abs(label[own].mean() - predicted[own].mean()) < 3.0 * error + 0.01


def test_no_evidence_beyond_the_number_of_examples():
    right, wrong = [(1.0, 1.0, 1.0)] * 100, [(0.0, 0.0, 1.0)] * 100
    found = fit_likelihood_ratio(right, wrong, [])
    assert found.log_ratio(50.0, 50.0, 1.0) == pytest.approx(np.log(102.0))
    assert found.log_ratio(-50.0, -50.0, 1.0) == pytest.approx(-np.log(102.0))
    assert fit_likelihood_ratio(right[:5], wrong, []).log_ratio(1.0, 1.0, 1.0) == 0.0


def test_evidence_without_coverage_is_zero(fitted):
    assert fitted.log_ratio(3.0, 1.0, 0.0) == 0.0


@pytest.mark.parametrize("distance", [0.01, 0.1, 0.5, 2.0])
def test_the_information_fraction_is_what_a_further_ar1_sample_adds(distance):
    """1ᵀ Σ⁻¹ 1 of AR(1) errors, Σ_ij = ρ^|i−j|, grows by that with each sample."""
    evidence = LikelihoodRatioModel(1.0, 1.0, 0.0, 0.0, 5.0, 0.4, 1.0, 0.0)
    correlation = np.exp(-distance / 0.4)

    def information(count):
        between = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
        return np.linalg.inv(correlation**between).sum()

    assert evidence.information_fraction(distance) == pytest.approx(
        information(21) - information(20), rel=1e-6
    )


@pytest.mark.parametrize(("length", "fraction"), [(0.3, 1.0), (0.8, 0.5)])
def test_correlation_length_and_ar1_fraction_are_recovered(length, fraction):
    """An AR(1) process beside white noise: the correlation is a · exp(−distance/ℓ)."""
    generator = np.random.default_rng(5)
    step, count = 0.1, 40_000
    kept = np.exp(-step / length)
    correlated = lfilter([np.sqrt(1.0 - kept**2)], [1.0, -kept], generator.normal(size=count))
    errors = np.sqrt(fraction) * correlated
    errors += np.sqrt(1.0 - fraction) * generator.normal(size=count)
    lags = np.arange(1, 15)
    correlations = np.array([np.mean(errors[lag:] * errors[:-lag]) for lag in lags])
    found = fit_correlation(step * lags, correlations, 5.0)
    # 40,000 steps are some 2,000 independent samples; the grid's lengths are 6 % apart.
    assert found == pytest.approx((length, fraction), rel=0.15)


def test_the_ridge_recovers_a_planted_line_despite_outliers():
    generator = np.random.default_rng(4)
    features = np.column_stack((generator.normal(size=(800, 2)), np.ones(800)))
    planted = np.array([[0.5, -2.0, 0.3], [1.0, 0.0, -0.1]])
    targets = features @ planted.T + generator.normal(0.0, 0.02, (800, 2))
    np.testing.assert_allclose(robust_ridge(features, targets), planted, atol=0.01)
    targets[::10] += 5.0
    np.testing.assert_allclose(robust_ridge(features, targets), planted, atol=0.02)


def test_planted_variances_are_recovered():
    """Student's errors whose log variance falls with prominence and grows with separation."""
    generator = np.random.default_rng(5)
    prominence, apparent = generator.uniform(0.1, 0.6, 6000), generator.uniform(0.0, 1.5, 6000)
    planted = np.array([[-2.0, -3.0, 0.8], [-3.0, -1.0, 1.0], [-5.0, -2.0, 0.5]])
    quality = np.column_stack((np.ones(6000), prominence, apparent))
    variances = np.exp(quality @ planted.T)
    # Student's with four degrees of freedom has twice the variance of its squared scale.
    errors = generator.standard_t(4.0, (6000, 3)) * np.sqrt(0.5 * variances)
    none = RelativePoseModel(
        ((0.0,) * 3,) * 3, ((0.0,) * 3,) * 3, (0, 1), (0, 1), (0, 0, 0), 1.0, 1.0
    )
    found = fit_variances(none, errors, prominence, apparent, np.array([1.0, 1.0, 0.5]))
    inside = (np.abs(prominence - 0.35) < 0.2) & (np.abs(apparent - 0.75) < 0.6)
    ratio = found.variances(prominence, apparent)[inside] / variances[inside]
    np.testing.assert_allclose(ratio, 1.0, atol=0.25)


def test_a_shift_reads_as_a_turn_by_the_cameras_field_of_view(world_map):
    """A shift by the image's whole width is a turn by the field of view."""
    heading = world_map.calibration.relative_pose.coefficients[2]
    assert abs(heading[0]) == pytest.approx(FIELD_OF_VIEW, rel=0.15)
    # A magnified image is taken from further ahead.
    assert abs(world_map.calibration.relative_pose.coefficients[0][1]) > 1.0


@pytest.fixture(scope="module")
def two_drives(world):
    return [drive(world, loop(300, wobble=0.05 * k), 20 + k) for k in range(2)]


@pytest.fixture(scope="module")
def calibrated(two_drives):
    """The calibration of a map of 100 poses of these drives."""
    with learning_quickly():
        return map_of(two_drives, 100).calibration


@pytest.mark.usefixtures("quick_learning")
def test_drives_of_the_same_place_are_revisits_one_pass_is_none(world, world_map):
    assert world_map.calibration.revisits and world_map.calibration.drives == 2
    once = map_of([drive(world, loop(300), 1)], 100)
    assert not once.calibration.revisits and once.calibration.drives == 1
    twice = map_of([drive(world, loop(600, turns=2.0), 1)], 200)
    assert twice.calibration.revisits


def test_other_drives_give_similar_scales(calibrated, world_map):
    by_others = world_map.calibration.similarity
    assert calibrated.similarity.distance_m == pytest.approx(by_others.distance_m, rel=0.4)
    assert calibrated.similarity.angle_rad == pytest.approx(by_others.angle_rad, rel=0.3)


@pytest.mark.usefixtures("quick_learning")
def test_the_calibration_scales_with_the_world(two_drives, calibrated):
    """The world twice as large: d₀ doubles, angles stay, and so does the evidence."""
    larger = [
        replace(d, poses=d.poses * (2.0, 2.0, 1.0), motions=d.motions * (2.0, 2.0, 1.0))
        for d in two_drives
    ]
    large = map_of(larger, 100).calibration
    ratio = large.similarity.distance_m / calibrated.similarity.distance_m
    assert ratio == pytest.approx(2.0, rel=0.1)
    assert large.similarity.angle_rad == pytest.approx(calibrated.similarity.angle_rad, rel=0.1)


def test_probes_are_spread_over_the_path():
    poses = np.column_stack((np.linspace(0.0, 30.0, 400), np.zeros((400, 2))))
    one_drive = np.zeros(400, dtype=np.intp)
    path_lengths = path_lengths_of(poses, one_drive)
    np.testing.assert_allclose(path_lengths[-1], [30.0, 0.0])
    runs = runs_along(path_lengths, one_drive, 0.3)
    starts = poses[[run[0] for run in runs], 0]
    assert len(runs) == 24 and np.diff(starts).max() < 30.0 / 20
    steps = [np.diff(poses[run, 0]) for run in runs if len(run) > 1]
    np.testing.assert_allclose(np.concatenate(steps), 0.15, atol=30.0 / 400)


def test_a_map_is_calibrated_on_its_own_poses(world_map):
    found = calibrate_from_map(world_map)
    calibrated = world_map.calibration.similarity
    assert found.similarity.distance_m == pytest.approx(calibrated.distance_m, rel=0.5)
    assert found.relative_pose.fitted


def test_evidence_is_negative_in_another_world(world_map):
    """Evidence at the best match: positive for this hall, negative for another one."""
    from kbf_localization.filters.kernel_step import LocalKernelBayes

    calibration = world_map.calibration
    kernel_step = LocalKernelBayes(world_map, calibration.similarity)
    covariance = np.diag((0.1 * calibration.similarity.scales) ** 2)

    def best(world):
        ratios = []
        for view in drive(world, loop(60, wobble=0.02), 77).views:
            observation = world_map.observe(view)
            pose = world_map.poses[observation.best_rows(1)[0]]
            ratios.append(
                kernel_step.posterior(
                    observation, pose, covariance, calibration.relative_pose
                ).log_ratio(calibration.likelihood_ratio)
            )
        return np.array(ratios)

    assert np.mean(best(World()) > 0.0) > 0.9
    assert np.mean(best(World(seed=5)) < 0.0) > 0.9
