"""The view of a map round a pose, against an integral and the reference Bayes' rule."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss

from kbf_localization.embeddings.posterior_weights import reference_posterior_weights
from kbf_localization.geometry import compose, embed
from kbf_localization.training_map import subset
from kbf_localization.training_map.learned import Readout, Resemblance
from kbf_localization.training_map.view import (
    MapViews,
    map_spacing,
    mean_pose,
    view_parameters,
)

NARROW = np.diag([0.15, 0.1, 0.05]) ** 2
SKEWED = np.array([[0.04, 0.01, 0.004], [0.01, 0.03, -0.002], [0.004, -0.002, 0.003]])


@pytest.fixture(scope="module")
def views(world_map):
    return MapViews(world_map, world_map.learned.resemblance)


@pytest.mark.parametrize("covariance", [NARROW, SKEWED])
def test_the_prior_is_the_integral_of_the_kernel_over_the_belief(world_map, views, covariance):
    """m_i = ∫ k_X(X_i, x) N(x) dx by quadrature on (x, y, heading), then β by a dense solve."""
    pose = compose(world_map.poses[40], [0.1, -0.1, 0.05])
    rows = np.argsort(np.linalg.norm(embed(world_map.poses) - embed(pose), axis=1))[:20]
    nodes, shares = hermegauss(16)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", shares, shares, shares).reshape(-1)
    weights = weights / weights.sum()
    samples = embed(pose + grid @ np.linalg.cholesky(covariance).T) / views.widths
    points = embed(world_map.poses[rows]) / views.widths

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1))

    means = kernel(points, samples) @ weights
    ridge = views.parameters.regularization * np.eye(20)
    expected = np.linalg.solve(kernel(points, points) + ridge, means)
    found = views._prior(points, pose, covariance)
    # Up to a factor; the heading's arc is taken for its tangent, which costs a percent or two.
    found, expected = found / found.sum(), expected / expected.sum()
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_the_posterior_is_the_reference_bayes_rule_on_the_same_rows(world_map, world_drive, views):
    for index in (20, 90, 160):
        pose = world_drive.poses[index]
        picture = world_map.observe(world_drive.views[index])
        view = views.look(picture, pose, NARROW, world_map.learned.readout)
        prior = views._prior(embed(world_map.poses[view.rows]) / views.widths, pose, NARROW)
        power = views.parameters.power
        gram = world_map.image_gram(view.rows) ** power
        likeness = picture.similarities(view.rows) ** power
        delta = views.parameters.delta * np.abs(prior).max() ** 2
        expected = reference_posterior_weights(prior, gram, likeness / likeness.max(), delta)
        expected = np.maximum(expected, 0.0)
        np.testing.assert_allclose(view.weights, expected / expected.sum(), atol=1e-8)
        assert view.weights.sum() == pytest.approx(1.0)


def test_the_measured_pose_is_the_mean_of_the_aligned_map_poses(world_map, world_drive, views):
    readout = world_map.learned.readout
    assert readout.known
    index = 90
    picture = world_map.observe(world_drive.views[index])
    view = views.look(picture, world_drive.poses[index], NARROW, readout)
    heaviest = np.argsort(-view.weights)[:3]
    aligned = picture.alignments(view.rows[heaviest])
    mix = view.weights[heaviest] / view.weights[heaviest].sum()
    features = np.column_stack((aligned.shift, aligned.zoom, np.ones(3)))
    offsets = features @ np.array(readout.coefficients).T
    poses = compose(world_map.poses[view.rows[heaviest]], offsets)
    np.testing.assert_allclose(view.pose[:2], mix @ poses[:, :2])
    directions = mix @ np.exp(1j * poses[:, 2])
    assert view.pose[2] == pytest.approx(np.angle(directions), abs=1e-3)
    contrast = mix @ picture.contrasts(view.rows[heaviest])
    assert view.contrast == pytest.approx(min(contrast, world_map.learned.resemblance.amplitude))


def test_pictures_are_placed_better_than_by_the_nearest_map_pose(world_map, world_drive, views):
    readout, known, plain = world_map.learned.readout, [], []
    none = Readout(((0.0,) * 3,) * 3, readout.log_variance, (0, 1), (0, 1), (0, 0, 0), 1.0, 1.0)
    for index in range(0, len(world_drive), 5):
        picture = world_map.observe(world_drive.views[index])
        for kept, one in ((known, readout), (plain, none)):
            view = views.look(picture, world_drive.poses[index], NARROW, one)
            kept.append(np.hypot(*(view.pose - world_drive.poses[index])[:2]))
    assert np.median(known) < np.median(plain)


def test_the_share_is_that_of_the_nearest_map_pose(world_map, views):
    resemblance = world_map.learned.resemblance
    offset = np.array([0.3, 0.1, 0.02])
    lone = MapViews(subset(world_map, np.array([7])), resemblance)
    pose = compose(world_map.poses[7], offset)
    picture = subset(world_map, np.array([7])).observe(world_map.description(7))
    view = lone.look(picture, pose, NARROW, world_map.learned.readout)
    scaled = offset / (resemblance.distance_m, resemblance.distance_m, resemblance.angle_rad)
    expected = np.exp(-(np.linalg.norm(scaled) ** resemblance.exponent))
    assert view.share == pytest.approx(expected)


def test_far_from_the_map_the_picture_tells_nothing(world_map, world_drive, views):
    far = np.array([500.0, 0.0, 0.0])
    picture = world_map.observe(world_drive.views[0])
    view = views.look(picture, far, NARROW, world_map.learned.readout)
    assert view.pose is None and view.ratio(world_map.learned.evidence) == 0.0


def test_hidden_rows_do_not_take_part(world_map, world_drive, views):
    pose, picture = world_drive.poses[50], world_map.observe(world_drive.views[50])
    readout = world_map.learned.readout
    seen = views.look(picture, pose, NARROW, readout)
    hidden = seen.rows[np.argsort(-seen.weights)[:4]]
    again = views.look(picture, pose, NARROW, readout, without=hidden)
    assert not np.isin(again.rows, hidden).any()
    assert np.isin(seen.rows, [*again.rows, *hidden]).all()


def test_parameters_are_read_by_their_names():
    assert view_parameters({"kbf.bandwidth": 0.7, "delta": 2.0, "nn.power": 1.0}).bandwidth == 0.7
    assert view_parameters({"delta": 2.0}).delta == 2.0
    assert view_parameters({"nn.power": 1.0}) == view_parameters({})


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
    resemblance = Resemblance(0.7, 2.0, 0.4, 1.4)
    separations = np.linspace(0.0, 1.9, 20)
    contrasts = 0.7 * np.exp(-(separations**1.4))
    np.testing.assert_allclose(resemblance.apparent(contrasts), separations, atol=1e-9)
    assert resemblance.apparent(-3.0) == pytest.approx(2.0)
    assert resemblance.apparent(9.0) == 0.0
