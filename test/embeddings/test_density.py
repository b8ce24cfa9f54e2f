"""Densities and their convolutions against numerical integration."""

from collections.abc import Callable

import numpy as np
import pytest

from kbf_localization.embeddings import (
    CauchyNoise,
    ConjugacyError,
    Density,
    DensityKernel,
    GaussianKernel,
    GaussianNoise,
    LaplaceKernel,
    MaternKernel,
    MixtureNoise,
    RationalQuadraticKernel,
    VarianceGammaNoise,
)
from test.embeddings.integration import (
    integral_on_box,
    integral_on_line,
    integral_round_two_points,
    random_scale,
)

Pair = tuple[DensityKernel, Density]
SEEDS = range(4)


def gaussian_pair(generator: np.random.Generator, dimension: int) -> Pair:
    noise = GaussianNoise(random_scale(generator, dimension), generator.normal(size=dimension))
    return GaussianKernel(random_scale(generator, dimension)), noise


def cauchy_pair(generator: np.random.Generator, dimension: int) -> Pair:
    scale = random_scale(generator, dimension)
    kernel = RationalQuadraticKernel(generator.uniform(0.3, 3.0) * scale)
    return kernel, CauchyNoise(scale, generator.normal(size=dimension))


def matern_pair(generator: np.random.Generator, dimension: int) -> Pair:
    scale, nu = random_scale(generator, dimension), generator.uniform(0.6, 4.0)
    shape = dimension / 2.0 + generator.uniform(0.6, 3.0)
    noise = VarianceGammaNoise(shape, np.sqrt(2.0 * nu), scale, generator.normal(size=dimension))
    return MaternKernel(nu, scale), noise


def laplace_pair(generator: np.random.Generator, dimension: int) -> Pair:
    scale = random_scale(generator, dimension)
    # Laplace noise has α = 1, and so has the Laplace kernel, the Matérn kernel with 2ν = 1.
    return LaplaceKernel(scale), VarianceGammaNoise.laplace(scale, generator.normal(size=dimension))


PAIRS = [gaussian_pair, cauchy_pair, matern_pair, laplace_pair]
MakePair = Callable[[np.random.Generator, int], Pair]


def location_of(noise: Density) -> np.ndarray:
    return noise.components()[0][1].location


def scale_of(noise: Density) -> np.ndarray:
    return noise.components()[0][1].scale


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", PAIRS)
def test_density_on_the_line_integrates_to_one(make: MakePair, seed: int) -> None:
    kernel, noise = make(np.random.default_rng(seed), 1)
    assert integral_on_line(noise, location_of(noise)) == pytest.approx(1.0, rel=1e-6)
    assert integral_on_line(kernel.profile, [0.0]) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", PAIRS)
def test_density_in_the_plane_integrates_to_one(make: MakePair, seed: int) -> None:
    kernel, noise = make(np.random.default_rng(seed), 2)
    for density in (noise, kernel.profile):
        # A second focus beside the location; the elliptic coordinates reach 1e10 far.
        centre = location_of(density)
        other = centre + np.linalg.cholesky(scale_of(density))[:, 0]
        total = integral_round_two_points(density, centre, other, scale_of(density))
        assert total == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", PAIRS)
def test_conditional_kernel_mean_on_the_line_is_the_integral(make: MakePair, seed: int) -> None:
    generator = np.random.default_rng(seed)
    kernel, noise = make(generator, 1)
    moved, at = generator.normal(size=(2, 1, 1))
    value = kernel.smoothed(noise).pairwise(at, moved)[0, 0]
    breaks = [at[0, 0], moved[0, 0] + location_of(noise)[0]]
    expected = integral_on_line(lambda y: kernel.gram(y, at)[:, 0] * noise(y - moved), breaks)
    assert value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", PAIRS[1:])
def test_conditional_kernel_mean_in_the_plane_is_the_integral(make: MakePair, seed: int) -> None:
    generator = np.random.default_rng(seed)
    kernel, noise = make(generator, 2)
    moved, at = generator.normal(size=(2, 1, 2))
    value = kernel.smoothed(noise).pairwise(at, moved)[0, 0]
    expected = integral_round_two_points(
        lambda y: kernel.gram(y, at)[:, 0] * noise(y - moved),
        at[0],
        moved[0] + location_of(noise),
        scale_of(noise),
    )
    assert value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("parts", [1, 3])
