import numpy as np
import pytest

from kbf_localization.embeddings import (
    CauchyNoise,
    Density,
    DensityKernel,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    LaplaceKernel,
    MixtureNoise,
    RationalQuadraticKernel,
    VarianceGammaNoise,
)
from test.embeddings.integration import integral_on_line

SKEWED = MixtureNoise([0.2, 0.8], [GaussianNoise(0.3, [1.0]), GaussianNoise(0.1, [-0.4])])
CASES: list[tuple[DensityKernel, Density, Density]] = [
    (GaussianKernel(0.4), GaussianNoise(0.5, [0.3]), GaussianNoise(0.2)),
    (GaussianKernel(0.4), SKEWED, GaussianNoise(0.3, [0.5])),
    (RationalQuadraticKernel(0.4), CauchyNoise(0.5, [0.2]), CauchyNoise(0.1)),
    (LaplaceKernel(0.6), VarianceGammaNoise(1.4, 1.0, 0.6), VarianceGammaNoise.laplace(0.6, [0.4])),
]


def random_mean(
    kernel: DensityKernel, noise: Density | None, seed: int, count: int = 3
) -> KernelMean:
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(count, kernel.dimension))
    return KernelMean(points, generator.normal(size=count), kernel, noise)


@pytest.mark.parametrize(("kernel", "first", "second"), CASES)
@pytest.mark.parametrize("swapped", [False, True])
def test_inner_product_of_noisy_means_is_the_integral_of_one_under_the_other(
    kernel: DensityKernel, first: Density, second: Density, swapped: bool
) -> None:
    # ⟨m, m'⟩ = ∫ m(y) q(y) dy, with q the weighted density that m' embeds.
    mean = random_mean(kernel, second if swapped else first, 0)
    other = random_mean(kernel, first if swapped else second, 1)
    assert other.noise is not None
    density = other.noise

    def integrand(y: np.ndarray) -> np.ndarray:
        return mean.evaluate(y) * (density.pairwise(y, other.points) @ other.weights)

    shifts = [part.location[0] for _, part in density.components()]
    breaks = [float(point + shift) for point in other.points[:, 0] for shift in shifts]
    assert mean.inner(other) == pytest.approx(integral_on_line(integrand, breaks), rel=1e-6)
    assert mean.inner(other) == pytest.approx(other.inner(mean), rel=1e-10)


@pytest.mark.parametrize(("kernel", "first", "second"), CASES)
def test_norm_is_positive_and_distance_to_itself_is_zero(
    kernel: DensityKernel, first: Density, second: Density
) -> None:
    for noise in (None, first, second):
        mean = random_mean(kernel, noise, 2)
        assert mean.norm() > 0.0
        assert mean.distance(mean) == pytest.approx(0.0, abs=1e-7 * mean.norm())
        assert mean.distance(random_mean(kernel, first, 3)) > 0.0


def test_reproducing_property_gives_the_value_at_a_point() -> None:
    kernel = GaussianKernel(np.array([[0.5, 0.1], [0.1, 0.4]]))
    mean = random_mean(kernel, GaussianNoise(0.2 * np.eye(2), [0.1, 0.3]), 4)
    at = np.array([[0.3, -0.2]])
    assert KernelMean(at, [1.0], kernel).inner(mean) == pytest.approx(mean.evaluate(at)[0])


def test_expectation_without_noise_is_the_weighted_sum() -> None:
    mean = random_mean(GaussianKernel(np.eye(2)), None, 5)
    np.testing.assert_allclose(mean.expectation(lambda x: x), mean.weights @ mean.points)


@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        (GaussianNoise(0.7, [0.2]), 0.7),
        # A gamma variable of shape λ and rate α²/2 has the mean 2λ/α².
        (VarianceGammaNoise(2.5, 1.3, 0.6, [0.2]), 0.6 * 2.0 * 2.5 / 1.3**2),
    ],
)
def test_expectation_with_noise_has_the_moments_of_the_noise(
    noise: Density, variance: float
) -> None:
    location = noise.components()[0][1].location[0]
    kernel = GaussianKernel(0.3) if isinstance(noise, GaussianNoise) else None
    points, weights = np.array([[0.5], [-1.0]]), np.array([0.3, 0.7])
    # The second noise is conjugate to the Matérn kernel of Σ/α² = 0.6/1.69, here ν = 1/2.
    mean = KernelMean(points, weights, kernel or LaplaceKernel(0.6 / 1.3**2), noise)
    centred = points[:, 0] + location
    assert mean.expectation(lambda x: x[:, 0]) == pytest.approx(weights @ centred)
    expected = weights @ (centred**2 + variance)
    assert mean.expectation(lambda x: x[:, 0] ** 2) == pytest.approx(expected, rel=1e-9)


def test_unbounded_function_is_refused_under_cauchy_noise() -> None:
    mean = KernelMean([[0.0]], [1.0], RationalQuadraticKernel(1.0), CauchyNoise(1.0))
    with pytest.raises(ValueError, match="^function:"):
        mean.expectation(lambda x: x)


def test_sample_mean_approaches_the_true_kernel_mean_at_the_root_of_n() -> None:
    kernel = GaussianKernel(0.5 * np.eye(2))
    truth = KernelMean(np.zeros((1, 2)), [1.0], kernel, GaussianNoise(np.eye(2)))
    generator = np.random.default_rng(0)
    distances = [
        np.mean(
            [
                KernelMean(generator.standard_normal((count, 2)), None, kernel).distance(truth)
                for _ in range(10)
            ]
        )
        for count in (50, 200, 800)
    ]
    assert distances[0] / distances[1] == pytest.approx(2.0, rel=0.35)
    assert distances[1] / distances[2] == pytest.approx(2.0, rel=0.35)


def test_projection_on_a_fine_grid_stays_close_to_the_mean() -> None:
    kernel = GaussianKernel(0.5)
    mean = random_mean(kernel, GaussianNoise(0.2), 6)
    projected = mean.projected(np.linspace(-5.0, 5.0, 101), 1e-10)
    assert projected.noise is None
    assert mean.distance(projected) < 1e-3 * mean.norm()


def test_means_of_different_kernels_have_no_inner_product() -> None:
    mean = random_mean(GaussianKernel(1.0), None, 7)
    with pytest.raises(ValueError, match="^other:"):
        mean.inner(random_mean(GaussianKernel(2.0), None, 7))
