import numpy as np
import pytest

from kbf_localization.embeddings import (
    DensityKernel,
    GaussianKernel,
    LaplaceKernel,
    MaternKernel,
    RationalQuadraticKernel,
)

SCALE = np.array([[0.5, 0.1], [0.1, 0.3]])
KERNELS = [
    GaussianKernel(SCALE),
    RationalQuadraticKernel(SCALE),
    MaternKernel(0.7, SCALE),
    MaternKernel(2.5, SCALE),
    LaplaceKernel(SCALE),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_gram_matrix_is_symmetric_and_positive_definite(kernel: DensityKernel) -> None:
    points = np.random.default_rng(0).normal(size=(40, 2))
    gram = kernel.gram(points, points)
    np.testing.assert_allclose(gram, gram.T, rtol=1e-12)
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * gram[0, 0]
    np.testing.assert_allclose(np.diag(gram), kernel.at_zero(), rtol=1e-12)


def test_gaussian_kernel_has_the_factor_one_half() -> None:
    difference = np.array([[0.4, -0.7]])
    exponent = -0.5 * (difference @ np.linalg.inv(SCALE) @ difference.T)[0, 0]
    expected = np.exp(exponent) / (2.0 * np.pi * np.sqrt(np.linalg.det(SCALE)))
    value = GaussianKernel(SCALE).gram(difference, np.zeros((1, 2)))[0, 0]
    assert value == pytest.approx(expected, rel=1e-12)


def test_laplace_kernel_is_an_exponential_of_the_distance() -> None:
    points = np.random.default_rng(1).normal(size=(10, 2))
    distances = np.sqrt(np.einsum("ni,ij,nj->n", points, np.linalg.inv(SCALE), points))
    values = LaplaceKernel(SCALE).gram(points, np.zeros((1, 2)))[:, 0]
    np.testing.assert_allclose(
        values / LaplaceKernel(SCALE).at_zero(), np.exp(-distances), rtol=1e-10
    )


def test_matern_three_halves_has_its_polynomial_form() -> None:
    points = np.random.default_rng(2).normal(size=(10, 1))
    kernel = MaternKernel(1.5, 0.6)
    scaled = np.sqrt(3.0) * np.abs(points[:, 0]) / np.sqrt(0.6)
    expected = kernel.at_zero() * (1.0 + scaled) * np.exp(-scaled)
    np.testing.assert_allclose(kernel.gram(points, [0.0])[:, 0], expected, rtol=1e-10)


def test_kernels_are_the_same_only_with_equal_parameters() -> None:
    assert MaternKernel(0.5, SCALE).same_as(LaplaceKernel(SCALE))
    assert not GaussianKernel(SCALE).same_as(GaussianKernel(2.0 * SCALE))
    assert not GaussianKernel(SCALE).same_as(RationalQuadraticKernel(SCALE))
