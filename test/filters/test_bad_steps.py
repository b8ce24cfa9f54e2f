"""Any sequence of bad steps leaves every method, with every form of the rule, with a pose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbf_localization.embeddings.bayes_rule import FORMS
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.methods import METHODS
from kbf_localization.filters.registry import make_filter
from kbf_localization.mapping.calibrate import calibrate_from_map
from kbf_localization.training_map import subset
from test.conftest import learning_quickly
from test.filters.synthetic_world import BLACK, World, drive, loop, map_of, without_words

WITH_A_RULE = ("kbf", "paper", "fkbf", "kmcf")
CASES = [
    *((method, form) for method in WITH_A_RULE for form in FORMS),
    *((method, None) for method in METHODS if method not in WITH_A_RULE),
]
MAPS = ("plain", "one pose", "two equal poses", "on a line", "without word grids", "one drive")
MOTIONS = {
    "none": None,
    "nan": np.array([np.nan, 0.0, 0.0]),
    "infinite": np.array([0.0, np.inf, 0.0]),
    "huge": np.array([1e160, 1e160, 1e9]),
    "jump": np.array([60.0, -5.0, 3.0]),
    "still": np.zeros(3),
    "tiny": np.array([1e-320, 0.0, 0.0]),
    "forward": np.array([0.2, 0.0, 0.0]),
    "turn": np.array([0.0, 0.0, 1.5]),
}
IMAGES = ("view", "next view", "far view", "black", "elsewhere", "nan", "infinite", "negative")
VALUES = {"nan": np.nan, "infinite": np.inf, "negative": -1.0}


class Faulty:
    """An observation whose comparison with the map gives `value` everywhere."""

    def __init__(self, observation, value):
        self._observation, self._value = observation, value

    def __getattr__(self, name):
        return getattr(self._observation, name)

    def similarities(self, rows=None):
        return np.full_like(self._observation.similarities(rows), self._value)


@pytest.fixture(scope="module")
def maps(world, world_map):
    """Maps by their names, some of them hardly maps at all."""
    line = np.sort(np.argsort(np.abs(world_map.poses[:, 1]))[:12])
    twins = subset(world_map, np.array([3, 3]))
    with learning_quickly():
        return {
            "plain": world_map,
            "one pose": subset(world_map, np.array([7])),
            "two equal poses": replace(twins, fitted=calibrate_from_map(twins)),
            "on a line": subset(world_map, line),
            "without word grids": without_words(world_map),
            "one drive": map_of([drive(world, loop(120), 11)], 60),
        }


@pytest.fixture(scope="module")
def views(world_drive):
    strange = World(seed=5).view(world_drive.poses[9], np.random.default_rng(3))
    names = {"view": 0, "next view": 1, "far view": 90}
    known = {name: world_drive.views[index] for name, index in names.items()}
    return known | {"black": BLACK, "elsewhere": strange}


def observe(training_map, views, name):
    if name in views:
        return training_map.observe(views[name])
    return Faulty(training_map.observe(views["view"]), VALUES[name])


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(("method", "form"), CASES)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(list(MOTIONS)), st.sampled_from(IMAGES)), min_size=1, max_size=10
    ),
    given_pose=st.booleans(),
    reset_at=st.integers(0, 9),
)
def test_any_sequence_of_bad_steps_leaves_a_pose(
    maps, views, method, form, name, steps, given_pose, reset_at
):
    training_map = maps[name]
    pose_filter = make_filter(method, training_map, {} if form is None else {"rule": form})
    prior = GaussianPrior(np.zeros(3), np.diag([0.1, 0.1, 0.1]))
    for number, (motion, image) in enumerate(steps):
        if number == reset_at:
            pose_filter.reset(prior if given_pose else None)
        estimate = pose_filter.step(MOTIONS[motion], observe(training_map, views, image))
        assert np.isfinite(estimate.pose).all() and abs(estimate.pose[2]) <= np.pi + 1e-9
        assert np.isfinite(estimate.highest_weight_pose).all()
        assert np.isfinite(estimate.covariance).all()
        sigma = np.sqrt(np.diag(estimate.covariance))
        assert (sigma > 0.0).all()
        assert np.linalg.eigvalsh(estimate.covariance / np.outer(sigma, sigma)).min() > 0.0
        if method != "kbf" and estimate.weights is not None:
            assert estimate.weights.values.sum() == pytest.approx(1.0)
