from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from kbf_localization.embeddings.bayes_rule import FORMS, reference_posterior_weights
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.paper_filter import PoseKernelBayesFilter
from kbf_localization.filters.parameters import ImportanceWeightedParameters, KernelParameters
from kbf_localization.geometry import embed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map import subset
from test.filters.synthetic_world import BLACK, position_errors, run

STEEP = KernelParameters(power=12.0, delta=0.5, noise_inflation=6.0)
"""A steep image kernel: beliefs stay within a small part of the map."""


def on_whole_map(weights, count):
    whole = np.zeros(count)
    whole[weights.rows] = weights.values
    return whole


class Given:
    """An observation whose similarities are given."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def similarities(self, rows=None):
        return self.values if rows is None else self.values[rows]


@pytest.fixture(scope="module")
def replay(world_map, world_drive):
    """Replays of the drive by parameters, each made once."""

    @cache
    def replayed(parameters):
        return run(PoseKernelBayesFilter(world_map, parameters), world_map, world_drive)

    return replayed


@pytest.fixture
def tracking(world_map, world_drive):
    """A filter that has a pose: after one image near a given pose."""
    pose_filter = PoseKernelBayesFilter(world_map)
    pose_filter.reset(GaussianPrior(world_drive.poses[100], np.diag([0.1, 0.1, 0.1]) ** 2))
    pose_filter.step(None, world_map.observe(world_drive.views[100]))
    return pose_filter


class Formulas:
    """Algorithm 1 in dense NumPy, on the whole map."""

    def __init__(self, training_map, pose_filter, parameters):
        self.map, self.parameters, self.form = training_map, parameters, parameters.rule
        self.points = embed(training_map.poses)
        self.covariance = np.diag(pose_filter.space.widths**2)
        self.noise = np.diag(training_map.motion_variances * parameters.noise_inflation)
        count = len(self.points)
        self.image_gram = training_map.image_gram(np.arange(count)) ** parameters.power
        gram = self.density(self.points, self.covariance)
        self.system = gram + parameters.regularization * gram[0, 0] * np.eye(count)

    def density(self, centres, spread):
        offsets = self.points[:, None] - centres[None]
        exponent = np.einsum("ijk,kl,ijl->ij", offsets, np.linalg.inv(spread), offsets)
        return np.exp(-0.5 * exponent) / np.sqrt(np.linalg.det(2.0 * np.pi * spread))

    def prior(self, centres, weights, noise):
        """β of Gaussians with covariance `noise` round embedded centres, normalized."""
        values = self.density(centres, self.covariance + noise) @ weights
        beta = np.linalg.solve(self.system, values)
        return beta / beta.sum()

    def posterior(self, prior, observation):
        likeness = observation.similarities() ** self.parameters.power
        size = np.abs(prior).max()
        delta = self.parameters.delta * (size**2 if self.form == "original" else size)
        weights = reference_posterior_weights(
            prior, self.image_gram, likeness / likeness.max(), delta, self.form
        )
        return weights / weights.sum()


def test_a_whole_drive_is_filtered_by_the_papers_formulas(world_map, world_drive, replay):
    parameters = KernelParameters()
    formulas = Formulas(world_map, PoseKernelBayesFilter(world_map), parameters)
    moved, alpha, noise = formulas.points, np.full(150, 1.0 / 150), np.zeros((4, 4))
    for index, estimate in enumerate(replay(parameters)):
        if index:
            moved = transition(world_map.poses, world_drive.motions[index - 1])
            noise = formulas.noise
        observation = world_map.observe(world_drive.views[index])
        alpha = formulas.posterior(formulas.prior(moved, alpha, noise), observation)
        size = np.abs(alpha).max()
        np.testing.assert_allclose(on_whole_map(estimate.weights, 150), alpha, atol=1e-6 * size)
        np.testing.assert_array_equal(
            estimate.highest_weight_pose, world_map.poses[int(np.argmax(alpha))]
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", [1.0, 12.0])
def test_steps_are_the_papers_formulas(world_map, world_drive, form, power):
    parameters = KernelParameters(power=power, noise_inflation=6.0, rule=form)
    pose_filter = PoseKernelBayesFilter(world_map, parameters)
    pose_filter.step(None, world_map.observe(world_drive.views[40]))
    pose_filter.reset()
    formulas = Formulas(world_map, pose_filter, parameters)
    # Initial prior sampling: the map's poses, from which β is solved for as in every step.
    moved, alpha, noise = formulas.points, np.full(150, 1.0 / 150), np.zeros((4, 4))
    motions = [None, *world_drive.motions[:3]]
    for index, motion in enumerate(motions):
        observation = world_map.observe(world_drive.views[index])
        if motion is not None:
            moved, noise = transition(world_map.poses, motion), formulas.noise
        alpha = formulas.posterior(formulas.prior(moved, alpha, noise), observation)
        estimate = pose_filter.step(motion, observation)
        size = np.abs(alpha).max()
        np.testing.assert_allclose(on_whole_map(estimate.weights, 150), alpha, atol=1e-6 * size)


def test_a_given_pose_gets_no_noise_at_the_first_step_and_some_where_motion_is_missing(
    world_map, world_drive
):
    parameters = KernelParameters()
    pose_filter = PoseKernelBayesFilter(world_map, parameters)
    formulas = Formulas(world_map, pose_filter, parameters)
    given, observation = world_drive.poses[50], world_map.observe(world_drive.views[50])
    start = embed(given)[None]
    unknown = 0.25 * formulas.covariance  # half a kernel width

    def first_step(*motion):
        pose_filter.reset(GaussianPrior(given, 1e-18 * np.eye(3)))
        estimates = [pose_filter.step(item, observation) for item in motion]
        return on_whole_map(estimates[-1].weights, 150)

    expected = formulas.posterior(formulas.prior(start, [1.0], np.zeros((4, 4))), observation)
    size = np.abs(expected).max()
    np.testing.assert_allclose(first_step(None), expected, atol=1e-6 * size)
    # Motion that is measured before the first image counts; NaN is a motion that is not known.
    moved = transition(given, world_drive.motions[50])[None]
    by_motion = formulas.posterior(formulas.prior(moved, [1.0], formulas.noise), observation)
    np.testing.assert_allclose(first_step(world_drive.motions[50]), by_motion, atol=1e-6 * size)
    wide = formulas.posterior(formulas.prior(start, [1.0], unknown), observation)
    np.testing.assert_allclose(first_step(np.full(3, np.nan)), wide, atol=1e-6 * size)
    second = formulas.prior(formulas.points, expected, unknown)
    np.testing.assert_allclose(
        first_step(None, None), formulas.posterior(second, observation), atol=1e-5 * size
    )


@pytest.mark.parametrize(("poses", "samples"), [(150, 150), (7, 100)])
def test_as_many_samples_of_a_prior_are_drawn_as_the_map_has_poses(world_map, poses, samples):
    part = subset(world_map, np.arange(poses))
    pose_filter = PoseKernelBayesFilter(part)
    drawn = pose_filter._samples(GaussianPrior(np.zeros(3), 0.01 * np.eye(3)))
    assert drawn.shape == (samples, 4)


@pytest.mark.parametrize(
    ("parameters", "median_m"),
    [
        (KernelParameters(), 0.6),
        (ImportanceWeightedParameters(), 0.6),
        (STEEP, 0.3),
        (replace(STEEP, rule="importance-weighted"), 0.4),
        (replace(STEEP, rule="plain"), 0.3),
    ],
)
def test_tracks_a_drive_from_anywhere(replay, world_drive, parameters, median_m):
    errors = position_errors(replay(parameters), world_drive.poses)
    assert np.median(errors) < median_m
    assert np.mean(errors[60:] > 2.0) < 0.02


def test_weights_sum_to_one_and_the_active_set_is_a_part_of_the_map(replay):
    estimates = replay(STEEP)
    for estimate in estimates:
        assert estimate.weights.values.sum() == pytest.approx(1.0, abs=1e-9)
        assert (np.linalg.eigvalsh(estimate.covariance) > 0).all()
    assert np.median([len(item.weights.rows) for item in estimates]) < 75


def test_starts_from_a_given_pose(world_map, world_drive):
    pose_filter = PoseKernelBayesFilter(world_map)
    truth = world_drive.poses[100]
    pose_filter.reset(GaussianPrior(truth, np.diag([0.1, 0.1, 0.1]) ** 2))
    first = pose_filter.step(None, world_map.observe(world_drive.views[100]))
    assert np.hypot(*(first.pose - truth)[:2]) < 0.5
    assert len(first.weights.rows) < 150


def test_a_black_image_keeps_the_prediction_and_is_counted(tracking, world_map, world_drive):
    before = tracking.step(np.zeros(3), world_map.observe(world_drive.views[100]))
    black = tracking.step(np.zeros(3), world_map.observe(BLACK))
    assert black.events == (Event.UNRECOGNIZED_IMAGE,)
    assert np.hypot(*(black.pose - before.pose)[:2]) < 0.3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_similarities_that_are_not_finite_are_counted_and_harmless(tracking, value):
    estimate = tracking.step(np.zeros(3), Given(np.full(150, value)))
    assert np.isfinite(estimate.pose).all() and np.isfinite(estimate.covariance).all()
    assert estimate.events == (Event.UNRECOGNIZED_IMAGE,)


@pytest.mark.parametrize(
    "motion", [None, np.full(3, np.nan), np.array([40.0, 0.0, 0.0]), np.array([0.0, 0.0, 3.0])]
)
def test_stays_finite_whatever_the_odometry_says(tracking, world_map, world_drive, motion):
    for _ in range(3):
        estimate = tracking.step(motion, world_map.observe(world_drive.views[0]))
        assert np.isfinite(estimate.pose).all()
        assert np.isfinite(estimate.weights.values).all()
        assert estimate.weights.values.sum() == pytest.approx(1.0)


def test_a_jump_off_the_map_is_counted(tracking, world_map, world_drive):
    estimate = tracking.step(np.array([90.0, 0.0, 0.0]), world_map.observe(world_drive.views[0]))
    assert Event.PREDICTION_OFF_MAP in estimate.events


def test_a_map_of_one_pose_works(world_map, world_drive):
    single = subset(world_map, np.array([7]))
    estimates = run(PoseKernelBayesFilter(single), single, world_drive)
    np.testing.assert_allclose(estimates[0].pose, single.poses[0])
    assert np.isfinite([estimate.pose for estimate in estimates]).all()


def test_says_the_same_for_the_same_input(replay, world_map, world_drive):
    again = run(PoseKernelBayesFilter(world_map), world_map, world_drive)
    poses = (
        [estimate.pose for estimate in estimates]
        for estimates in (replay(KernelParameters()), again)
    )
    # To rounding: a threaded BLAS need not sum in the same order twice.
    np.testing.assert_allclose(*poses, rtol=0.0, atol=1e-9)
