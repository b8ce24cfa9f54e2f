import numpy as np
import pytest

from kbf_localization.embeddings import (
    GaussianKernel,
    KernelBayesRule,
    KernelMean,
    ModelBasedSumRule,
    NonparametricSumRule,
    preimage,
)
from kbf_localization.experiments.synthetic_filter import (
    SETTINGS,
    HyperParameters,
    KernelFilter,
    TrainingPairs,
    isotropic_kernel,
    pseudo_map,
)

PARAMETERS = HyperParameters(0.4, 0.3, 1e-3, 1e-2)
MODEL = SETTINGS["mixture"].training


@pytest.fixture(scope="module")
def pairs() -> TrainingPairs:
    states, observations = MODEL.simulate(61, np.random.default_rng(0))
    return TrainingPairs(states[:-1], observations[:-1], states[1:])


@pytest.mark.parametrize("model_based", [True, False])
def test_filter_is_the_chain_of_the_librarys_rules(pairs: TrainingPairs, model_based: bool) -> None:
    states, observations = MODEL.simulate(8, np.random.default_rng(1))
    kernel = GaussianKernel(PARAMETERS.state_std**2 * np.eye(2))
    observation_kernel = GaussianKernel(PARAMETERS.observation_std**2 * np.eye(2))
    epsilon, delta = PARAMETERS.epsilon, PARAMETERS.delta
    bayes = KernelBayesRule(
        pairs.states,
        pairs.observations,
        kernel,
        observation_kernel,
        epsilon,
        delta,
        computation="reference",
    )
    if model_based:
        predict = ModelBasedSumRule(MODEL.move, MODEL.noise, kernel)
    else:
        predict = NonparametricSumRule(pairs.states, pairs.following, kernel, kernel, epsilon)
    ours = KernelFilter(pairs, PARAMETERS, MODEL if model_based else None)
    weights = ours.run(observations)
    prior = KernelMean(pairs.states, None, kernel)
    for step, observation in enumerate(observations):
        beta = bayes.prior_weights(prior)
        alpha = bayes.posterior_weights(beta / beta.sum(), observation)
        posterior = KernelMean(pairs.states, alpha, kernel).normalized()
        np.testing.assert_allclose(
            weights[step], posterior.weights, atol=1e-6 * np.abs(posterior.weights).max()
        )
        prior = predict(posterior)
    assert ours.mean_squared_error(states, observations) < 0.3


def test_point_estimates_are_pre_images(pairs: TrainingPairs) -> None:
    ours = KernelFilter(pairs, PARAMETERS, MODEL)
    weights = ours.run(MODEL.simulate(6, np.random.default_rng(2))[1])
    estimates = pseudo_map(pairs.states, weights, PARAMETERS.state_std)
    kernel = isotropic_kernel(PARAMETERS.state_std)
    for estimate, row in zip(estimates, weights, strict=True):
        mean = KernelMean(pairs.states, row, kernel)
        best = preimage(mean, 1)
        assert mean.evaluate(estimate[None])[0] == pytest.approx(
            mean.evaluate(best[None])[0], rel=1e-4
        )


def test_weights_sum_to_one_at_every_step(pairs: TrainingPairs) -> None:
    weights = KernelFilter(pairs, PARAMETERS, None).run(pairs.observations[:20])
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)


def test_observation_that_nothing_resembles_leaves_the_prediction(pairs: TrainingPairs) -> None:
    ours = KernelFilter(pairs, PARAMETERS, MODEL)
    weights = ours.run(np.array([[0.0, 1.0], [1e6, 1e6]]))
    predicted = ours.prediction @ weights[0]
    np.testing.assert_allclose(weights[1], predicted / predicted.sum())
