"""Landmarks for a map that has none, from the drives that it was built from."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.landmarks.calibration import MIN_INLIERS, view_distance
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, save_map
from test.cli.kbf import done, refused


def test_an_old_map_measures_poses_to_centimetres_once_it_has_landmarks(
    office_drives: tuple[Path, Path], office_map: TrainingMap, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.kbfmap", tmp_path / "new.kbfmap"
    save_map(replace(office_map, landmarks=None), old)
    assert "Landmarks" in done(
        *("map", "add-landmarks", old, "--sources", office_drives[0]),
        *("--output", new, "--jobs", 1),
    )
    training_map = load_map(new)
    assert training_map.landmarks is not None
    np.testing.assert_array_equal(training_map.poses, office_map.poses)
    drive = ColdDrive(office_drives[0])
    assert drive.poses is not None
    errors = []
    for index, image in drive.images(list(range(3, len(drive), 11))):
        pose = drive.poses[index]
        rows = np.argsort(view_distance(training_map.poses, pose))[:4]
        assert image is not None
        observation = training_map.observe(training_map.image_describer.describe(image))
        start = pose + np.array([0.1, -0.1, 0.03])
        fix = observation.landmark_fix(rows, start, np.diag([0.01, 0.01, 0.001]))
        usable = fix is not None and fix.inliers >= MIN_INLIERS
        errors.append(np.hypot(*(fix.pose - pose)[:2]) if usable else np.inf)
    assert np.median(errors) < 0.02


def test_a_drive_that_the_map_is_not_of_is_refused(
    office_drives: tuple[Path, Path], office_map: TrainingMap, tmp_path: Path
) -> None:
    old = tmp_path / "old.kbfmap"
    save_map(replace(office_map, landmarks=None), old)
    said = refused("map", "add-landmarks", old, "--sources", office_drives[1])
    assert "none of the map's images is in these drives" in said
    assert load_map(old).landmarks is None
