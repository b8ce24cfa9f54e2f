import numpy as np
import pytest

from kbf_localization.embeddings import GaussianKernel, RidgeSolver
from kbf_localization.embeddings.linear_solver import conjugate_gradients


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


def test_conjugate_gradients_are_a_direct_solver() -> None:
    generator = np.random.default_rng(0)
    factor = generator.normal(size=(60, 80))
    matrix = factor @ factor.T + np.eye(60)
    right = generator.normal(size=60)
    solution = conjugate_gradients(lambda x: matrix @ x, right)
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(solution, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max())


def test_conjugate_gradients_of_nothing_are_nothing() -> None:
    np.testing.assert_array_equal(conjugate_gradients(lambda x: 2.0 * x, np.zeros(3)), np.zeros(3))
