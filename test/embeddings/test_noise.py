"""Noise of one's own, noise that depends on the state, and pairs that are not conjugate."""

from itertools import pairwise

import numpy as np
import pytest

from kbf_localization.embeddings import (
    AffineMap,
    CauchyNoise,
    ConjugacyError,
    Density,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    KernelMeanSum,
    ModelBasedSumRule,
    RationalQuadraticKernel,
    preimage,
)

KERNEL = GaussianKernel(0.3**2)


class UniformNoise(Density):
    """Three members: on [−1, 1]."""

    @property
    def dimension(self) -> int:
        return 1

    def __call__(self, points):
        return np.where(np.abs(np.asarray(points)[:, 0]) <= 1.0, 0.5, 0.0)

    def sample(self, count, generator):
        return generator.uniform(-1.0, 1.0, (count, 1))


def integral(noise: Density, at: float, centre: float) -> float:
    """∫ k(at, centre + e) p(e) de."""
    offsets = np.linspace(-30.0, 30.0, 60_001)
    values = KERNEL.gram([[at]], (centre + offsets)[:, None])[0] * noise(offsets[:, None])
    return float(values.sum() * (offsets[1] - offsets[0]))


@pytest.mark.parametrize("noise", [UniformNoise(), CauchyNoise(0.4**2)])
def test_a_pair_that_is_not_conjugate_is_sampled(noise: Density) -> None:
    with pytest.raises(ConjugacyError, match="samples"):
        ModelBasedSumRule(AffineMap([[2.0]]), noise, KERNEL)
    prior = KernelMean([[0.5], [-1.0]], [0.7, 0.3], KERNEL)
    at = np.array([[-2.5], [0.0], [1.2]])
    exact = np.array(
        [0.7 * integral(noise, x, 1.0) + 0.3 * integral(noise, x, -2.0) for x in at[:, 0]]
    )
    errors = []
    for samples in (20, 400, 8000):
        rule = ModelBasedSumRule(AffineMap([[2.0]]), noise, KERNEL, samples=samples, seed=3)
        posterior = rule(prior)
        np.testing.assert_allclose(
            rule.gram(at, prior.points) @ prior.weights, posterior.evaluate(at)
        )
        assert posterior.weights.sum() == pytest.approx(1.0)
        errors.append(np.abs(posterior.evaluate(at) - exact).max())
    assert all(later < earlier for earlier, later in pairwise(errors))
    # Three standard errors of a mean of draws within [0, k(0)].
    assert errors[-1] < 3.0 * 0.5 * KERNEL.at_zero() / np.sqrt(8000.0)


def test_own_noise_has_expectations_a_reflection_and_a_name() -> None:
    noise = UniformNoise()
    nodes, weights = noise.quadrature(32)
    assert weights @ nodes[:, 0] ** 2 == pytest.approx(1.0 / 3.0, abs=0.03)
    shifted = np.array([[0.2], [1.3]])
    np.testing.assert_allclose(noise.pairwise(shifted, [[0.0], [1.0]]), [[0.5, 0.5], [0.0, 0.5]])
    reflected = noise.reflected()
    np.testing.assert_allclose(reflected(shifted), noise(-shifted))
    assert reflected.reflected() is noise and noise.same_as(noise)
    assert repr(noise) == "UniformNoise(1 dimensions)"


def at_peak(mean: KernelMean) -> float:
    """Where a kernel mean on the line is highest."""
    grid = np.linspace(-4.0, 5.0, 9001)
    return float(grid[np.argmax(mean.evaluate(grid))])


