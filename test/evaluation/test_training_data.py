"""Evaluations on a map's own drives are found out."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from kbf_localization.arrays import Stamps
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.training_data import training_warning
from kbf_localization.training_map import TrainingMap
from test.filters.synthetic_world import SyntheticDrive


def test_a_drive_of_the_map_is_known_whatever_its_name(
    office_map: TrainingMap, office_drives: tuple[Path, Path]
) -> None:
    own, other = (ColdDrive(path) for path in office_drives)
    warning = training_warning(office_map, own)
    assert warning is not None and warning.startswith("EVALUATED ON TRAINING DATA")
    assert own.name in warning
    assert training_warning(office_map, other) is None


def test_a_pose_that_two_drives_share_is_no_reason(
    world_map: TrainingMap, world_drive: SyntheticDrive
) -> None:
    docked = world_drive.poses.copy()
    docked[0] = world_map.poses[0]
    assert training_warning(world_map, replace(world_drive, poses=docked)) is None


@dataclass(frozen=True)
class _Unposed:
    """What the warning looks at, of a drive whose poses are not known."""

    name: str
    stamps_ns: Stamps
    poses: None = None


def test_a_drive_without_poses_is_known_by_name_and_stamps(world_map: TrainingMap) -> None:
    first, second = world_map.sources
    stamped = replace(
        world_map,
        sources=(replace(first, stamps_ns=(10**9, 5 * 10**9)), replace(second, stamps_ns=None)),
    )
    stamps = np.arange(1, 6) * 10**9

    def warned(name: str, stamps_ns: Stamps) -> bool:
        return training_warning(stamped, cast(Drive, _Unposed(name, stamps_ns))) is not None

    assert warned(first.name, stamps)
    assert warned(first.name, stamps[3:] + 1)
    assert warned("renamed", stamps)
    assert not warned(first.name, stamps + 10**10)
    assert not warned("of the same minute", stamps[1:])
    assert not warned(second.name, stamps[1:])