def test_gaussian_mixture_in_the_plane_has_the_integral_as_kernel_mean(
    parts: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    kernel = GaussianKernel(random_scale(generator, 2))
    noise = MixtureNoise(
        generator.dirichlet(np.ones(parts)),
        [GaussianNoise(random_scale(generator, 2), generator.normal(size=2)) for _ in range(parts)],
    )
    moved, at = generator.normal(size=(2, 1, 2))
    value = kernel.smoothed(noise).pairwise(at, moved)[0, 0]
    expected = integral_on_box(
        lambda y: kernel.gram(y, at)[:, 0] * noise(y - moved), moved[0], 14.0
    )
    assert value == pytest.approx(expected, rel=1e-6)
    assert integral_on_box(noise, np.zeros(2), 14.0) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("kernel", "noise"),
    [
        (GaussianKernel(np.eye(2)), CauchyNoise(np.eye(2))),
        (GaussianKernel(np.eye(2)), VarianceGammaNoise.laplace(np.eye(2))),
        (RationalQuadraticKernel(np.eye(2)), GaussianNoise(np.eye(2))),
        (RationalQuadraticKernel(np.eye(2)), CauchyNoise(np.diag([1.0, 2.0]))),
        (MaternKernel(1.5, np.eye(2)), GaussianNoise(np.eye(2))),
        (MaternKernel(1.5, np.eye(2)), VarianceGammaNoise.laplace(np.eye(2))),
        (
            GaussianKernel(np.eye(2)),
            MixtureNoise([0.5, 0.5], [GaussianNoise(np.eye(2)), CauchyNoise(np.eye(2))]),
        ),
    ],
)
def test_pair_that_is_not_conjugate_is_refused(kernel: DensityKernel, noise: Density) -> None:
    with pytest.raises(ConjugacyError, match="^noise: .*closed form.*conjugate"):
        kernel.smoothed(noise)


@pytest.mark.parametrize("make", PAIRS)
def test_slope_is_the_derivative_of_the_density(make: MakePair) -> None:
    _, noise = make(np.random.default_rng(7), 2)
    density = noise.components()[0][1]
    squared = np.linspace(0.1, 9.0, 30)
    step = 1e-5
    expected = (density.radial(squared - step) - density.radial(squared + step)) / (2.0 * step)
    np.testing.assert_allclose(density.radial_slope(squared), expected, rtol=1e-6)


@pytest.mark.parametrize("make", PAIRS)
def test_samples_are_distributed_as_the_density(make: MakePair) -> None:
    _, noise = make(np.random.default_rng(3), 1)
    centre = location_of(noise)[0]
    samples = noise.sample(20_000, np.random.default_rng(0))[:, 0]
    for edge in centre + np.array([-0.8, 0.0, 0.5]):
        below = integral_on_line(
            lambda x, edge=edge: np.where(x[:, 0] < edge, noise(x), 0.0), [edge, centre]
        )
        # Four standard errors of a fraction.
        assert np.mean(samples < edge) == pytest.approx(below, abs=2.0 / np.sqrt(20_000))


def test_mixture_draws_each_part_in_proportion() -> None:
    parts = [GaussianNoise(1e-4 * np.eye(1), [centre]) for centre in (-1.0, 1.0)]
    samples = MixtureNoise([0.3, 0.7], parts).sample(10_000, np.random.default_rng(1))
    assert np.mean(samples > 0.0) == pytest.approx(0.7, abs=0.02)


def test_push_forward_is_the_density_of_the_transformed_draw() -> None:
    matrix = np.array([[1.0, 2.0], [0.5, -1.0]])
    noise = VarianceGammaNoise(2.0, 1.3, np.array([[1.0, 0.2], [0.2, 0.5]]), [0.3, -0.4])
    points = np.random.default_rng(0).normal(size=(5, 2))
    # Change of variables: the density at A x is the density at x over |det A|.
    expected = noise(points) / abs(np.linalg.det(matrix))
    np.testing.assert_allclose(noise.pushed(matrix)(points @ matrix.T), expected, rtol=1e-10)
