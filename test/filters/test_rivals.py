import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.parameters import (
    SEARCH_RANGES,
    FilterParameters,
    parameters_of,
    random_parameters,
    stored_form,
)
from kbf_localization.filters.registry import METHODS, check_methods, make_filter
from test.filters.synthetic_world import World, drive, loop, position_errors, run, synthetic_map


@pytest.fixture(scope="module")
def world_map():
    return synthetic_map(World(), 120)


@pytest.fixture(scope="module")
def test_drive():
    return drive(World(), loop(200, wobble=-0.1), seed=5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_follows_a_drive(world_map, test_drive, method):
    estimates = run(make_filter(method, world_map), world_map, test_drive)
    errors = position_errors(estimates, test_drive.poses)
    assert np.median(errors) < 0.5
    assert all(np.linalg.eigvalsh(one.covariance).min() > 0 for one in estimates)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stays_finite_under_bad_input(world_map, test_drive, method):
    pose_filter = make_filter(method, world_map)
    pose_filter.reset(GaussianPrior(test_drive.poses[0], 0.04 * np.eye(3)))
    black = world_map.observe(np.zeros_like(test_drive.views[0]))
    motions = [None, np.full(3, np.nan), np.array([50.0, 0.0, 0.0]), np.zeros(3)]
    for motion in motions:
        for observation in (black, world_map.observe(test_drive.views[0])):
            estimate = pose_filter.step(motion, observation)
            assert np.isfinite(estimate.pose).all()
            assert np.isfinite(estimate.covariance).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_poses(world_map, test_drive, method):
    first, second = (
        [one.pose for one in run(make_filter(method, world_map, seed=3), world_map, test_drive)]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_the_nearest_image_is_the_most_similar_one(world_map):
    estimate = make_filter("nai", world_map).step(None, world_map.observe(world_map.histograms[9]))
    np.testing.assert_array_equal(estimate.pose, world_map.poses[9])


def test_an_unknown_method_is_named(world_map):
    with pytest.raises(ParameterError, match="amcl"):
        make_filter("amcl", world_map)
    with pytest.raises(ParameterError, match="amcl"):
        check_methods("kbf,amcl")
    assert check_methods(" kbf, nn,kbf") == ["kbf", "nn"]


def test_parameters_survive_the_map(world_map):
    parameters = FilterParameters(bandwidth=0.9, mixing=0.0)
    assert parameters_of(FilterParameters, "kbf", stored_form("kbf", parameters)) == parameters
    assert make_filter("kbf", world_map, {"bandwidth": 0.9}).parameters.bandwidth == 0.9


@pytest.mark.parametrize("bad", [{"bandwidth": 0.0}, {"delta": np.nan}, {"mixing": -0.1}])
def test_impossible_parameters_are_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        FilterParameters(**bad)


@pytest.mark.parametrize("method", METHODS)
def test_draws_stay_in_their_ranges_and_make_filters(world_map, method):
    drawn = random_parameters(method, np.random.default_rng(0))
    for name, value in drawn.items():
        low, high = SEARCH_RANGES[method][name]
        assert low <= value <= high
    make_filter(method, world_map, drawn)
