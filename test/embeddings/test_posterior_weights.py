from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbf_localization.embeddings import (
    FORMS,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    RidgeSolver,
    block_posterior_weights,
    low_rank_factor,
    low_rank_posterior_weights,
    posterior_weights,
    reference_posterior_weights,
    relative_posterior_weights,
    restricted_posterior_weights,
    support,
)
from kbf_localization.embeddings.bayes_rule import SUPPORT_THRESHOLD

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
def test_dropping_the_tail_of_a_local_prior_changes_no_more_than_its_weight_over_root_delta(
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
    full = posterior_weights(*arguments, computation="low_rank")
    assert relative(full, posterior_weights(*arguments, computation="reference")) < 1e-6


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


@pytest.mark.parametrize("computation", ["reference", "restricted", "low_rank"])
def test_equal_observations_leave_the_prior_scaled(computation: str) -> None:
    """Of G = 11ᵀ and k = 1 the rule is βs/(s² + δ), s = Σβ, by Sherman and Morrison's formula."""
    gram, delta = np.ones((30, 30)), 1e-8
    prior = np.random.default_rng(0).normal(size=30)
    weights = posterior_weights(prior, gram, np.ones(30), delta, computation=computation)  # type: ignore[arg-type]
    total = prior.sum()
    np.testing.assert_allclose(weights, prior * total / (total**2 + delta), rtol=1e-10)


@pytest.mark.parametrize("computation", ["reference", "restricted", "low_rank"])
def test_prior_of_zeros_gives_a_posterior_of_zeros(computation: str) -> None:
    weights = posterior_weights(np.zeros(5), np.eye(5), np.ones(5), 1e-3, computation=computation)  # type: ignore[arg-type]
    np.testing.assert_array_equal(weights, np.zeros(5))


def dense_weights(form: str, prior: np.ndarray, gram: np.ndarray, similarities: np.ndarray, ridge):
    """The forms' definitions with explicit inverses."""
    count = len(prior)
    if form == "original":
        weighted = np.diag(prior) @ gram
        inverse = np.linalg.inv(weighted @ weighted + ridge * np.eye(count))
        return weighted @ inverse @ np.diag(prior) @ similarities
    positive = np.diag(np.where(prior > 0.0, prior, 0.0))
    if form == "plain":
        return positive @ similarities
    root = np.sqrt(positive)
    inverse = np.linalg.inv(root @ gram @ root + ridge * np.eye(count))
    return root @ inverse @ root @ similarities


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("power", [1, 4, 20])
@pytest.mark.parametrize("computation", ["reference", "restricted", "low_rank"])
def test_each_form_is_its_definition(form, power: int, computation) -> None:
    generator = np.random.default_rng(power)
    gram, similarities = observation_gram(generator, 40, 0.6)
    gram, similarities = gram**power, similarities**power
    prior = generator.normal(0.5, 1.0, 40) / 40.0
    prior[::5] = 0.0
    weights = posterior_weights(prior, gram, similarities, 1e-3, form, computation)
    expected = dense_weights(form, prior, gram, similarities, 1e-3)
    assert relative(weights, expected) < 1e-8


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, form=st.sampled_from(FORMS), log_ridge=st.floats(-4.0, 1.0))
def test_each_form_restricted_to_the_support_is_the_whole(seed: int, form, log_ridge) -> None:
    generator = np.random.default_rng(seed)
    gram, similarities = observation_gram(generator, 40, 0.4)
    prior = generator.normal(0.5, 1.0, 40) / 40.0
    prior[generator.random(40) < 0.5] = 0.0
    prior[generator.integers(40)] = 0.1
    arguments = (gram, similarities, 10.0**log_ridge)
    whole = block_posterior_weights(prior, *arguments, form)
    restricted = restricted_posterior_weights(prior, *arguments, threshold=0.0, form=form)
    np.testing.assert_allclose(restricted, whole, rtol=1e-7, atol=1e-9 * np.abs(whole).max())


@pytest.mark.parametrize("ridge", [1e-6, 0.3])
@pytest.mark.parametrize("form", FORMS)
def test_with_discrete_observations_each_form_is_bayes_rule(form, ridge: float) -> None:
    """Pairs in proportion to p(z | x), a kernel that tells equal from unequal: exact at any δ."""
    likelihood = np.array([[6, 3, 1], [2, 5, 3], [1, 1, 8]])  # 10 p(z | x), a row for each x
    states = np.repeat([0, 1, 2], 10)
    observations = np.concatenate([np.repeat([0, 1, 2], row) for row in likelihood])
    prior = np.array([0.2, 0.5, 0.3])
    gram = (observations[:, None] == observations).astype(float)
    for seen in range(3):
        similarities = (observations == seen).astype(float)
        weights = posterior_weights(prior[states] / 10.0, gram, similarities, ridge, form)
        posterior = np.bincount(states, weights / weights.sum(), 3)
        expected = prior * likelihood[:, seen]
        np.testing.assert_allclose(posterior, expected / expected.sum(), rtol=1e-9)


def test_plain_weights_are_the_importance_weighted_ones_of_a_large_ridge() -> None:
    generator = np.random.default_rng(5)
    gram, similarities = observation_gram(generator, 30, 0.5)
    prior = generator.normal(0.5, 1.0, 30) / 30.0
    weighted = posterior_weights(prior, gram, similarities, 1e6, "importance-weighted")
    plain = posterior_weights(prior, gram, similarities, 1.0, "plain")
    np.testing.assert_allclose(1e6 * weighted, plain, rtol=1e-5, atol=1e-12)


def test_the_prior_weights_are_the_density_ratio_of_the_importance_weighted_rule() -> None:
    """KuLSIF: r minimizes Σ r(X_i)²/2n − Σ_j γ_j r(x_j) + ε‖r‖²/2 over the RKHS; r(X_i)/n = β_i."""
    generator = np.random.default_rng(6)
    kernel = GaussianKernel(0.3)
    states, samples = generator.uniform(-2, 2, (12, 1)), generator.normal(0.0, 0.7, (8, 1))
    epsilon, uniform = 0.05, np.full(8, 1.0 / 8.0)
    points = np.concatenate([states, samples])
    gram = kernel.gram(points, points)
    at_states, at_samples = gram[:12], gram[12:]
    # r = Σ c_i k(·, p_i): the gradient with respect to c set to zero.
    quadratic = at_states.T @ at_states / 12.0 + epsilon * gram
    coefficients = np.linalg.lstsq(quadratic, at_samples.T @ uniform, rcond=None)[0]
    prior = RidgeSolver(gram[:12, :12], 12 * epsilon).solve(gram[:12, 12:] @ uniform)
    np.testing.assert_allclose(prior, at_states @ coefficients / 12.0, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_relative_regularization_is_blind_to_the_scales_of_belief_and_kernel(form) -> None:
    generator = np.random.default_rng(7)
    gram, similarities = observation_gram(generator, 25, 0.5)
    prior = generator.normal(0.5, 1.0, 25) / 25.0
    weights = relative_posterior_weights(prior, gram, similarities, 0.1, form)
    scaled = relative_posterior_weights(7.0 * prior, 3.0 * gram, 3.0 * similarities, 0.1, form)
    np.testing.assert_allclose(scaled / scaled.sum(), weights / weights.sum(), rtol=1e-9)
    size = np.abs(prior).max()
    delta = 0.1 * (size**2 if form == "original" else size)
    np.testing.assert_allclose(weights, dense_weights(form, prior, gram, similarities, delta))
