"""Weights of places and of the null hypothesis, against a Bayes filter on a grid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.filters.hypothesis import (
    FIRST_RETURN,
    HAZARD_OF_DISCONTINUITY,
    HAZARD_PER_TRAVEL,
    HAZARD_TO_MAP,
    RETURN_PER_TRAVEL,
    posterior_weights,
    transfer,
)

fractions = st.floats(0.0, 1.0)


@given(
    st.lists(st.tuples(fractions, fractions), max_size=5),
    fractions,
    st.floats(0.0, 20.0),
    fractions,
    st.booleans(),
)
def test_no_weight_is_lost_between_components_map_and_null(parts, null, travel, jump, first):
    weights = np.array([weight for weight, _ in parts])
    coverage = np.array([covered for _, covered in parts])
    moved = transfer(weights, null, coverage, travel, jump, first)
    everything = moved.masses.sum() + moved.map_mass + moved.null_mass
    assert everything == pytest.approx(weights.sum() + null, abs=1e-12)
    assert (moved.masses >= 0.0).all() and moved.map_mass >= 0.0
    assert moved.null_mass >= -1e-12
    np.testing.assert_allclose(moved.masses, weights * (1.0 - moved.leaks))


def test_what_the_map_cannot_represent_goes_to_the_null_hypothesis():
    covered, uncovered = transfer(
        np.array([0.5, 0.5]), 0.0, np.array([1.0, 0.0]), travel=1.0, jump=0.0
    ).leaks
    assert covered == pytest.approx(HAZARD_PER_TRAVEL)
    assert uncovered > 2.0 * covered


def test_agrees_with_a_bayes_filter_on_a_grid():
    """A ring of places, odometry that moves by one, known likelihoods: the forward algorithm.

    The places of the map prior are the same ones, so each place is there twice.
    """
    rng = np.random.default_rng(0)
    count, travel = 12, 0.4
    returned = min(RETURN_PER_TRAVEL * travel, 0.5)
    hazard = HAZARD_PER_TRAVEL * travel
    change = np.zeros((count + 1, count + 1))
    for place in range(count):
        change[(place + 1) % count, place] += 1.0 - hazard
        change[:count, place] += hazard * HAZARD_TO_MAP / count
        change[count, place] += hazard * (1.0 - HAZARD_TO_MAP)
    change[:count, count] += returned / count
    change[count, count] += 1.0 - returned
    exact = np.full(count + 1, 0.5 / count)
    exact[count] = 0.5
    weights, null = exact[:count].copy(), 0.5
    for _ in range(30):
        likelihood = rng.uniform(0.2, 5.0, count)
        exact = change @ exact * np.append(likelihood, 1.0)
        exact /= exact.sum()
        moved = transfer(np.roll(weights, 1), null, np.ones(count), travel, 0.0)
        before = np.append(moved.masses, np.full(count, moved.map_mass / count))
        twice = np.tile(likelihood, 2)
        after = before * twice / (before @ twice)
        both = posterior_weights(before / before.sum(), after, before, np.log(twice), 1.0)
        weights, null = both[:count] + both[count:], moved.null_mass
        total = weights.sum() + null
        weights, null = weights / total, null / total
        np.testing.assert_allclose(weights, exact[:count], rtol=1e-9)
        assert null == pytest.approx(exact[count])


def test_an_image_without_information_changes_no_weight_between_places():
    before, after = np.array([0.7, 0.3]), np.array([0.1, 0.9])
    found = posterior_weights(before, after, before, np.zeros(2), 0.0)
    np.testing.assert_allclose(found, before)


def test_one_image_cannot_rule_a_place_out():
    before, after = np.array([0.5, 0.5]), np.array([1.0, 1e-30])
    found = posterior_weights(before, after, before, np.zeros(2), 1.0)
    assert found[1] > 1e-7
    assert found.sum() == pytest.approx(1.0)


def test_without_any_weight_the_evidence_decides():
    masses, ratios = np.array([0.2, 0.1]), np.array([1.0, -1.0])
    found = posterior_weights(np.zeros(2), np.zeros(2), masses, ratios, 1.0)
    np.testing.assert_allclose(found, masses * np.exp(ratios))
    assert posterior_weights(*(np.zeros(0) for _ in range(4)), 1.0).shape == (0,)


def test_a_discontinuity_sends_most_weight_over_the_map():
    moved = transfer(np.array([1.0]), 0.0, np.ones(1), 0.0, 1.0)
    assert moved.leaks[0] == pytest.approx(HAZARD_OF_DISCONTINUITY)
    assert moved.map_mass == pytest.approx(HAZARD_TO_MAP * HAZARD_OF_DISCONTINUITY)
    first = transfer(np.zeros(0), 1.0, np.zeros(0), 0.0, 0.0, first=True)
    assert first.map_mass == pytest.approx(FIRST_RETURN)
