"""Components beside a brute-force Bayes filter on a grid, in a corridor of one dimension."""

import numpy as np
import pytest

from kbf_localization.filters.hypothesis import (
    HAZARD_PER_TRAVEL,
    HAZARD_TO_MAP,
    Hypothesis,
    landmark_update,
    transfer,
)
from test.filters.test_hypothesis_landmark_update import Fix

GRID = np.linspace(-1.0, 9.0, 8001)
NARROW = 1e-10
"""Variance of what does not move: across the corridor, and the heading."""


def gaussian(offset, variance):
    return np.exp(-0.5 * offset**2 / variance)


def moments(density):
    density = density / density.sum()
    mean = density @ GRID
    return mean, density @ (GRID - mean) ** 2


def test_predictions_and_fixes_are_those_of_a_bayes_filter_on_a_grid():
    rng = np.random.default_rng(3)
    component = Hypothesis.from_prior(np.array([0.5, 0.0, 0.0]), np.diag([0.09, NARROW, NARROW]), 1)
    density = gaussian(GRID - 0.5, 0.09)
    for step in range(6):
        motion, noise = 0.5 + 0.1 * step, (0.05 + 0.02 * step) ** 2
        component = component.predict(
            np.array([motion, 0.0, 0.0]), np.array([noise, NARROW, NARROW]), 1.0
        )
        # Chapman and Kolmogorov's integral, by a sum over all pairs of cells.
        kernel = gaussian(GRID[::20, None] - GRID[None, :] - motion, noise)
        density = np.interp(GRID, GRID[::20], kernel @ density)
        measured, variance = 1.0 + 0.75 * step + 0.05 * rng.standard_normal(), 0.1**2
        fix = Fix(np.array([measured, 0.0, 0.0]), np.diag([variance, NARROW, NARROW]))
        component, _ = landmark_update(component, fix)
        density = density * gaussian(GRID - measured, variance)
        mean, spread = moments(density)
        assert component.pose[0] == pytest.approx(mean, abs=2e-3)
        assert component.covariance[0, 0] == pytest.approx(spread, rel=1e-2)


def test_the_hazard_moves_weight_as_a_markov_chain_does():
    # States: two places, the map prior, elsewhere; one step of their transition matrix.
    weights, null, travel = np.array([0.6, 0.3]), 0.1, 0.5
    hazard, back = HAZARD_PER_TRAVEL * travel, 0.3 * travel
    chain = np.array(
        [
            [1.0 - hazard, 0.0, HAZARD_TO_MAP * hazard, (1.0 - HAZARD_TO_MAP) * hazard],
            [0.0, 1.0 - hazard, HAZARD_TO_MAP * hazard, (1.0 - HAZARD_TO_MAP) * hazard],
            [0.0, 0.0, 1.0, 0.0],
            [0.0, 0.0, back, 1.0 - back],
        ]
    )
    expected = np.array([*weights, 0.0, null]) @ chain
    moved = transfer(weights, null, np.ones(2), travel, jump=0.0)
    found = [*moved.masses, moved.map_mass, moved.null_mass]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
