import numpy as np
import pytest

from kbf_localization.embeddings import (
    AffineMap,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    ModelBasedSumRule,
    NonparametricSumRule,
)

MATRIX = np.array([[0.9, 0.2], [-0.1, 0.8]])
OFFSET = np.array([0.3, -0.2])
NOISE = np.array([[0.3, 0.05], [0.05, 0.2]])
PRIOR = np.array([[0.8, 0.2], [0.2, 0.5]])
KERNEL = GaussianKernel(0.5 * np.eye(2))
MODEL = ModelBasedSumRule(AffineMap(MATRIX, OFFSET), GaussianNoise(NOISE), KERNEL)


def truth(steps: int) -> KernelMean:
    """The kernel mean after `steps` of the linear Gaussian model, by its recursion."""
    mean, covariance = np.zeros(2), PRIOR
    for _ in range(steps):
        mean = MATRIX @ mean + OFFSET
        covariance = MATRIX @ covariance @ MATRIX.T + NOISE
    return KernelMean(mean[None], [1.0], KERNEL, GaussianNoise(covariance))


def sampled_prior(count: int, generator: np.random.Generator) -> KernelMean:
    return KernelMean(generator.multivariate_normal(np.zeros(2), PRIOR, count), None, KERNEL)


def learnt_rule(count: int, generator: np.random.Generator) -> NonparametricSumRule:
    inputs = generator.uniform(-3.5, 3.5, (count, 2))
    outputs = inputs @ MATRIX.T + OFFSET + GaussianNoise(NOISE).sample(count, generator)
    return NonparametricSumRule(inputs, outputs, KERNEL, KERNEL, 0.01 / count)


def test_model_based_rule_on_an_exact_prior_is_exact() -> None:
    assert MODEL(truth(0)).distance(truth(1)) == pytest.approx(0.0, abs=1e-7)
    assert MODEL(MODEL(truth(0))).distance(truth(2)) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("chain", ["Mb", "NP", "Mb Mb", "NP Mb", "Mb NP", "NP NP"])
def test_rules_in_any_order_converge_to_the_linear_gaussian_answer(chain: str) -> None:
    names = chain.split()
    errors = []
    for count in (60, 240, 960):
        trials = []
        for seed in range(4):
            generator = np.random.default_rng(seed)
            belief = sampled_prior(count, generator)
            for name in names:
                belief = (MODEL if name == "Mb" else learnt_rule(count, generator))(belief)
            trials.append(belief.distance(truth(len(names))))
        errors.append(np.mean(trials))
    assert errors[0] > 1.25 * errors[1] > 1.25**2 * errors[2]
    assert errors[2] < 0.2 * truth(len(names)).norm()


def test_model_without_noise_moves_the_points() -> None:
    rule = ModelBasedSumRule(lambda x: x**2, None, KERNEL)
    prior = KernelMean([[1.0, 2.0], [3.0, -1.0]], [0.4, 0.6], KERNEL)
    result = rule(prior)
    np.testing.assert_array_equal(result.points, [[1.0, 4.0], [9.0, 1.0]])
    assert result.noise is None


def test_gram_holds_the_conditional_kernel_means() -> None:
    points, at = np.random.default_rng(0).normal(size=(2, 4, 2))
    columns = [MODEL(KernelMean(point[None], [1.0], KERNEL)).evaluate(at) for point in points]
    np.testing.assert_allclose(MODEL.gram(at, points), np.stack(columns, axis=1), rtol=1e-12)


def test_prior_with_noise_is_refused_by_a_nonlinear_function_until_projected() -> None:
    rule = ModelBasedSumRule(np.tanh, GaussianNoise(0.1 * np.eye(2)), KERNEL)
    with pytest.raises(ValueError, match="^prior: .*projected"):
        rule(truth(1))
    grid = np.stack(np.meshgrid(*[np.linspace(-4.0, 4.0, 25)] * 2), axis=-1).reshape(-1, 2)
    result = rule(truth(1).projected(grid, 1e-8))
    draws = np.tanh(GaussianNoise(MATRIX @ PRIOR @ MATRIX.T + NOISE, OFFSET).sample(
        20_000, np.random.default_rng(0)
    ))  # fmt: skip
    # Monte Carlo with a standard error below 0.006.
    np.testing.assert_allclose(result.expectation(lambda x: x), draws.mean(axis=0), atol=0.02)


def test_control_input_changes_the_model_at_each_step() -> None:
    rule = ModelBasedSumRule(lambda x, shift: x + shift, GaussianNoise(0.1 * np.eye(2)), KERNEL)
    prior = KernelMean([[0.0, 0.0]], [1.0], KERNEL)
    for shift in (np.array([1.0, 0.0]), np.array([0.0, -2.0])):
        np.testing.assert_allclose(rule(prior, shift).points, [shift])
        at = np.array([[0.3, 0.1]])
        np.testing.assert_allclose(
            rule.gram(at, prior.points, shift)[:, 0], rule(prior, shift).evaluate(at)
        )


def test_rule_learnt_with_controls_follows_the_control() -> None:
    generator = np.random.default_rng(0)
    inputs = generator.uniform(-2.0, 2.0, (800, 1))
    controls = generator.uniform(-1.0, 1.0, (800, 1))
    outputs = inputs + controls + 0.05 * generator.standard_normal((800, 1))
    kernel = GaussianKernel(0.1)
    rule = NonparametricSumRule(inputs, outputs, kernel, kernel, 1e-5, controls, kernel)
    prior = KernelMean([[0.2]], [1.0], kernel)
    for control in (-0.6, 0.5):
        belief = rule(prior, [control]).normalized()
        assert belief.expectation(lambda x: x[:, 0]) == pytest.approx(0.2 + control, abs=0.06)
    with pytest.raises(ValueError, match="^control:"):
        rule(prior)


def test_equal_inputs_give_a_singular_gram_matrix_and_finite_weights() -> None:
    points = np.repeat(np.random.default_rng(0).normal(size=(5, 2)), 20, axis=0)
    rule = NonparametricSumRule(points, points, KERNEL, KERNEL, 1e-300)
    prior = KernelMean(points[:1], [1.0], KERNEL)
    assert np.isfinite(rule(prior).weights).all()
    assert rule(prior).distance(prior) < 1e-3


def test_prior_of_another_kernel_is_refused() -> None:
    rule = learnt_rule(10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="^prior:"):
        rule(KernelMean([[0.0, 0.0]], [1.0], GaussianKernel(np.eye(2))))
