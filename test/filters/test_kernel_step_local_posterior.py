"""The local posterior round a pose, against an integral and the reference kernel Bayes' rule."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from kbf_localization.embeddings.bayes_rule import reference_posterior_weights
from kbf_localization.filters.kernel_step import LocalKernelBayes, mean_pose
from kbf_localization.filters.parameters import BeliefParameters, parameters_of
from kbf_localization.geometry import compose, embed
from kbf_localization.training_map import subset
from kbf_localization.training_map.calibration import RelativePoseModel, SimilarityModel
from kbf_localization.training_map.training_map import map_spacing
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.visual_words import pyramid_histogram
from test.filters.synthetic_world import SETTINGS

NARROW = np.diag([0.15, 0.1, 0.05]) ** 2
SKEWED = np.array([[0.04, 0.01, 0.004], [0.01, 0.03, -0.002], [0.004, -0.002, 0.003]])


@pytest.fixture(scope="module")
def kernel_step(world_map):
    return LocalKernelBayes(world_map, world_map.calibration.similarity)


@pytest.mark.parametrize("covariance", [NARROW, SKEWED])
def test_the_prior_is_the_integral_of_the_kernel_over_the_belief(
    world_map, kernel_step, covariance
):
    """m_i = ∫ k_X(X_i, x) N(x) dx by quadrature on (x, y, heading), then β by a dense solve."""
    pose = compose(world_map.poses[40], [0.1, -0.1, 0.05])
    rows = np.argsort(np.linalg.norm(embed(world_map.poses) - embed(pose), axis=1))[:20]
    nodes, masses = hermegauss(16)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", masses, masses, masses).reshape(-1)
    weights = weights / weights.sum()
    samples = embed(pose + grid @ np.linalg.cholesky(covariance).T) / kernel_step.widths
    points = embed(world_map.poses[rows]) / kernel_step.widths

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1))

    means = kernel(points, samples) @ weights
    ridge = kernel_step.parameters.regularization * np.eye(20)
    expected = np.linalg.solve(kernel(points, points) + ridge, means)
    found = kernel_step.project(rows, kernel_step.kernel_mean(rows, pose, covariance))
    # Up to a factor; the heading's arc is taken for its tangent, which costs a percent or two.
    found, expected = found / found.sum(), expected / expected.sum()
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_the_posterior_is_the_reference_bayes_rule_on_the_same_rows(
    world_map, world_drive, kernel_step
):
    for index in (20, 90, 160):
        pose = world_drive.poses[index]
        observation = world_map.observe(world_drive.views[index])
        posterior = kernel_step.posterior(
            observation, pose, NARROW, world_map.calibration.relative_pose
        )
        means = kernel_step.kernel_mean(posterior.rows, pose, NARROW)
        prior = kernel_step.project(posterior.rows, means)
        power = kernel_step.parameters.power
        gram = world_map.image_gram(posterior.rows) ** power
        similarity_power = observation.similarities(posterior.rows) ** power
        delta = kernel_step.parameters.delta * np.abs(prior).max() ** 2
        expected = reference_posterior_weights(
            prior, gram, similarity_power / similarity_power.max(), delta
        )
        expected = np.maximum(expected, 0.0)
        np.testing.assert_allclose(posterior.weights, expected / expected.sum(), atol=1e-8)
        assert posterior.weights.sum() == pytest.approx(1.0)


def test_the_measured_pose_is_the_mean_of_the_aligned_map_poses(
    world_map, world_drive, kernel_step
):
    relative_pose = world_map.calibration.relative_pose
    assert relative_pose.fitted
    index = 90
    observation = world_map.observe(world_drive.views[index])
    posterior = kernel_step.posterior(observation, world_drive.poses[index], NARROW, relative_pose)
    heaviest = np.argsort(-posterior.weights)[:3]
    aligned = observation.alignments(posterior.rows[heaviest])
    mix = posterior.weights[heaviest] / posterior.weights[heaviest].sum()
    features = np.column_stack((aligned.shift, aligned.zoom, np.ones(3)))
    offsets = features @ np.array(relative_pose.coefficients).T
    poses = compose(world_map.poses[posterior.rows[heaviest]], offsets)
    np.testing.assert_allclose(posterior.pose[:2], mix @ poses[:, :2])
    directions = mix @ np.exp(1j * poses[:, 2])
    assert posterior.pose[2] == pytest.approx(np.angle(directions), abs=1e-3)
    contrast = mix @ observation.contrasts(posterior.rows[heaviest])
    assert posterior.contrast == pytest.approx(
        min(contrast, world_map.calibration.similarity.amplitude)
    )


def test_alignment_improves_the_measured_pose(world_map, world_drive, kernel_step):
    relative_pose, aligned, plain = world_map.calibration.relative_pose, [], []
    none = RelativePoseModel(
        ((0.0,) * 3,) * 3, relative_pose.log_variance, (0, 1), (0, 1), (0, 0, 0), 1.0, 1.0
    )
    for index in range(0, len(world_drive), 5):
        observation = world_map.observe(world_drive.views[index])
        for errors, model in ((aligned, relative_pose), (plain, none)):
            posterior = kernel_step.posterior(observation, world_drive.poses[index], NARROW, model)
            errors.append(np.hypot(*(posterior.pose - world_drive.poses[index])[:2]))
    assert np.median(aligned) < np.median(plain)


def test_a_pose_without_alignments_is_measured_by_the_image_alone(world_map, world_drive):
    """Bayes' rule adds the prior once; a measured pose that had it in it would add it twice."""
    rows = np.arange(30, 42)
    lone = subset(world_map, rows)
    plain = BeliefParameters(rule="plain")
    kernel_step = LocalKernelBayes(lone, world_map.calibration.similarity, plain)
    none = RelativePoseModel(
        ((0.0,) * 3,) * 3, ((0.0,) * 3,) * 3, (0, 1), (0, 1), (0, 0, 0), 1.0, 1.0
    )
    observation = lone.observe(world_drive.views[35])
    wide = np.diag([5.0, 5.0, 2.0]) ** 2
    likelihood = observation.similarities(np.arange(12)) ** plain.power
    points = embed(lone.poses) / kernel_step.widths
    gram = np.exp(-0.5 * ((points[:, None] - points[None]) ** 2).sum(axis=-1))
    even = np.linalg.solve(gram + plain.regularization * np.eye(12), np.ones(12))
    weights = np.maximum(even * likelihood, 0.0)
    expected = weights / weights.sum() @ lone.poses[:, :2]
    for start in (lone.poses[0], lone.poses[6], lone.poses[11]):
        posterior = kernel_step.posterior(observation, start, wide, none)
        assert len(posterior.rows) == 12
        np.testing.assert_allclose(posterior.pose[:2], expected, atol=1e-6)


