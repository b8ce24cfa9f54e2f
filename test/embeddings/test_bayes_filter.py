import numpy as np
import pytest
from scipy.special import ndtri

from kbf_localization.embeddings import (
    AffineMap,
    CauchyNoise,
    GaussianKernel,
    GaussianNoise,
    KernelBayesFilter,
    KernelBayesRule,
    KernelMean,
    ModelBasedSumRule,
    RationalQuadraticKernel,
)

PLACES = 12
"""Of a corridor, a metre apart, each seen as a string."""


class CommonPairs:
    """A string kernel: how many pairs of neighbouring letters two words have in common."""

    def gram(self, a, b):
        def pairs(word):
            return {word[i : i + 2] for i in range(len(word) - 1)}

        return np.array([[float(len(pairs(x) & pairs(y))) for y in b] for x in a])


def corridor_filter(form="original", delta=1e-2) -> KernelBayesFilter:
    """A Cauchy walk of one metre a step; the words of places 0 and 1 look like those of 6 and 7."""
    kernel = RationalQuadraticKernel(0.3**2)
    words = ["abcd", "cdef", "efgh", "ghij", "ijkl", "klmn"]
    words += ["abcq", "cdeq", "mnop", "opqr", "qrst", "stuv"]
    states = np.arange(float(PLACES))[:, None]
    predict = ModelBasedSumRule(AffineMap([[1.0]], [1.0]), CauchyNoise(0.1**2), kernel)
    observations = np.array(words, dtype=object)
    bayes = KernelBayesRule(states, observations, kernel, CommonPairs(), 1e-3, delta, form=form)
    return KernelBayesFilter(predict, bayes)


@pytest.mark.parametrize("form", ["original", "importance-weighted", "plain"])
def test_strings_seen_along_a_corridor_locate_a_cauchy_walk(form: str) -> None:
    belief_filter = corridor_filter(form, delta=1e-2 if form == "original" else 0.3)
    words = belief_filter.bayes.observations
    for start in (0, 5):
        belief_filter.reset()
        for place, belief in enumerate(belief_filter.run(words[start : start + 5]), start):
            assert int(np.argmax(belief.weights)) == place
            assert belief.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("form", ["original", "importance-weighted"])
def test_linear_gaussian_filter_agrees_with_the_kalman_filter(form) -> None:
    generator = np.random.default_rng(0)
    motion, noise, seen = 0.9, 0.2**2, 0.3**2
    # Examples at the quantiles of p(z | x), so that they represent it without sampling error.
    quantiles = np.sqrt(seen) * ndtri((np.arange(9) + 0.5) / 9.0)
    states = np.repeat(np.linspace(-3.0, 3.0, 61), 9)[:, None]
    examples = states + np.tile(quantiles, 61)[:, None]
    kernel, seen_kernel = GaussianKernel(0.3**2), GaussianKernel(0.2**2)
    predict = ModelBasedSumRule(
        lambda x, control: motion * x + control, GaussianNoise(noise), kernel
    )
    bayes = KernelBayesRule(states, examples, kernel, seen_kernel, 1e-6, 1e-5, form=form)
    prior = KernelMean([[0.5]], [1.0], kernel, GaussianNoise(0.5**2))
    kernel_filter = KernelBayesFilter(predict, bayes, prior)
    mean, variance, truth = 0.5, 0.5**2, 0.4
    for step in range(8):
        control = 0.3 * np.sin(step)
        if step > 0:
            truth = motion * truth + control + np.sqrt(noise) * generator.standard_normal()
            mean, variance = motion * mean + control, motion**2 * variance + noise
        observation = truth + np.sqrt(seen) * generator.standard_normal()
        gain = variance / (variance + seen)
        mean, variance = mean + gain * (observation - mean), (1.0 - gain) * variance
        belief = kernel_filter.step([observation], control)
        assert float(belief.expectation(lambda x: x[:, 0])) == pytest.approx(mean, abs=0.05)


def test_a_step_without_an_observation_predicts_and_an_unlike_one_keeps_the_prediction() -> None:
    first, second = corridor_filter(), corridor_filter()
    for item in (first, second):
        item.step("cdef")
        item.step("efgh")
    np.testing.assert_allclose(first.step(None).weights, second.step("????").weights)
    assert int(np.argmax(first.belief.weights)) == 3


def test_the_first_step_does_not_predict() -> None:
    kernel = RationalQuadraticKernel(0.3**2)
    ours = corridor_filter()
    ours.reset(KernelMean([[4.0]], [1.0], kernel))
    assert int(np.argmax(ours.step(None).weights)) == 4
    assert int(np.argmax(ours.step(None).weights)) == 5
