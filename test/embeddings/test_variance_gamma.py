import numpy as np
import pytest
from scipy.special import gammaln, kve

from kbf_localization.embeddings import GaussianKernel, MaternKernel
from kbf_localization.embeddings.variance_gamma import log_scaled_bessel


@pytest.mark.parametrize("order", [0.3, 0.5, 2.0, 7.5, 59.0, 61.0, 90.0, 200.0])
def test_agrees_with_scipy_where_that_does_not_overflow(order: float) -> None:
    x = np.linspace(0.5 * order + 0.1, 4.0 * order + 5.0, 40)
    expected = order * np.log(x) + np.log(kve(order, x)) - x
    np.testing.assert_allclose(log_scaled_bessel(order, x), expected, rtol=1e-11)


@pytest.mark.parametrize("order", [0.1, 0.5, 1.0, 20.0, 60.0, 61.0, 500.0])
def test_has_its_limit_at_zero(order: float) -> None:
    expected = (order - 1.0) * np.log(2.0) + gammaln(order)
    values = log_scaled_bessel(order, np.array([0.0, 1e-200]))
    np.testing.assert_allclose(values[0], expected, rtol=1e-11)
    assert np.isfinite(values).all()


def test_is_zero_and_not_a_number_far_out() -> None:
    values = np.exp(log_scaled_bessel(1.5, np.array([700.0, 1e4, 1e9])))
    assert (values >= 0.0).all() and values[-1] == 0.0


def test_matern_kernel_becomes_the_gaussian_kernel_as_its_smoothness_grows() -> None:
    scale = np.array([[1.0, 0.3], [0.3, 0.5]])
    at = np.random.default_rng(0).normal(size=(20, 2))
    gaussian = GaussianKernel(scale).gram(at, np.zeros((1, 2)))
    errors = [
        np.abs(MaternKernel(nu, scale).gram(at, np.zeros((1, 2))) / gaussian - 1.0).max()
        for nu in (10.0, 100.0, 1000.0)
    ]
    assert errors[0] > 5.0 * errors[1] > 25.0 * errors[2]