def test_the_coverage_is_the_similarity_expected_of_the_nearest_map_pose(world_map, kernel_step):
    similarity = world_map.calibration.similarity
    offset = np.array([0.3, 0.1, 0.02])
    lone = LocalKernelBayes(subset(world_map, np.array([7])), similarity)
    pose = compose(world_map.poses[7], offset)
    observation = subset(world_map, np.array([7])).observe(world_map.description(7))
    posterior = lone.posterior(observation, pose, NARROW, world_map.calibration.relative_pose)
    scaled = offset / (similarity.distance_m, similarity.distance_m, similarity.angle_rad)
    expected = np.exp(-(np.linalg.norm(scaled) ** similarity.exponent))
    assert posterior.coverage == pytest.approx(expected)


def test_far_from_the_map_an_image_carries_no_information(world_map, world_drive, kernel_step):
    far = np.array([500.0, 0.0, 0.0])
    observation = world_map.observe(world_drive.views[0])
    posterior = kernel_step.posterior(observation, far, NARROW, world_map.calibration.relative_pose)
    assert (
        posterior.pose is None
        and posterior.log_ratio(world_map.calibration.likelihood_ratio) == 0.0
    )


def test_hidden_rows_are_left_out(world_map, world_drive, kernel_step):
    pose, observation = world_drive.poses[50], world_map.observe(world_drive.views[50])
    relative_pose = world_map.calibration.relative_pose
    seen = kernel_step.posterior(observation, pose, NARROW, relative_pose)
    hidden = seen.rows[np.argsort(-seen.weights)[:4]]
    again = kernel_step.posterior(observation, pose, NARROW, relative_pose, without=hidden)
    assert not np.isin(again.rows, hidden).any()
    assert np.isin(seen.rows, [*again.rows, *hidden]).all()


def test_parameters_are_read_by_their_names():
    assert (
        parameters_of(
            BeliefParameters, "kbf", {"kbf.bandwidth": 0.7, "delta": 2.0, "nn.power": 1.0}
        ).bandwidth
        == 0.7
    )
    assert parameters_of(BeliefParameters, "kbf", {"delta": 2.0}).delta == 2.0
    assert parameters_of(BeliefParameters, "kbf", {"nn.power": 1.0}) == parameters_of(
        BeliefParameters, "kbf", {}
    )


def test_the_spacing_is_the_median_distance_to_the_third_neighbour():
    line = embed(np.column_stack((np.arange(50.0), np.zeros(50), np.zeros(50))))
    # Inside: neighbours at 1, 1, 2; the ends' third is at 3.
    assert map_spacing(line) == pytest.approx(2.0)
    assert map_spacing(line[:1]) == 1.0
    assert map_spacing(np.repeat(line[:1], 9, axis=0)) == 0.02


def test_headings_are_averaged_across_the_seam():
    poses = np.array([[0.0, 0.0, np.pi - 0.1], [1.0, 0.0, -np.pi + 0.1]])
    mean = mean_pose(poses, np.array([0.5, 0.5]), np.array([0.0, 0.0, 3.1]))
    np.testing.assert_allclose(mean[:2], [0.5, 0.0])
    assert abs(mean[2]) == pytest.approx(np.pi)


def test_the_apparent_separation_is_the_inverse_of_the_expected_contrast():
    similarity = SimilarityModel(0.7, 2.0, 0.4, 1.4)
    separations = np.linspace(0.0, 1.9, 20)
    contrasts = 0.7 * np.exp(-(separations**1.4))
    np.testing.assert_allclose(similarity.apparent_separation(contrasts), separations, atol=1e-9)
    assert similarity.apparent_separation(-3.0) == pytest.approx(2.0)
    assert similarity.apparent_separation(9.0) == 0.0


def test_an_image_without_structure_fits_nowhere(world_map, kernel_step):
    """Its patches are all one word, as of a lens behind a cap."""
    calibration = world_map.calibration
    for word in range(0, SETTINGS.words, 7):
        words = np.full(np.prod(SETTINGS.grid_shape), word)
        histogram = pyramid_histogram(words, SETTINGS)
        blank = world_map.observe(ImageDescription(histogram, words.astype(SETTINGS.word_type)))
        for pose in world_map.poses[::10]:
            found = kernel_step.posterior(blank, pose, NARROW, calibration.relative_pose)
            log_odds = found.log_odds(calibration.likelihood_ratio)
            assert log_odds == -calibration.likelihood_ratio.limit
