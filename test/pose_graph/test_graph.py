"""The graph on SE(2), against truth, numeric derivatives and the dense inverse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.pose_graph.edges import (
    SCALE_SIGMA,
    SCALE_STRETCH_M,
    Edges,
    OdometryEdges,
    whitening_of,
)
from kbf_localization.pose_graph.graph import (
    SCALE_STEP_M,
    Anchors,
    PoseGraph,
    ScaleErrors,
    chi2_of,
    residuals_of,
)

ORIGIN = Anchors(np.zeros(1, np.intp), np.zeros((1, 3)), np.full((1, 3), 1e-4), np.zeros(1, bool))


def _loop(
    nodes: int = 60, bias: float = 0.0, scale: float = 0.0, noise: float = 0.0, seed: int = 0
):
    """A loop driven one and a half times, with wheels that err as given; truth and edges."""
    rng = np.random.default_rng(seed)
    steps = np.tile([0.2, 0.0, 3.0 * np.pi / nodes], (nodes - 1, 1))
    truth = [np.zeros(3)]
    for step in steps:
        truth.append(compose(truth[-1], step))
    away = (steps[:, 2] * scale + bias) / (1.0 - scale)
    cos, sin = np.cos(0.5 * away), np.sin(0.5 * away)
    wheels = np.column_stack((0.2 * cos, 0.2 * sin, steps[:, 2] + away))
    wheels += noise * rng.standard_normal(wheels.shape) * [1.0, 1.0, 0.5]
    first = np.arange(nodes - 1)
    sigma = np.array([0.01, 0.01, 0.005]) ** 2
    edges = OdometryEdges(
        first,
        first + 1,
        wheels,
        whitening_of(np.tile(np.diag(sigma), (nodes - 1, 1, 1))),
        np.zeros(nodes - 1, np.intp),
        np.ones(nodes - 1),
    )
    return np.array(truth), edges


def _closures(truth, pairs, wrong=()):
    first, second = np.array(pairs, dtype=np.intp).T
    motions = relative(truth[first], truth[second])
    for row in wrong:
        motions[row] += [1.5, -1.0, 0.4]
    sigma = np.diag(np.array([0.02, 0.02, 0.01]) ** 2)
    return Edges(first, second, motions, whitening_of(np.tile(sigma, (len(first), 1, 1))))


def _start(edges: OdometryEdges) -> np.ndarray:
    poses = [np.zeros(3)]
    for motion in edges.motions:
        poses.append(compose(poses[-1], motion))
    return np.array(poses)


PAIRS = [(row, row + 40) for row in range(0, 20, 2)]


def test_exact_closures_reveal_heading_bias_and_turn_scale() -> None:
    truth, edges = _loop(bias=0.01, scale=0.03)
    graph = PoseGraph(60, 1, edges, _closures(truth, PAIRS), ORIGIN)
    solved = graph.solve(_start(edges))
    assert np.abs(relative(truth, solved.poses)).max() < 0.02
    turn = 3.0 * np.pi / 60
    found = solved.wheels[0, 0] + solved.wheels[0, 1] * edges.motions[0, 2]
    assert found == pytest.approx(edges.motions[0, 2] - turn, abs=5e-4)


def test_wrong_closures_are_ignored() -> None:
    truth, edges = _loop(noise=0.002)
    right = PoseGraph(60, 1, edges, _closures(truth, PAIRS), ORIGIN).solve(_start(edges))
    closures = _closures(truth, PAIRS, wrong=(1, 5, 8))
    solved = PoseGraph(60, 1, edges, closures, ORIGIN).solve(_start(edges))
    assert np.abs(relative(right.poses, solved.poses)).max() < 0.02
    assert set(np.flatnonzero(solved.closure_chi2 > 25.0)) == {1, 5, 8}


def test_residuals_have_the_numeric_derivatives() -> None:
    rng = np.random.default_rng(1)
    poses = rng.normal(size=(2, 3))
    motion = rng.normal(size=(1, 3)) * 0.3
    rows = np.zeros(1, np.intp), np.ones(1, np.intp)
    _, by_first, by_second = residuals_of(*rows, motion, poses)
    for node, derivative in enumerate((by_first, by_second)):
        for axis in range(3):
            step = np.zeros((2, 3))
            step[node, axis] = 1e-6
            ahead, _, _ = residuals_of(*rows, motion, poses + step)
            back, _, _ = residuals_of(*rows, motion, poses - step)
            numeric = wrap_angle((ahead - back)[0]) / 2e-6
            assert derivative[0, :, axis] == pytest.approx(numeric, abs=1e-6)


def test_wheel_errors_have_the_numeric_derivatives() -> None:
    _, edges = _loop(5)
    wheels = np.array([[0.02, 0.04]])
    found = edges.by_wheels(wheels)
    for axis in range(2):
        step = np.zeros((1, 2))
        step[0, axis] = 1e-6
        numeric = (edges.corrected(wheels - step) - edges.corrected(wheels + step)) / 2e-6
        assert found[:, :, axis] == pytest.approx(numeric, abs=1e-6)


def test_covariance_is_the_scatter_of_many_noisy_loops() -> None:
    sigma = np.array([0.01, 0.01, 0.005])
    ends, predicted = [], None
    for seed in range(150):
        truth, edges = _loop(40, noise=0.01, seed=seed)
        rng = np.random.default_rng(1000 + seed)
        closures = _closures(truth, [(2, 36)])
        closures.motions[:] += rng.normal(size=(1, 3)) * [0.02, 0.02, 0.01]
        # Wheels without systematic errors are known to be so here.
        still = OdometryEdges(
            edges.first,
            edges.second,
            edges.motions,
            edges.whitening,
            edges.drive,
            np.zeros(len(edges)),
        )
        graph = PoseGraph(40, 1, still, closures, ORIGIN)
        solved = graph.solve(truth, robust=False)
        ends.append(solved.poses[20] - truth[20])
        if predicted is None:
            predicted = graph.covariances(solved)[20]
    scatter = np.cov(np.array(ends).T)
    assert predicted is not None
    assert sigma[0] < np.sqrt(predicted[0, 0])
    assert np.diag(predicted) == pytest.approx(np.diag(scatter), rel=0.45)


def test_a_scale_of_all_distances_makes_no_edge_fit_better() -> None:
    """Else the likelihood of a scale would prefer short wheels, whose residuals are small."""
    truth, edges = _loop(30, noise=0.02)
    for scale in (0.9, 1.2):
        found = chi2_of(edges.scaled(scale), truth * (scale, scale, 1.0))
        assert found == pytest.approx(chi2_of(edges, truth))


def test_distances_that_err_alike_add_up_along_a_straight_path() -> None:
    """The variance of a sum of correlated errors, against the double sum over all edges."""
    count, step, white = 100, 0.2, 0.001
    first = np.arange(count)
    edges = OdometryEdges(
        first,
        first + 1,
        np.tile([step, 0.0, 0.0], (count, 1)),
        np.tile(np.eye(3) / white, (count, 1, 1)),
        np.zeros(count, np.intp),
        np.zeros(count),
    )
    path = step * np.arange(count + 1)
    poses = np.column_stack((path, 0.0 * path, 0.0 * path))
    graph = PoseGraph(count + 1, 1, edges, Edges.none(), ORIGIN)
    scales = ScaleErrors.along(edges, path)
    found = graph.covariances(graph.solve(poses), scales)
    apart = np.abs(scales.unknown_of[:, None] - scales.unknown_of) * SCALE_STEP_M
    alike = SCALE_SIGMA**2 * np.exp(-apart / SCALE_STRETCH_M)
    for end in (10, 50, 100):
        expected = step**2 * alike[:end, :end].sum() + end * white**2
        assert found[end, 0, 0] == pytest.approx(expected, rel=1e-3)


def test_distances_of_two_drives_err_independently() -> None:
    edges = _loop(30)[1]
    drives = np.repeat([0, 1], [14, len(edges) - 14])
    scales = ScaleErrors.along(replace(edges, drive=drives), 0.2 * np.arange(30))
    assert scales.begins.sum() == 2
    assert scales.begins[scales.unknown_of[14]]
    assert not set(scales.unknown_of[:14]) & set(scales.unknown_of[14:])


def test_anchors_hold_the_frame() -> None:
    truth, edges = _loop()
    frame = np.array([3.0, -2.0, 0.7])
    there = compose(frame, truth)
    rows = np.array([0, 30], np.intp)
    anchors = Anchors.certain(rows, there[rows], 0.01)
    graph = PoseGraph(60, 1, edges, Edges.none(), anchors)
    solved = graph.solve(compose(frame + 0.1, truth))
    assert np.abs(relative(there, solved.poses)).max() < 1e-3
    assert chi2_of(edges, solved.poses).max() < 1e-3
