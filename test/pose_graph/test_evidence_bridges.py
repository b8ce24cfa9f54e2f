"""Motions between neighbouring keyframes by images, where the wheels slip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.adjustment import PointGroup
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.pose_graph.closures import MIN_MATCHES, Closure
from kbf_localization.pose_graph.edges import odometry_edges
from kbf_localization.pose_graph.evidence import (
    MIN_SHARED_POINTS,
    bridge_pairs,
    bridged,
    motions_by_edge,
    unlinked,
    without_slips,
)
from kbf_localization.pose_graph.keyframes import MAX_PATH_M, Keyframes


def keyframes_along(poses: np.ndarray) -> Keyframes:
    count = len(poses)
    rows = np.arange(count)
    path = np.r_[0.0, np.cumsum(np.hypot(*np.diff(poses[:, :2], axis=0).T))]
    nothing = np.zeros(count, dtype=np.intp)
    return Keyframes(nothing, rows, nothing, rows * 10**9, poses, path, rows.astype(float))


STRAIGHT = keyframes_along(np.column_stack((0.2 * np.arange(5), np.zeros(5), np.zeros(5))))


def group(images: list[int], shared: int) -> PointGroup:
    seen = np.ones((len(images), shared), dtype=bool)
    return PointGroup(np.array(images), None, seen, np.zeros((shared, 3)))  # type: ignore[arg-type]


def closure(first: int, second: int, motion: np.ndarray, inliers: int = 30) -> Closure:
    covariance = np.array([[4e-4, 1e-4, 0.0], [1e-4, 9e-4, 2e-5], [0.0, 2e-5, 1e-4]])
    return Closure(first, second, motion, covariance, inliers, 60, 0.5)


def test_neighbours_that_share_too_few_points_are_unlinked() -> None:
    enough, few = MIN_SHARED_POINTS, MIN_SHARED_POINTS - 1
    groups = [group([0, 1], enough), group([1, 2], few), group([2, 4], 50), group([3, 4], enough)]
    partners = [np.array([row - 1, row + 1]) for row in range(5)]
    edges = unlinked(groups, STRAIGHT, partners)
    np.testing.assert_array_equal(edges, [1, 2])
    far = [partners[0], np.array([0]), *partners[2:]]
    np.testing.assert_array_equal(unlinked(groups, STRAIGHT, far), [2])


def points(count: int) -> ImageLandmarks:
    descriptors, offsets = np.zeros((count, 128), np.uint8), np.zeros((count, 3))
    return ImageLandmarks(descriptors, offsets, np.zeros((count, 3, 3)), np.zeros(3))


def test_keyframes_are_sought_on_each_other_and_on_the_nearest_that_have_points() -> None:
    enough, few = points(MIN_MATCHES), points(MIN_MATCHES - 1)
    seeing = [enough, enough, None, few, enough]
    queries, similar = bridge_pairs(np.array([2]), STRAIGHT, seeing)
    pairs = set(zip(queries.tolist(), similar.tolist()))
    assert pairs == {(2, 3), (3, 2), (2, 1), (3, 1), (2, 4), (3, 4)}
    far = replace(STRAIGHT, path_m=STRAIGHT.path_m * [1, 1, 1, 1, 1 + MAX_PATH_M / 0.4])
    queries, _ = bridge_pairs(np.array([2]), far, seeing)
    assert len(queries) == 4


def test_ends_of_which_neither_has_points_are_joined_by_a_third_keyframe() -> None:
    poses = np.array([[-0.5, 0.1, 0.3], [-0.3, 0.0, -0.2]])
    ends = [closure(4, 1, poses[0], 40), closure(4, 2, poses[1], 50)]
    edges = np.array([1])
    assert motions_by_edge(edges, ends[:1]) == {}
    found = motions_by_edge(edges, ends)[1]
    assert (found.first, found.second, found.inliers) == (1, 2, 40)
    np.testing.assert_allclose(found.motion, relative(poses[0], poses[1]))
    step, covariance = 1e-6, np.zeros((3, 3))
    for end in range(2):
        moved = np.repeat(poses[:, None], 3, axis=1)
        moved[end] += step * np.eye(3)
        jacobian = (relative(moved[0], moved[1]) - found.motion).T / step
        covariance += jacobian @ ends[end].covariance @ jacobian.T
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)


def test_a_motion_seen_from_the_later_keyframe_is_inverted_with_its_covariance() -> None:
    seen = closure(3, 2, np.array([-0.2, 0.05, 0.3]))
    found = motions_by_edge(np.array([2]), [seen, closure(2, 3, np.zeros(3), inliers=20)])[2]
    assert (found.first, found.second) == (2, 3)
    np.testing.assert_allclose(compose(found.motion, seen.motion), np.zeros(3), atol=1e-12)
    step = 1e-6
    jacobian = np.column_stack(
        [
            (relative(seen.motion + step * axis, np.zeros(3)) - found.motion) / step
            for axis in np.eye(3)
        ]
    )
    np.testing.assert_allclose(found.covariance, jacobian @ seen.covariance @ jacobian.T, atol=1e-8)


def test_only_motions_that_contradict_the_wheels_replace_theirs() -> None:
    edges = odometry_edges(STRAIGHT)
    near = closure(0, 1, np.array([0.21, 0.0, 0.005]))
    slipped = closure(2, 3, np.array([0.2, 0.0, 0.2]))
    corrected = without_slips(edges, motions_by_edge(np.array([0, 2]), [near, slipped])).motions
    np.testing.assert_allclose(corrected[[0, 1, 3]], edges.motions[[0, 1, 3]])
    np.testing.assert_allclose(corrected[2], slipped.motion)


def test_what_follows_a_bridge_moves_with_it() -> None:
    turn = np.array([0.2, 0.0, 0.1])
    poses = bridged(
        STRAIGHT.odometry, motions_by_edge(np.array([1]), [closure(1, 2, turn)]), STRAIGHT
    )
    np.testing.assert_allclose(poses[:2], STRAIGHT.odometry[:2])
    for row in range(1, 4):
        motion = relative(poses[row], poses[row + 1])
        np.testing.assert_allclose(motion[:2], [0.2, 0.0], atol=1e-12)
        assert wrap_angle(motion[2]) == pytest.approx(0.1 if row == 1 else 0.0)
