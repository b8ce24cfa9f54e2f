"""Which poses are chosen."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kbf_localization.geometry import embed
from kbf_localization.mapping.frames import ENOUGH_POSES, select_frames


def uneven_poses() -> np.ndarray:
    """A corridor in which the robot stood still for most of the time."""
    moving = np.stack((np.linspace(0, 20, 200), np.zeros(200), np.zeros(200)), axis=1)
    return np.concatenate((moving[:100], np.tile(moving[100], (800, 1)), moving[100:]))


def test_coverage_leaves_no_pose_far_from_the_chosen() -> None:
    poses = uneven_poses()
    for count in (10, 50):
        chosen = select_frames(poses, count, "coverage", seed=0)
        gaps = cdist(embed(poses), embed(poses[chosen])).min(axis=1)
        # Farthest-point sampling is within twice the best radius, 20 m / (2 count) here.
        assert gaps.max() <= 2 * 20.0 / (2 * count) + 0.11
        assert (np.diff(chosen) > 0).all()


def test_a_stop_contributes_one_pose_to_coverage() -> None:
    poses = uneven_poses()
    chosen = select_frames(poses, 1000, "coverage", seed=1)
    assert len(chosen) == 200
    assert len(np.unique(poses[chosen], axis=0)) == 200


def test_opposite_headings_at_one_place_are_both_covered() -> None:
    there = np.stack((np.linspace(0, 5, 50), np.zeros(50), np.zeros(50)), axis=1)
    back = there + np.array([0.0, 0.0, np.pi])
    chosen = select_frames(np.concatenate((there, back)), 20, "coverage", seed=0)
    assert 8 <= (chosen < 50).sum() <= 12


def test_random_draws_frames_without_repetition() -> None:
    poses = np.random.default_rng(0).normal(size=(100, 3))
    chosen = select_frames(poses, 40, "random", seed=4)
    assert len(np.unique(chosen)) == 40
    np.testing.assert_array_equal(chosen, select_frames(poses, 40, "random", seed=4))
    assert not np.array_equal(chosen, select_frames(poses, 40, "random", seed=5))


@pytest.mark.parametrize("select", ["coverage", "random"])
def test_no_more_are_chosen_than_there_are(select: str) -> None:
    poses = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_array_equal(select_frames(poses, 100, select, seed=0), np.arange(9))


@pytest.mark.parametrize("turned", [False, True])
def test_a_map_with_landmarks_has_as_many_poses_as_leave_none_far_from_one(turned: bool) -> None:
    along = np.linspace(0.0, 120.0, 1500)
    poses = np.column_stack([along, np.zeros(1500), along / 40.0 if turned else np.zeros(1500)])
    rows = select_frames(poses, 1000, "coverage", 0, spacing=0.2)
    assert cdist(embed(poses), embed(poses[rows])).min(axis=1).max() <= 0.2
    # Neighbours are nearer than twice the spacing and not nearer than it.
    assert 120.0 / 0.4 <= len(rows) <= 1.1 * 120.0 / 0.2
    assert len(select_frames(poses[:300], 1000, "coverage", 0, spacing=0.2)) == ENOUGH_POSES
