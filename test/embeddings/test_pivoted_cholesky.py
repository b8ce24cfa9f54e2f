import numpy as np
import pytest
from scipy.linalg.lapack import dpstrf

from kbf_localization.embeddings import GaussianKernel, low_rank_factor, pivoted_cholesky

POINTS = np.random.default_rng(0).uniform(-1.0, 1.0, (120, 2))
KERNEL = GaussianKernel(np.eye(2))
GRAM = KERNEL.gram(POINTS, POINTS)


def test_complete_factor_gives_the_matrix_back() -> None:
    factor = low_rank_factor(GRAM, len(GRAM))
    np.testing.assert_allclose(factor @ factor.T, GRAM, atol=1e-10)
    assert factor.shape[1] < len(GRAM)


def test_error_falls_with_the_rank_and_is_largest_on_the_diagonal() -> None:
    previous = np.inf
    for rank in (5, 10, 20, 40):
        factor = low_rank_factor(GRAM, rank)
        error = GRAM - factor @ factor.T
        assert np.abs(error).max() <= np.diag(error).max() + 1e-12
        assert np.diag(error).max() < previous
        previous = np.diag(error).max()


def test_it_is_lapacks_pivoted_cholesky_cut_at_the_rank() -> None:
    scaled = np.outer(1.0 + POINTS[:, 0] / 3.0, 1.0 + POINTS[:, 0] / 3.0) * GRAM
    upper, pivots, _, _ = dpstrf(scaled, tol=1e-12)
    expected = np.zeros((len(GRAM), 20))
    expected[pivots - 1] = np.triu(upper)[:20].T
    np.testing.assert_allclose(low_rank_factor(scaled, 20), expected, atol=1e-10)


def test_only_the_chosen_columns_are_asked_for() -> None:
    asked: list[int] = []

    def column(pivot: int) -> np.ndarray:
        asked.append(pivot)
        return KERNEL.gram(POINTS, POINTS[pivot][None])[:, 0]

    factor = pivoted_cholesky(np.full(len(POINTS), KERNEL.at_zero()), column, 15)
    np.testing.assert_allclose(factor, low_rank_factor(GRAM, 15), atol=1e-10)
    assert len(set(asked)) == 15


def test_rank_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="^rank:"):
        low_rank_factor(GRAM, 0)
