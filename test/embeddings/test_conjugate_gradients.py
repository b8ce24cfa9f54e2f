"""Conjugate gradients against a direct solver."""

import numpy as np

from kbf_localization.embeddings.conjugate_gradients import conjugate_gradients


def test_the_solution_is_that_of_a_direct_solver() -> None:
    generator = np.random.default_rng(0)
    factor = generator.normal(size=(60, 80))
    matrix = factor @ factor.T + np.eye(60)
    right = generator.normal(size=60)
    solution = conjugate_gradients(lambda x: matrix @ x, right)
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(solution, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max())


def test_nothing_gives_nothing() -> None:
    np.testing.assert_array_equal(conjugate_gradients(lambda x: 2.0 * x, np.zeros(3)), np.zeros(3))
