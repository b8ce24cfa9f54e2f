"""Sum rule and Bayes' rule on a corridor of map poses, against quadrature."""

from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.kernel_step import KernelStep, LocalKernelBayes, effective_cells
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.geometry import embed
from kbf_localization.training_map.calibration import SimilarityModel

SIMILARITY = SimilarityModel(amplitude=1.0, distance_m=1.0, angle_rad=0.5, exponent=2.0)
CORRIDOR = np.column_stack((np.arange(0.0, 12.0, 0.1), np.zeros((120, 2))))
WIDTH = 0.5


class CorridorView:
    """An image taken at `x`, similar to those within `WIDTH`; one at `twin` looks the same."""

    def __init__(self, poses, x, twin=None):
        places = [x] if twin is None else [x, twin]
        self.values = np.max(
            [np.exp(-0.5 * ((poses[:, 0] - place) / WIDTH) ** 2) for place in places], axis=0
        )

    def similarities(self, rows):
        return self.values[rows]

    def best_rows(self, count):
        return np.argsort(-self.values, kind="stable")[:count]


def local_of(poses, **parameters):
    plain = {"power": 1.0, "regularization": 1e-3, "rule": "plain"}
    return LocalKernelBayes(
        SimpleNamespace(poses=poses), SIMILARITY, BeliefParameters(**(plain | parameters))
    )


def component(x, sigma=0.2, number=1, heading=0.0):
    covariance = np.diag([sigma, 0.02, 0.02]) ** 2
    return Hypothesis.from_prior(np.array([x, 0.0, heading]), covariance, number)


def test_the_sum_rule_is_the_integral_of_the_kernel_over_the_gaussian():
    local = local_of(CORRIDOR)
    hypothesis = component(5.0)
    projection = KernelStep(local).project([hypothesis], CorridorView(CORRIDOR, 5.0), search=False)
    draws = np.random.default_rng(0).multivariate_normal(
        hypothesis.pose, hypothesis.covariance, 20_000
    )
    kernel = GaussianKernel(np.diag(local.widths**2))
    mean = KernelMean(embed(draws), None, kernel)
    expected = mean.evaluate(embed(CORRIDOR[projection.rows])) / kernel.at_zero()
    np.testing.assert_allclose(projection.means[:, 0], expected, atol=0.02)
    gram = kernel.gram(embed(CORRIDOR[projection.rows]), embed(CORRIDOR[projection.rows]))
    ridge = local.parameters.regularization * np.eye(len(gram))
    np.testing.assert_allclose(
        (gram / kernel.at_zero() + ridge) @ projection.weights, projection.means, atol=1e-9
    )


def test_coverage_is_one_on_the_map_and_falls_to_nothing_beside_it():
    step = KernelStep(local_of(CORRIDOR))
    places = [component(x, 0.01, k) for k, x in enumerate((5.0, 12.2, 13.0, 16.0))]
    coverage = step.project(places, CorridorView(CORRIDOR, 5.0), search=True).coverage
    assert coverage[0] == pytest.approx(1.0, abs=0.01)
    assert (np.diff(coverage) < 0.0).all()
    assert coverage[-1] < 1e-3


def test_the_posterior_mean_is_that_of_bayes_rule_by_quadrature():
    step = KernelStep(local_of(CORRIDOR))
    hypothesis = component(5.0, 0.3)
    view = CorridorView(CORRIDOR, 5.4)
    projection = step.project([hypothesis], view, search=False)
    prior = projection.weights[:, 0]
    alpha = local_of(CORRIDOR).posterior_weights(view, projection.rows, prior)
    grid = np.linspace(0.0, 12.0, 5000)
    density = np.exp(-0.5 * ((grid - 5.0) / 0.3) ** 2 - 0.5 * ((grid - 5.4) / WIDTH) ** 2)
    exact = (grid @ density) / density.sum()
    assert alpha @ CORRIDOR[projection.rows, 0] == pytest.approx(exact, abs=0.03)


