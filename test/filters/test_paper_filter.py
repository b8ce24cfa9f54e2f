import numpy as np
import pytest

from kbf_localization.embeddings.posterior_weights import reference_posterior_weights
from kbf_localization.events import Event
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.paper_filter import PaperFilter
from kbf_localization.filters.parameters import KernelParameters
from kbf_localization.geometry import embed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map import subset
from test.filters.synthetic_world import BLACK, position_errors, run


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


def test_active_and_exact_mode_agree_over_a_whole_drive(world_map, world_drive):
    active = run(PaperFilter(world_map), world_map, world_drive)
    exact = run(PaperFilter(world_map, exact=True), world_map, world_drive)
    for ours, reference in zip(active, exact, strict=True):
        expected = on_whole_map(reference.weights, 150)
        difference = on_whole_map(ours.weights, 150) - expected
        assert np.abs(difference).max() <= 1e-6 * np.abs(expected).max()
        np.testing.assert_array_equal(ours.highest_weight_pose, reference.highest_weight_pose)


def test_two_exact_steps_are_the_papers_formulas(world_map, world_drive):
    parameters = KernelParameters()
    pose_filter = PaperFilter(world_map, parameters, exact=True)
    run(pose_filter, world_map, world_drive)
    pose_filter.reset()
    observations = [world_map.observe(view) for view in world_drive.views[:2]]
    first = pose_filter.step(None, observations[0])
    second = pose_filter.step(world_drive.motions[0], observations[1])

    points = embed(world_map.poses)
    covariance = np.diag(pose_filter.space.widths**2)
    noise = np.diag(world_map.motion_variances * parameters.noise_inflation)

    def density(a, b, spread):
        offsets = a[:, None] - b[None]
        exponent = np.einsum("ijk,kl,ijl->ij", offsets, np.linalg.inv(spread), offsets)
        return np.exp(-0.5 * exponent) / np.sqrt(np.linalg.det(2.0 * np.pi * spread))

    gram = density(points, points, covariance)
    ridge = parameters.regularization * gram[0, 0] * np.eye(150)
    image_gram = world_map.image_gram(np.arange(150)) ** parameters.power

    def update(prior, observation):
        likeness = observation.similarities() ** parameters.power
        delta = parameters.delta * np.abs(prior).max() ** 2
        weights = reference_posterior_weights(prior, image_gram, likeness / likeness.max(), delta)
        return weights / weights.sum()

    alpha = update(np.full(150, 1.0 / 150), observations[0])
    np.testing.assert_allclose(on_whole_map(first.weights, 150), alpha, atol=1e-9)
    moved = transition(world_map.poses, world_drive.motions[0])
    beta = np.linalg.solve(gram + ridge, density(points, moved, covariance + noise) @ alpha)
    alpha = update(beta / beta.sum(), observations[1])
    np.testing.assert_allclose(on_whole_map(second.weights, 150), alpha, atol=1e-8)


def test_tracks_a_drive_from_anywhere(world_map, world_drive):
    estimates = run(PaperFilter(world_map), world_map, world_drive)
    errors = position_errors(estimates, world_drive.poses)
    assert np.median(errors) < 0.3
    assert np.mean(errors[20:] > 1.0) < 0.02


def test_weights_sum_to_one_and_the_active_set_is_a_part_of_the_map(world_map, world_drive):
    estimates = run(PaperFilter(world_map), world_map, world_drive)
    for estimate in estimates:
        assert estimate.weights.values.sum() == pytest.approx(1.0, abs=1e-9)
        assert (np.linalg.eigvalsh(estimate.covariance) > 0).all()
    assert np.median([len(one.weights.rows) for one in estimates]) < 75


def test_starts_from_a_given_pose(world_map, world_drive):
    pose_filter = PaperFilter(world_map)
    truth = world_drive.poses[100]
    pose_filter.reset(GaussianPrior(truth, np.diag([0.1, 0.1, 0.1]) ** 2))
    first = pose_filter.step(None, world_map.observe(world_drive.views[100]))
    assert np.hypot(*(first.pose - truth)[:2]) < 0.5
    assert len(first.weights.rows) < 150


def test_a_black_image_keeps_the_prediction_and_is_counted(world_map, world_drive):
    pose_filter = PaperFilter(world_map)
    before = run(pose_filter, world_map, world_drive)[-1]
    black = pose_filter.step(np.zeros(3), world_map.observe(BLACK))
    assert black.events == (Event.UNRECOGNIZED_IMAGE,)
    assert np.hypot(*(black.pose - before.pose)[:2]) < 0.3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_similarities_that_are_not_finite_are_counted_and_harmless(world_map, world_drive, value):
    pose_filter = PaperFilter(world_map)
    run(pose_filter, world_map, world_drive)
    estimate = pose_filter.step(np.zeros(3), Given(np.full(150, value)))
    assert np.isfinite(estimate.pose).all() and np.isfinite(estimate.covariance).all()
    assert estimate.events == (Event.UNRECOGNIZED_IMAGE,)


@pytest.mark.parametrize(
    "motion", [None, np.full(3, np.nan), np.array([40.0, 0.0, 0.0]), np.array([0.0, 0.0, 3.0])]
)
def test_stays_finite_whatever_the_odometry_says(world_map, world_drive, motion):
    pose_filter = PaperFilter(world_map)
    run(pose_filter, world_map, world_drive)
    for _ in range(3):
        estimate = pose_filter.step(motion, world_map.observe(world_drive.views[0]))
        assert np.isfinite(estimate.pose).all()
        assert np.isfinite(estimate.weights.values).all()
        assert estimate.weights.values.sum() == pytest.approx(1.0)


def test_a_jump_off_the_map_is_counted(world_map, world_drive):
    pose_filter = PaperFilter(world_map)
    run(pose_filter, world_map, world_drive)
    observation = world_map.observe(world_drive.views[0])
    assert (
        Event.PREDICTION_OFF_MAP in pose_filter.step(np.array([90.0, 0.0, 0.0]), observation).events
    )


def test_a_map_of_one_pose_works(world_map, world_drive):
    single = subset(world_map, np.array([7]))
    estimates = run(PaperFilter(single), single, world_drive)
    np.testing.assert_allclose(estimates[0].pose, single.poses[0])
    assert np.isfinite([one.pose for one in estimates]).all()


def test_says_the_same_for_the_same_input(world_map, world_drive):
    first, second = (
        [one.pose for one in run(PaperFilter(world_map), world_map, world_drive)] for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
