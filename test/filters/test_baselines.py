from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.methods import METHODS, check_methods
from kbf_localization.filters.parameters import (
    SEARCH_RANGES,
    KernelParameters,
    parameters_of,
    random_parameters,
)
from kbf_localization.filters.registry import make_filter
from test.filters.synthetic_world import BLACK, position_errors, run


@pytest.mark.parametrize("method", METHODS)
def test_every_method_follows_a_drive(world_map, world_drive, method):
    estimates = run(make_filter(method, world_map), world_map, world_drive)
    errors = position_errors(estimates, world_drive.poses)
    assert np.median(errors) < 0.5
    assert all(np.linalg.eigvalsh(estimate.covariance).min() > 0 for estimate in estimates)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stays_finite_under_bad_input(world_map, world_drive, method):
    pose_filter = make_filter(method, world_map)
    pose_filter.reset(GaussianPrior(world_drive.poses[0], 0.04 * np.eye(3)))
    black = world_map.observe(BLACK)
    motions = [None, np.full(3, np.nan), np.array([50.0, 0.0, 0.0]), np.zeros(3)]
    for motion in motions:
        for observation in (black, world_map.observe(world_drive.views[0])):
            estimate = pose_filter.step(motion, observation)
            assert np.isfinite(estimate.pose).all()
            assert np.isfinite(estimate.covariance).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_poses(world_map, world_drive, method):
    first, second = (make_filter(method, world_map, seed=3) for _ in range(2))
    motion = None
    for index in range(25):
        observation = world_map.observe(world_drive.views[index])
        poses = [item.step(motion, observation).pose for item in (first, second)]
        np.testing.assert_array_equal(*poses)
        motion = world_drive.motions[index]


def test_the_nearest_image_is_the_most_similar_one(world_map):
    estimate = make_filter("nai", world_map).step(None, world_map.observe(world_map.description(9)))
    np.testing.assert_array_equal(estimate.pose, world_map.poses[9])


def test_an_unknown_method_is_named(world_map):
    with pytest.raises(ParameterError, match="amcl"):
        make_filter("amcl", world_map)
    with pytest.raises(ParameterError, match="amcl"):
        check_methods("kbf,amcl")
    assert check_methods(" kbf, nn,kbf") == ["kbf", "nn"]


def test_parameters_come_from_the_map_by_their_method(world_map):
    stored = {"paper.bandwidth": 0.9, "delta": 2.0, "nn.power": 3.0}
    expected = KernelParameters(bandwidth=0.9, delta=2.0)
    assert parameters_of(KernelParameters, "paper", stored) == expected
    narrow, wide = (
        make_filter("paper", replace(world_map, parameters={"paper.bandwidth": item}))
        for item in (0.9, 1.8)
    )
    np.testing.assert_allclose(2.0 * narrow.space.widths[:2], wide.space.widths[:2])


@pytest.mark.parametrize("bad", [{"bandwidth": 0.0}, {"delta": np.nan}, {"power": -0.1}])
def test_impossible_parameters_are_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        KernelParameters(**bad)


@pytest.mark.parametrize("method", METHODS)
def test_draws_stay_in_their_ranges_and_make_filters(world_map, method):
    drawn = random_parameters(method, np.random.default_rng(0))
    for name, value in drawn.items():
        low, high = SEARCH_RANGES[method][name]
        assert low <= value <= high
    make_filter(method, world_map, drawn)