def test_components_compete_as_bayes_rule_says():
    """Two places that look alike to a degree: the grid's posterior odds."""
    step = KernelStep(local_of(CORRIDOR))
    places = [component(3.0, 0.1, 1), component(8.0, 0.1, 2)]
    masses = np.array([0.6, 0.4])
    view = CorridorView(CORRIDOR, 3.5, twin=8.2)
    projection = step.project(places, view, search=False)
    found = step.bayes(projection, places, masses, 0.0, view, 0)
    grid = np.linspace(0.0, 12.0, 5000)
    likelihood = np.exp(-0.5 * np.minimum(np.abs(grid - 3.5), np.abs(grid - 8.2)) ** 2 / WIDTH**2)
    exact = masses * [
        np.exp(-0.5 * ((grid - x) / 0.1) ** 2) @ likelihood for x in (3.0, 8.0)
    ]  # fmt: skip
    np.testing.assert_allclose(found.after, exact / exact.sum(), atol=0.02)
    np.testing.assert_allclose(found.before / found.before.sum(), masses, atol=0.02)
    assert found.births == ()


def test_places_of_no_component_that_the_image_supports_are_births():
    step = KernelStep(local_of(CORRIDOR, power=8.0))
    places = [component(3.0, 0.05)]
    view = CorridorView(CORRIDOR, 9.0)
    projection = step.project(places, view, search=True)
    found = step.bayes(projection, places, np.array([0.9]), 0.1, view, 4)
    assert abs(found.births[0].pose[0] - 9.0) < 0.2
    assert found.births[0].weights.sum() == pytest.approx(1.0)
    near = [place for place in found.births if abs(place.pose[0] - 3.0) < 0.5]
    assert near == []


@pytest.mark.parametrize(("factor", "born"), [(0.5, True), (2.0, False)])
def test_a_component_lighter_than_the_map_prior_at_its_place_leaves_it_to_the_prior(factor, born):
    step = KernelStep(local_of(CORRIDOR, power=8.0))
    map_mass = 0.5
    cells = effective_cells(embed(CORRIDOR) / local_of(CORRIDOR).widths)
    weight = factor * map_mass / cells
    places = [component(9.0, 0.05).with_log_weight(np.log(weight))]
    view = CorridorView(CORRIDOR, 9.0)
    projection = step.project(places, view, search=True)
    found = step.bayes(projection, places, np.array([weight]), map_mass, view, 4)
    assert any(abs(place.pose[0] - 9.0) < 0.2 for place in found.births) == born


def test_the_map_prior_is_even_in_space_not_over_the_maps_poses():
    """A hundred poses at one place weigh no more than the few at another."""
    crowded = np.vstack((CORRIDOR[::5], np.tile(CORRIDOR[20], (100, 1))))
    step = KernelStep(local_of(crowded, regularization=1e-2))
    everywhere = SimpleNamespace(
        similarities=lambda rows: np.ones(len(rows)), best_rows=lambda _: np.arange(len(crowded))
    )
    projection = step.project([], everywhere, search=True)
    positions = crowded[projection.rows, 0]
    at_crowd = projection.even[np.abs(positions - 2.0) < 0.3].sum()
    alone = projection.even[np.abs(positions - 7.0) < 0.3].sum()
    assert 0.5 < at_crowd / alone < 2.0


@pytest.mark.parametrize("poses", [CORRIDOR[:1], np.repeat(CORRIDOR[:1], 2, axis=0)])
def test_a_map_of_one_place_has_one_cell(poses):
    step = KernelStep(local_of(poses))
    assert effective_cells(embed(poses)) == pytest.approx(1.0)
    view = CorridorView(poses, 0.0)
    projection = step.project([component(0.0)], view, search=True)
    found = step.bayes(projection, [component(0.0)], np.array([1.0]), 0.0, view, 4)
    np.testing.assert_allclose(found.after, [1.0])


def test_far_from_the_map_there_is_nothing_to_compare_with():
    step = KernelStep(local_of(CORRIDOR))
    far = [component(500.0)]
    projection = step.project(far, CorridorView(CORRIDOR, 5.0), search=False)
    assert len(projection.rows) == 0 and projection.coverage[0] == 0.0
    found = step.bayes(projection, far, np.array([1.0]), 0.0, CorridorView(CORRIDOR, 5.0), 4)
    assert found.births == () and found.after[0] == 0.0
