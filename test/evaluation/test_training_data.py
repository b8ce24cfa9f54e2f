"""Evaluations on a map's own drives are found out."""

from dataclasses import replace
from pathlib import Path

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.evaluation.training_data import training_warnings
from kbf_localization.training_map import TrainingMap
from test.filters.synthetic_world import SyntheticDrive


def test_a_drive_of_the_map_is_known_whatever_its_name(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    own, other = (ColdDrive(path) for path in office_drives)
    (warning,) = training_warnings(office_map.poses, [own, other])
    assert warning.startswith("EVALUATED ON TRAINING DATA")
    assert own.name in warning


def test_a_pose_that_two_drives_share_is_no_reason(
    world_map: TrainingMap, world_drive: SyntheticDrive
) -> None:
    docked = world_drive.poses.copy()
    docked[0] = world_map.poses[0]
    assert training_warnings(world_map.poses, [replace(world_drive, poses=docked)]) == []
