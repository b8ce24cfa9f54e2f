"""Looking over a large map: a cheap first look, closer where it found most."""

import numpy as np
import pytest

from kbf_localization.benchmarks._synthetic_map import SPACING_M, synthetic_map
from kbf_localization.filters import whole_map_matching
from kbf_localization.filters.kernel_bayes_filter import KernelBayesFilter
from kbf_localization.filters.whole_map_matching import RememberedSimilarities, WholeMapMatching

POSES = 1200
RETRIEVED = 300


class Plain:
    """An observation without a first look, which counts what it is asked for."""

    def __init__(self, observation):
        self._observation = observation
        self.asked = []

    def similarities(self, rows=None):
        self.asked.append(rows)
        return self._observation.similarities(rows)


@pytest.fixture(scope="module")
def corridor_map():
    return synthetic_map(POSES)


@pytest.fixture
def large(monkeypatch):
    """The corridor counts as a large map, a quarter of which is looked at closely."""
    monkeypatch.setattr(whole_map_matching, "RETRIEVE_FROM", 1000)
    monkeypatch.setattr(whole_map_matching, "RETRIEVED", RETRIEVED)


def seen_at(corridor_map, along_m, seed=0):
    training_map, corridor = corridor_map
    view = corridor.views(np.array([along_m]), np.random.default_rng(seed))[0]
    return training_map.observe(view)


@pytest.mark.parametrize("along_m", [41.23, 77.7])
def test_a_global_update_by_retrieval_has_the_mode_and_weights_of_the_exact_one(
    corridor_map, large, along_m
):
    """The bound is the documented one (docs/large_maps.md): 4 % of the largest weight."""
    training_map, corridor = corridor_map
    observation = seen_at(corridor_map, along_m)
    ours = KernelBayesFilter(training_map).step(None, observation)
    exact = KernelBayesFilter(training_map, exact=True).step(None, observation)
    assert len(ours.weights.rows) <= RETRIEVED
    assert len(exact.weights.rows) == POSES
    np.testing.assert_array_equal(ours.highest_weight_pose, exact.highest_weight_pose)
    np.testing.assert_allclose(ours.pose, exact.pose, atol=0.01)
    kept = exact.weights.values[ours.weights.rows]
    kept = kept / kept.sum()
    np.testing.assert_allclose(ours.weights.values, kept, rtol=0.0, atol=0.04 * kept.max())
    truth = corridor.poses(np.array([along_m]))[0]
    assert np.hypot(*(ours.pose - truth)[:2]) < SPACING_M


def test_it_goes_on_to_track_from_there(corridor_map, large):
    training_map, corridor = corridor_map
    pose_filter = KernelBayesFilter(training_map)
    for step in range(5):
        along_m = 60.0 + SPACING_M * step
        motion = None if step == 0 else np.array([SPACING_M, 0.0, 0.0])
        estimate = pose_filter.step(motion, seen_at(corridor_map, along_m, seed=step))
    # From 59.4 m to 109.4 m the corridor is straight.
    truth = corridor.poses(np.array([along_m]))[0]
    assert np.hypot(*(estimate.pose - truth)[:2]) < SPACING_M
    assert len(estimate.weights.rows) < 100


def test_an_observation_without_a_first_look_is_looked_at_whole(corridor_map, large):
    plain = Plain(seen_at(corridor_map, 30.0))
    similarities = RememberedSimilarities(plain, POSES)
    assert not similarities.retrieves
    found = similarities.over_map()
    np.testing.assert_array_equal(found.rows, np.arange(POSES))
    np.testing.assert_array_equal(found.values, seen_at(corridor_map, 30.0).similarities())


def test_exact_mode_and_small_maps_look_at_everything(corridor_map, monkeypatch):
    observation = seen_at(corridor_map, 30.0)
    assert not RememberedSimilarities(observation, POSES).retrieves
    monkeypatch.setattr(whole_map_matching, "RETRIEVE_FROM", 1000)
    assert RememberedSimilarities(observation, POSES).retrieves
    assert not RememberedSimilarities(observation, POSES, exact=True).retrieves


def test_what_is_retrieved_has_its_exact_similarities_and_the_best_match(corridor_map, large):
    observation = seen_at(corridor_map, 30.0)
    found = RememberedSimilarities(observation, POSES).over_map()
    everything = observation.similarities()
    np.testing.assert_array_equal(found.values, everything[found.rows])
    assert found.values.max() == everything.max()


def test_no_similarity_is_computed_twice(corridor_map):
    plain = Plain(seen_at(corridor_map, 30.0))
    similarities = RememberedSimilarities(plain, POSES)
    first = similarities.of(np.array([5, 9, 200]))
    again = similarities.of(np.array([9, 300, 5]))
    assert [list(rows) for rows in plain.asked] == [[5, 9, 200], [300]]
    np.testing.assert_array_equal(again[[2, 0]], first[:2])


def test_a_dark_start_on_a_large_map_keeps_every_place_possible(corridor_map, large):
    training_map, corridor = corridor_map
    pose_filter = KernelBayesFilter(training_map)
    dark = np.zeros(training_map.histograms.shape[1], dtype=np.uint8)
    dark[0] = 200
    for motion in (None, np.array([SPACING_M, 0.0, 0.0])):
        estimate = pose_filter.step(motion, training_map.observe(dark))
        assert "image_like_nothing" in estimate.events
        np.testing.assert_allclose(estimate.weights.values, np.full(POSES, 1.0 / POSES))
    estimate = pose_filter.step(np.array([SPACING_M, 0.0, 0.0]), seen_at(corridor_map, 80.0))
    truth = corridor.poses(np.array([80.0]))[0]
    assert np.hypot(*(estimate.pose - truth)[:2]) < SPACING_M


def test_a_larger_map_is_looked_over_less_often():
    def looks(count):
        matching = WholeMapMatching(count)
        found = whole_map_matching.Similarities(np.arange(30), np.linspace(0.0, 1.0, 30))
        done = 0
        for _ in range(100):
            if matching.due(False):
                matching.look(found)
                done += 1
        return done

    assert looks(1000) == looks(2500) == 100
    assert looks(5000) == 50
    assert 0 < looks(1_000_000) < looks(100_000) < looks(20_000)
