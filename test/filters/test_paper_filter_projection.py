"""The sparse projection on a large map against a direct solve of the whole system."""

import numpy as np

from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.noise import GaussianNoise
from kbf_localization.filters import paper_filter
from kbf_localization.filters.paper_filter import REACH, MapProjection, PoseSpace, scattered_weights


def poses_in_a_hall(count, side_m, seed=0):
    generator = np.random.default_rng(seed)
    return np.column_stack(
        [generator.uniform(0.0, side_m, (count, 2)), generator.uniform(-np.pi, np.pi, count)]
    )


def belief_in_places(space, places, seed=1):
    """A moved belief of ten points round each of so many map poses, some weights negative."""
    generator = np.random.default_rng(seed)
    centres = space.points[generator.choice(len(space), places, replace=False)]
    points = np.repeat(centres, 10, axis=0) + 0.1 * generator.normal(size=(10 * places, 4))
    weights = generator.normal(0.5, 0.4, len(points))
    return KernelMean(points, weights, space.kernel, GaussianNoise(0.05**2 * np.eye(4)))


def test_the_weights_are_those_of_a_direct_solve_on_the_same_rows() -> None:
    space = PoseSpace(poses_in_a_hall(1200, 40.0), 1.0, 0.4)
    mean = belief_in_places(space, 3)
    ridge = 0.1 * space.kernel.at_zero()
    rows = space.near(mean.points, REACH)
    weights = scattered_weights(space, ridge, mean, rows, REACH)

    points = space.points[rows]
    gram = space.kernel.gram(points, points)
    expected = np.linalg.solve(gram + ridge * np.eye(len(rows)), mean.evaluate(points))
    assert len(rows) < len(space)
    np.testing.assert_allclose(weights, expected, rtol=0.0, atol=1e-7 * np.abs(expected).max())


def test_on_a_large_map_a_belief_in_many_places_keeps_the_exact_weights(monkeypatch) -> None:
    """To 1e-5, which is what looking no farther than 7 kernel widths costs."""
    monkeypatch.setattr(paper_filter, "WHOLE_MAP_LIMIT", 500)
    monkeypatch.setattr(paper_filter, "DENSE_LIMIT", 300)
    space = PoseSpace(poses_in_a_hall(1000, 40.0), 1.0, 0.4)
    mean = belief_in_places(space, 20)
    ridge = 0.1 * space.kernel.at_zero()
    ours = MapProjection(space, ridge).weights(mean)
    gram = space.kernel.gram(space.points, space.points)
    exact = np.linalg.solve(gram + ridge * np.eye(len(space)), mean.evaluate(space.points))
    weights = np.zeros(len(space))
    weights[ours.rows] = ours.values
    assert len(ours.rows) > 300
    np.testing.assert_allclose(weights, exact, rtol=0.0, atol=1e-5 * np.abs(exact).max())
