import numpy as np
import pytest

from kbf_localization.landmarks.bearings import bearings_of, spatial
from kbf_localization.landmarks.build import (
    KeypointStore,
    needed_rows,
    triangulate_all,
)
from kbf_localization.landmarks.pose_solver import LandmarkSolver
from kbf_localization.parallel import Serial
from kbf_localization.progress import no_progress
from kbf_localization.vision.keypoints import Keypoints
from test.landmarks.scene import CAMERA, LEVEL, Room


def drive(seed, count=40):
    """Poses on a winding path ahead of the room's points."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        (
            np.linspace(-1.0, 1.0, count),
            0.3 * np.sin(np.linspace(0.0, 6.0, count)) + rng.normal(0, 0.02, count),
            rng.normal(0, 0.1, count),
        )
    )


def test_a_map_built_of_a_drive_measures_a_pose():
    room = Room.of_seed(30, count=300)
    poses = drive(31)
    rng = np.random.default_rng(32)
    found = [room.image(spatial(pose), 0.3, rng)[0] for pose in poses]
    selected = np.arange(0, 40, 8)
    needed, partners = needed_rows(poses, selected)
    # The last selected image cannot be read.
    store = {row: found[row] for row in needed.tolist() if row != selected[-1]}
    built = triangulate_all(poses, selected, partners, store, CAMERA, LEVEL, Serial(), no_progress)
    table = built.table
    assert 0.2 < built.sigma_px < 0.4 and len(built.misfits) == 0
    assert table.counts()[-1] == 0 and (table.counts()[:-1] > 100).all()
    assert (table.counts() <= 200).all()
    truth = np.array([0.05, 0.1, 0.02])
    seen, _ = room.image(spatial(truth), 0.3, rng)
    solver = LandmarkSolver(table, poses[selected])
    fix = solver.measure(
        bearings_of(seen.pixels, CAMERA, LEVEL),
        seen.descriptors,
        np.arange(5),
        truth + 0.1,
        np.eye(3) * 0.01,
    )
    assert np.linalg.norm(fix.pose[:2] - truth[:2]) < 0.01


def test_images_of_a_hand_held_camera_have_landmarks_where_their_tilt_is_given():
    room = Room.of_seed(34, count=300)
    poses = drive(35)
    rng = np.random.default_rng(36)
    attitudes = rng.normal(0.0, 0.1, (40, 3))
    states = spatial(poses, attitudes)
    store = {row: room.image(state, 0.3, rng)[0] for row, state in enumerate(states)}
    selected = np.arange(0, 40, 8)
    partners = needed_rows(poses, selected)[1]
    made = [
        triangulate_all(
            poses, selected, partners, store, CAMERA, LEVEL, Serial(), no_progress, attitudes=given
        )
        for given in (attitudes, None)
    ]
    assert (made[0].table.counts() > 80).all()
    assert made[0].sigma_px == pytest.approx(0.3, abs=0.05)
    assert made[1].sigma_px > 0.4
    np.testing.assert_allclose(made[0].table.attitudes, attitudes[selected], atol=0.02)
    # Robust deviations of five images about their median, and the margin of a half.
    found = made[0].table.attitudes
    away = np.abs(found - np.median(found, axis=0))
    np.testing.assert_allclose(
        made[0].attitude_sigma, 1.5 * 1.4826 * np.median(away, axis=0), rtol=1e-4
    )


def test_keypoints_are_found_again_in_the_store():
    rng = np.random.default_rng(33)
    store = KeypointStore()
    put = {
        row: Keypoints(
            rng.random((count, 2)).astype(np.float32),
            rng.integers(0, 256, (count, 128)).astype(np.uint8),
        )
        for row, count in ((7, 5), (2, 0), (9, 30))
    }
    for row, keypoints in put.items():
        store.add(row, keypoints)
    assert 2 in store and 3 not in store
    for row, keypoints in put.items():
        np.testing.assert_array_equal(store[row].pixels, keypoints.pixels)
        np.testing.assert_array_equal(store[row].descriptors, keypoints.descriptors)
    store.close()
