import numpy as np
import pytest

from kbf_localization.embeddings import GaussianKernel, RidgeSolver


@pytest.mark.parametrize("columns", [None, 3])
def test_solves_the_regularized_system(columns: int | None) -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(30, 2))
    gram = GaussianKernel(0.2 * np.eye(2)).gram(points, points)
    values = generator.normal(size=30 if columns is None else (30, columns))
    solution = RidgeSolver(gram, 0.01).solve(values)
    np.testing.assert_allclose((gram + 0.01 * np.eye(30)) @ solution, values, atol=1e-10)


def test_leaves_the_gram_matrix_as_it_was() -> None:
    gram = np.eye(4)
    RidgeSolver(gram, 1.0)
    np.testing.assert_array_equal(gram, np.eye(4))


def test_matrix_singular_to_working_precision_still_gives_a_least_squares_like_answer() -> None:
    gram = np.ones((50, 50))
    solution = RidgeSolver(gram, 1e-300).solve(np.ones(50))
    assert np.isfinite(solution).all()
    np.testing.assert_allclose(gram @ solution, np.ones(50), rtol=1e-6)
