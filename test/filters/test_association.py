"""Which map images' landmarks are matched at a hypothesis."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.filters.association import Associator
from kbf_localization.filters.hypothesis import LANDMARK_ROWS, Hypothesis
from kbf_localization.filters.kernel_step import LocalKernelBayes
from kbf_localization.landmarks.calibration import REACH, view_distance
from kbf_localization.training_map.training_map import MapObservation
from test.filters.synthetic_world import Fix

TURN_SCALE, AWAY = 0.03, 0.8
"""Radians; and metres or radians: more than ten such scales, less than landmarks reach."""


class Asked(MapObservation):
    """An image whose landmarks fit wherever they are matched; keeps the rows that were."""

    rows = np.zeros(0, dtype=np.intp)
    has_landmarks = True

    def landmark_fix(self, rows, pose, covariance):
        self.rows = rows
        return Fix(pose.copy(), np.diag([0.01, 0.01, 0.005]) ** 2, 120, 4.0)


@pytest.fixture(scope="module")
def local(world_map):
    """On images that cease to look alike when they are turned by a few degrees."""
    narrow = replace(world_map.calibration.similarity, angle_rad=TURN_SCALE)
    return LocalKernelBayes(world_map, narrow)


def associate(local, world_map, world_drive, pose):
    observation = Asked(world_map, world_drive.views[0])
    sure = Hypothesis(pose, np.eye(6) * 1e-4, 0)
    associator = Associator(local, world_map.calibration)
    return observation, associator.associate(sure, observation, by_landmarks=True)


def looking_past(world_map):
    """Return a pose that is no nearer to any map pose than `AWAY`, and not much farther."""
    for pose in world_map.poses + np.array([0.0, 0.0, AWAY]):
        if view_distance(world_map.poses, pose).min() >= AWAY - 1e-9:
            return pose
    raise AssertionError("the map looks everywhere")


def test_landmarks_reach_beyond_the_comparison_of_whole_images(local, world_map, world_drive):
    pose = looking_past(world_map)
    assert len(local.active_rows(pose, np.eye(3) * 1e-4)) == 0
    observation, found = associate(local, world_map, world_drive, pose)
    away = view_distance(world_map.poses, pose)
    assert 0 < len(observation.rows) <= LANDMARK_ROWS
    assert away[observation.rows].max() <= REACH
    assert away.argmin() in observation.rows
    assert found.confirms


def test_a_fix_from_afar_moves_a_pose_only_once_that_is_less_certain(local, world_map, world_drive):
    """Successive fixes have the same error: their mean is no better than one of them."""
    pose = looking_past(world_map)
    _, found = associate(local, world_map, world_drive, pose)
    moved = replace(found.fix, pose=pose + np.array([0.05, 0.0, 0.0]))
    found = replace(found, fix=moved)
    associator = Associator(local, world_map.calibration)
    sure, unsure = (Hypothesis(pose, np.eye(6) * sigma**2, 0) for sigma in (0.009, 0.1))
    assert associator.correct(sure, found, 0.0, continues=True) is None
    corrected, _ = associator.correct(unsure, found, 0.0, continues=True)
    np.testing.assert_allclose(corrected.pose[0], pose[0] + 0.05 * 0.1**2 / (0.1**2 + 0.01**2))


def test_no_landmarks_are_matched_where_no_map_image_is_within_their_reach(
    local, world_map, world_drive
):
    pose = world_map.poses[0] + np.array([50.0, 0.0, 0.0])
    observation, found = associate(local, world_map, world_drive, pose)
    assert len(observation.rows) == 0 and found.fix is None


def test_where_whole_images_compare_their_heaviest_are_matched(world_map, world_drive):
    wide = LocalKernelBayes(world_map, world_map.calibration.similarity)
    pose = world_drive.poses[0]
    observation, found = associate(wide, world_map, world_drive, pose)
    heaviest = np.sort(found.posterior.weights)[-LANDMARK_ROWS:]
    chosen = found.posterior.weights[np.isin(found.posterior.rows, observation.rows)]
    np.testing.assert_array_equal(np.sort(chosen), heaviest)
