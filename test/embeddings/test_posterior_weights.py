from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbf_localization.embeddings import (
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    RidgeSolver,
    block_posterior_weights,
    low_rank_factor,
    low_rank_posterior_weights,
    posterior_weights,
    reference_posterior_weights,
    restricted_posterior_weights,
    support,
)
from kbf_localization.embeddings.posterior_weights import SUPPORT_THRESHOLD

SEEDS = st.integers(0, 2**32 - 1)


def relative(values: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(values - expected).max() / np.abs(expected).max())


def observation_gram(
    generator: np.random.Generator, count: int, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """G_Z scaled to a diagonal of one, and k_Z of an observation near the middle."""
    kernel = GaussianKernel(width**2 * np.eye(2))
    points = generator.uniform(-1.0, 1.0, (count, 2))
    unit = kernel.at_zero()
    query = generator.uniform(-0.5, 0.5, (1, 2))
    return kernel.gram(points, points) / unit, kernel.gram(points, query)[:, 0] / unit


@settings(max_examples=150, deadline=None)
@given(
    seed=SEEDS,
    count=st.integers(1, 60),
    width=st.floats(0.05, 1.5),
    log_delta=st.floats(-4.0, 1.0),
    negative=st.floats(0.0, 0.6),
    dropped=st.floats(0.0, 0.9),
)
def test_restricted_form_agrees_with_the_paper_on_priors_with_exact_zeros(
    seed: int, count: int, width: float, log_delta: float, negative: float, dropped: float
) -> None:
    generator = np.random.default_rng(seed)
    gram, similarities = observation_gram(generator, count, width)
    prior = generator.uniform(0.01, 1.0, count)
    prior *= np.where(generator.random(count) < negative, -1.0, 1.0)
    prior[generator.random(count) < dropped] = 0.0
    prior[generator.integers(count)] = 1.0
    prior /= np.abs(prior).sum()
    arguments = (prior, gram, similarities, 10.0**log_delta)
    reference = reference_posterior_weights(*arguments)
    assert relative(restricted_posterior_weights(*arguments), reference) < 1e-6


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.integers(20, 200), st.floats(0.1, 0.5), st.floats(-3.0, 0.0))
def test_dropping_the_tail_of_a_local_prior_changes_no_more_than_its_share_over_root_delta(
    seed: int, count: int, width: float, log_delta: float
) -> None:
    """What is left out would weigh about β_i/√δ at most: (B − i√δI)⁻¹ is no larger than that."""
    # The prior of a filter: the sum rule's solve, whose weights swing to negative ones and decay.
    generator = np.random.default_rng(seed)
    kernel = GaussianKernel(0.15**2 * np.eye(2))
    states = generator.uniform(-1.0, 1.0, (count, 2))
    belief = KernelMean(states[:1], [1.0], kernel, GaussianNoise(0.05**2 * np.eye(2)))
    ridge = 0.3 * kernel.at_zero()
    prior = RidgeSolver(kernel.gram(states, states), ridge).solve(belief.evaluate(states))
    prior /= np.abs(prior).sum()
    observation_kernel = GaussianKernel(width**2 * np.eye(2))
    unit = observation_kernel.at_zero()
    observations = states + 0.1 * generator.standard_normal((count, 2))
    query = states[:1] + 0.1 * generator.standard_normal((1, 2))
    gram = observation_kernel.gram(observations, observations) / unit
    similarities = observation_kernel.gram(observations, query)[:, 0] / unit
    delta = 10.0**log_delta
    reference = reference_posterior_weights(prior, gram, similarities, delta)
    restricted = restricted_posterior_weights(prior, gram, similarities, delta)
    assert relative(restricted, reference) < SUPPORT_THRESHOLD / np.sqrt(delta)


def test_restricted_form_is_zero_outside_the_support_and_needs_its_block_alone() -> None:
    generator = np.random.default_rng(0)
    gram, similarities = observation_gram(generator, 50, 0.3)
    prior = np.where(np.arange(50) % 3 == 0, generator.normal(size=50), 0.0)
    rows = support(prior)
    np.testing.assert_array_equal(rows, np.arange(0, 50, 3))
    whole = restricted_posterior_weights(prior, gram, similarities, 1e-2)
    assert (whole[np.setdiff1d(np.arange(50), rows)] == 0.0).all()
    block = block_posterior_weights(prior[rows], gram[np.ix_(rows, rows)], similarities[rows], 1e-2)
    np.testing.assert_array_equal(whole[rows], block)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, log_delta=st.floats(-4.0, 0.0))
def test_symmetric_form_at_full_rank_agrees_with_the_paper(seed: int, log_delta: float) -> None:
    generator = np.random.default_rng(seed)
    gram, similarities = observation_gram(generator, 40, 0.3)
    prior = generator.normal(0.3, 1.0, 40) / 40.0
    arguments = (prior, gram, similarities, 10.0**log_delta)
    full = posterior_weights(*arguments, form="low_rank")
    assert relative(full, posterior_weights(*arguments, form="reference")) < 1e-6


def test_low_rank_error_falls_with_the_rank() -> None:
    generator = np.random.default_rng(1)
    gram, similarities = observation_gram(generator, 300, 0.25)
    prior = np.full(300, 1.0 / 300.0)
    reference = reference_posterior_weights(prior, gram, similarities, 1e-4)
    errors = [
        relative(
            low_rank_posterior_weights(prior, low_rank_factor(gram, rank), similarities, 1e-4),
            reference,
        )
        for rank in (10, 30, 60, 120, 240)
    ]
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[0] > 0.05 and errors[-1] < 1e-6


@pytest.mark.parametrize("form", ["reference", "restricted", "low_rank"])
def test_singular_gram_matrix_gives_finite_weights(form: str) -> None:
    gram = np.ones((30, 30))
    prior = np.random.default_rng(0).normal(size=30)
    weights = posterior_weights(prior, gram, np.ones(30), 1e-8, form=form)  # type: ignore[arg-type]
    assert np.isfinite(weights).all()


@pytest.mark.parametrize("form", ["reference", "restricted", "low_rank"])
def test_prior_of_zeros_gives_a_posterior_of_zeros(form: str) -> None:
    weights = posterior_weights(np.zeros(5), np.eye(5), np.ones(5), 1e-3, form=form)  # type: ignore[arg-type]
    np.testing.assert_array_equal(weights, np.zeros(5))