def test_noise_may_depend_on_the_state() -> None:
    """A wheel that slips on the wet half: each point has its own Gaussian."""
    dry, wet = GaussianNoise(0.1**2), GaussianNoise(0.8**2)
    rule = ModelBasedSumRule(
        AffineMap([[1.0]], [0.5]), lambda x: [wet if item > 0 else dry for item in x[:, 0]], KERNEL
    )
    points, weights = np.array([[-1.0], [2.0], [-2.0]]), np.array([0.2, 0.5, 0.3])
    mean = rule(KernelMean(points, weights, KERNEL))
    assert isinstance(mean, KernelMeanSum) and len(mean.parts) == 2
    at = np.linspace(-3.0, 4.0, 15)[:, None]
    variances = 0.3**2 + np.array([0.1, 0.8, 0.1]) ** 2
    offsets = at - (points + 0.5).T
    gaussians = np.exp(-0.5 * offsets**2 / variances) / np.sqrt(2.0 * np.pi * variances)
    np.testing.assert_allclose(mean.evaluate(at), gaussians @ weights, rtol=1e-10)
    np.testing.assert_allclose(rule.gram(at, points), gaussians, rtol=1e-10)
    second_moment = mean.expectation(lambda x: x[:, 0] ** 2)
    expected = weights @ ((points[:, 0] + 0.5) ** 2 + np.array([0.1, 0.8, 0.1]) ** 2)
    assert second_moment == pytest.approx(expected)
    # ‖m‖² = Σ w_i w_j N(x_i − x_j; R + Σ_i + Σ_j).
    ends = points[:, 0] + 0.5
    spread = variances[:, None] + variances - 0.3**2
    products = np.exp(-0.5 * (ends[:, None] - ends) ** 2 / spread) / np.sqrt(2 * np.pi * spread)
    assert mean.norm() ** 2 == pytest.approx(weights @ products @ weights)
    assert mean.distance(mean.normalized()) == pytest.approx(0.0, abs=1e-7)
    with pytest.raises(ValueError, match="^mean:"):
        preimage(mean)
    highest = preimage(mean.projected(np.linspace(-4.0, 5.0, 91), 1e-8))
    assert highest[0] == pytest.approx(at_peak(mean), abs=0.02)
    # Another step by an affine model adds its noise to each part.
    further = ModelBasedSumRule(AffineMap([[1.0]]), GaussianNoise(0.2**2), KERNEL)(mean)
    wider = variances + 0.2**2
    gaussians = np.exp(-0.5 * offsets**2 / wider) / np.sqrt(2.0 * np.pi * wider)
    np.testing.assert_allclose(further.evaluate(at), gaussians @ weights, rtol=1e-10)


def test_a_noise_model_must_give_a_density_for_each_point() -> None:
    rule = ModelBasedSumRule(AffineMap([[1.0]]), lambda x: [GaussianNoise(1.0)], KERNEL)
    with pytest.raises(ValueError, match="^noise:"):
        rule(KernelMean([[0.0], [1.0]], None, KERNEL))


@pytest.mark.parametrize("width", [0.5, 2.0])
def test_bounded_functions_have_expectations_under_cauchy_noise(width: float) -> None:
    """E[1/(1 + x²)] = 1/(1 + γ), E[cos(x − a)] = e^(−γ) cos a, E[x > 0] by the arc tangent."""
    mean = KernelMean([[0.7]], [1.0], RationalQuadraticKernel(1.0), CauchyNoise(width**2))
    bump = mean.expectation(lambda x: 1.0 / (1.0 + (x[:, 0] - 0.7) ** 2))
    assert bump == pytest.approx(1.0 / (1.0 + width), abs=1e-6)
    positive = mean.expectation(lambda x: (x[:, 0] > 0.0).astype(float), order=64)
    assert positive == pytest.approx(0.5 + np.arctan(0.7 / width) / np.pi, abs=5e-3)


@pytest.mark.parametrize("dimension", [2, 3])
def test_expectations_under_cauchy_noise_of_several_dimensions(dimension: int) -> None:
    """E[κ(x)] of a Cauchy density κ of a proportional scale is their convolution at zero."""
    scale = np.eye(dimension) + 0.3
    noise, other = CauchyNoise(0.5 * scale, np.full(dimension, 0.4)), CauchyNoise(scale)
    mean = KernelMean(np.zeros((1, dimension)), [1.0], RationalQuadraticKernel(scale), noise)
    expected = other.convolve(noise)(np.zeros((1, dimension)))[0]
    assert mean.expectation(other) == pytest.approx(expected, rel=0.02)
