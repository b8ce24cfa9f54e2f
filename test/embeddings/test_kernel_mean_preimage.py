import numpy as np
import pytest

from kbf_localization.embeddings import (
    CauchyNoise,
    DensityKernel,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    MaternKernel,
    MixtureNoise,
    RationalQuadraticKernel,
    preimage,
)

SCALE = np.array([[0.4, 0.1], [0.1, 0.3]])
MIXTURE = MixtureNoise(
    [0.3, 0.7], [GaussianNoise(0.2 * np.eye(2), [0.5, 0.1]), GaussianNoise(SCALE, [-0.3, 0.0])]
)


@pytest.mark.parametrize(
    ("kernel", "noise"),
    [
        (GaussianKernel(SCALE), None),
        (GaussianKernel(SCALE), MIXTURE),
        (RationalQuadraticKernel(SCALE), CauchyNoise(SCALE)),
        (MaternKernel(2.5, SCALE), None),
        (MaternKernel(0.5, SCALE), None),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_no_point_of_a_fine_grid_is_higher(
    kernel: DensityKernel, noise: GaussianNoise | MixtureNoise | CauchyNoise | None, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(30, 2))
    weights = generator.normal(0.5, 1.0, 30)
    mean = KernelMean(points, weights, kernel, noise)
    found = preimage(mean, starts=10)
    axis = np.linspace(-4.0, 4.0, 161)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    highest = mean.evaluate(grid).max()
    assert mean.evaluate(found[None])[0] >= highest * (1.0 - 1e-3)


def test_gaussian_fixed_point_is_the_papers() -> None:
    generator = np.random.default_rng(0)
    mean = KernelMean(generator.normal(size=(20, 2)), generator.random(20), GaussianKernel(SCALE))
    found = preimage(mean)
    pulls = mean.weights * mean.kernel.gram(found[None], mean.points)[0]
    np.testing.assert_allclose(found, pulls @ mean.points / pulls.sum(), atol=1e-6)


def test_higher_of_two_modes_wins_over_the_start_in_the_other() -> None:
    mean = KernelMean([[0.0, 0.0], [5.0, 0.0]], [0.4, 0.6], GaussianKernel(0.1 * np.eye(2)))
    np.testing.assert_allclose(preimage(mean), [5.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(preimage(mean, [[0.2, 0.1]]), [0.0, 0.0], atol=1e-6)


def test_start_far_from_everything_stays_where_it_is() -> None:
    mean = KernelMean([[0.0, 0.0]], [1.0], GaussianKernel(0.1 * np.eye(2)))
    np.testing.assert_array_equal(preimage(mean, [[1e3, 1e3]]), [1e3, 1e3])


def test_no_starts_are_refused() -> None:
    mean = KernelMean([[0.0, 0.0]], [1.0], GaussianKernel(np.eye(2)))
    with pytest.raises(ValueError, match="^starts:"):
        preimage(mean, 0)
