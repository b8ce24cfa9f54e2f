import numpy as np
import pytest

from kbf_localization.embeddings import (
    AffineMap,
    GaussianKernel,
    GaussianNoise,
    KernelBayesRule,
    KernelMean,
    ModelBasedSumRule,
    PowerKernel,
)

KERNEL = GaussianKernel(0.3)
OBSERVATION_KERNEL = GaussianKernel(0.2)
PRIOR_VARIANCE, OBSERVATION_VARIANCE = 0.5, 0.2
OBSERVATION = 0.8


def true_posterior() -> KernelMean:
    """z = x + noise with a Gaussian prior of mean zero: the Kalman update."""
    gain = PRIOR_VARIANCE / (PRIOR_VARIANCE + OBSERVATION_VARIANCE)
    noise = GaussianNoise((1.0 - gain) * PRIOR_VARIANCE)
    return KernelMean([[gain * OBSERVATION]], [1.0], KERNEL, noise)


def rule_from(count: int, generator: np.random.Generator, **options: object) -> KernelBayesRule:
    states = generator.uniform(-3.0, 3.0, (count, 1))
    spread = np.sqrt(OBSERVATION_VARIANCE)
    observations = states + spread * generator.standard_normal((count, 1))
    return KernelBayesRule(
        states, observations, KERNEL, OBSERVATION_KERNEL, 0.1 / count, 0.1 / count, **options
    )  # type: ignore[arg-type]


def sampled_prior(count: int, generator: np.random.Generator) -> KernelMean:
    points = np.sqrt(PRIOR_VARIANCE) * generator.standard_normal((count, 1))
    return KernelMean(points, None, KERNEL)


def model_based_prior(count: int, generator: np.random.Generator) -> KernelMean:
    """The same prior as x = y/2 + noise, y of variance 1: 0.25 of 0.5 come from y."""
    model = ModelBasedSumRule(AffineMap([[0.5]]), GaussianNoise(PRIOR_VARIANCE - 0.25), KERNEL)
    return model(KernelMean(generator.standard_normal((count, 1)), None, KERNEL))


@pytest.mark.parametrize("form", ["original", "importance-weighted"])
@pytest.mark.parametrize("make_prior", [sampled_prior, model_based_prior])
def test_posterior_converges_to_the_kalman_update(make_prior, form: str) -> None:
    errors = []
    for count in (40, 160, 640):
        trials = []
        for seed in range(12):
            generator = np.random.default_rng(seed)
            rule = rule_from(count, generator, form=form)
            posterior = rule(make_prior(count, generator), [OBSERVATION])
            trials.append(posterior.distance(true_posterior()))
        errors.append(np.mean(trials))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.6 * errors[0]
    assert errors[2] < 0.15 * true_posterior().norm()


def test_all_computations_give_one_posterior() -> None:
    prior = model_based_prior(100, np.random.default_rng(9))
    posteriors = [
        rule_from(150, np.random.default_rng(1), computation=computation)(
            prior, [OBSERVATION]
        ).weights
        for computation in ("reference", "restricted", "low_rank")
    ]
    scale = np.abs(posteriors[0]).max()
    for posterior in posteriors[1:]:
        np.testing.assert_allclose(posterior, posteriors[0], atol=1e-6 * scale)


def test_low_rank_rule_takes_a_rank() -> None:
    prior = sampled_prior(100, np.random.default_rng(9))
    full = rule_from(150, np.random.default_rng(1))(prior, [OBSERVATION])
    errors = [
        rule_from(150, np.random.default_rng(1), computation="low_rank", rank=rank)(
            prior, [OBSERVATION]
        ).distance(full)
        for rank in (3, 8, 40)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_observations_may_be_anything_that_their_kernel_takes() -> None:
    class WordOverlap:
        """Fraction of common letters, on strings held in an object array."""

        def gram(self, a, b):
            return np.array([[len(set(x) & set(y)) / 4.0 for y in b] for x in a])

    states = np.array([[0.0], [1.0], [2.0]])
    words = np.array(["abcd", "cdef", "wxyz"], dtype=object)
    rule = KernelBayesRule(states, words, GaussianKernel(0.2), WordOverlap(), 1e-3, 1e-3)
    prior = KernelMean(states, None, GaussianKernel(0.2))
    assert rule(prior, "wxyz").weights.argmax() == 2
    assert rule(prior, "abcd").weights.argmax() == 0


@pytest.mark.parametrize("form", ["original", "importance-weighted", "plain"])
def test_regularization_is_in_units_of_the_kernels_own_height(form: str) -> None:
    """A kernel times a constant is the same rule."""

    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def gram(self, a, b):
            return self.factor * OBSERVATION_KERNEL.gram(a, b)

    generator = np.random.default_rng(3)
    states = generator.uniform(-3.0, 3.0, (30, 1))
    prior = sampled_prior(20, generator)
    weights = [
        KernelBayesRule(states, states, KERNEL, Scaled(factor), 1e-2, 1e-2, form=form)(  # type: ignore[arg-type]
            prior, [OBSERVATION]
        ).weights
        for factor in (1.0, 50.0)
    ]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9, atol=1e-12)


def test_a_power_of_the_kernel_is_a_kernel_of_a_smaller_width() -> None:
    """A Gaussian kernel's p-th power is, up to its height, the one of variance σ²/p."""
    points = np.random.default_rng(0).normal(size=(6, 1))
    power = PowerKernel(OBSERVATION_KERNEL, 5).gram(points, points)
    narrow = GaussianKernel(0.2 / 5.0)
    expected = narrow.gram(points, points) / narrow.at_zero()
    np.testing.assert_allclose(power / power[0, 0], expected, rtol=1e-12)
    for wrong in (0, 21, 1.5):
        with pytest.raises(ValueError, match="^power:"):
            PowerKernel(OBSERVATION_KERNEL, wrong)  # type: ignore[arg-type]


def test_prior_of_another_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="^prior:"):
        rule_from(10, np.random.default_rng(0)).prior_weights(
            KernelMean([[0.0]], [1.0], GaussianKernel(1.0))
        )
