"""Odometry that errs for a while, on a map with landmarks: what the robot says then and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.arrays import Array
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.localization import Localizer, LocalizerSettings
from kbf_localization.training_map import TrainingMap

BROKEN = slice(20, 40)
"""Motions that the odometry reports wrongly."""
STANDING = 10
"""Images of a robot that stands, once its odometry was broken."""
RIGHT_M = 0.3

FAULTS: dict[str, Callable[[Array], Array]] = {
    "slips thrice": lambda motions: compose(
        motions, np.where(np.arange(len(motions)) < len(motions) - 3, 0.0, 1.0)[:, None] * SLIP
    ),
    "turns the wrong way": lambda motions: motions * [1.0, 1.0, -1.0],
    "drives backwards": lambda motions: motions * [-1.0, -1.0, 1.0],
    "turns twice as far": lambda motions: motions * [1.0, 1.0, 2.0],
    "stands still": lambda motions: 0.0 * motions,
}
SLIP = np.array([0.35, 0.0, np.radians(15.0)])


@pytest.fixture(scope="module")
def drive(office_drives: tuple[Path, Path], office_map: TrainingMap) -> DescribedDrive:
    """The map's own drive, from its middle, so that the map covers what it sees."""
    rows = np.arange(40, 100)
    return describe_drive(ColdDrive(office_drives[0]), office_map.image_describer, indices=rows)


@pytest.fixture(scope="module")
def standing(
    office_drives: tuple[Path, Path], office_map: TrainingMap, drive: DescribedDrive
) -> DescribedDrive:
    """The same drive until its odometry is good again; then the robot stands, its camera noisy."""
    ((_, image),) = ColdDrive(office_drives[0]).images([40 + BROKEN.stop])
    rng = np.random.default_rng(5)
    noisy = np.clip(image + rng.normal(0.0, 2.0, (STANDING, *image.shape)), 0, 255).astype(np.uint8)
    rows = [*range(BROKEN.stop + 1), *[BROKEN.stop] * STANDING]
    return replace(
        drive.part(np.array(rows)),
        stamps_ns=drive.stamps_ns[0] + int(2e9) * np.arange(len(rows)),
        descriptions=(
            *drive.descriptions[: BROKEN.stop + 1],
            *(office_map.image_describer.describe(view) for view in noisy),
        ),
    )


def replayed(drive: DescribedDrive, true: DescribedDrive, fault: str, on: TrainingMap) -> Run:
    """The run over a `drive` whose odometry errs as `fault` says, and else is that of `true`."""
    readings = interpolate(true.odometry.stamps_ns, true.odometry.poses, true.stamps_ns)
    motions = relative(readings[:-1], readings[1:])
    motions[BROKEN] = FAULTS[fault](motions[BROKEN])
    motions = np.vstack((motions, np.zeros((len(drive), 3))))[: len(drive) - 1]
    if len(drive) < len(true):
        motions[BROKEN.stop :] = 0.0
    poses = np.array([*accumulate(motions, compose, initial=np.zeros(3))])
    faulty = replace(drive, odometry=OdometryLog(drive.stamps_ns, poses))
    return replay(faulty, Localizer(on, make_filter("kbf", on)))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_robot_tracks_again_once_landmarks_agree_with_the_odometry(
    drive: DescribedDrive, office_map: TrainingMap, fault: str
) -> None:
    run = replayed(drive, drive, fault, office_map)
    tracking = np.array([state == "tracking" for state in run.states])
    errors = position_errors(run)
    assert errors[tracking].max() < RIGHT_M
    assert tracking[BROKEN.stop + 3 :].all()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_robot_that_stands_after_its_odometry_was_broken_tracks_again(
    drive: DescribedDrive, standing: DescribedDrive, office_map: TrainingMap, fault: str
) -> None:
    run = replayed(standing, drive, fault, office_map)
    tracking = np.array([state == "tracking" for state in run.states])
    errors = position_errors(run)
    assert errors[tracking].max() < RIGHT_M
    assert tracking[BROKEN.stop + 3 :].all()


def test_images_that_show_motion_are_used_though_the_odometry_stands_still(
    drive: DescribedDrive, office_map: TrainingMap
) -> None:
    run = replayed(drive, drive, "stands still", office_map)
    used, seconds = run.used[BROKEN], 1e-9 * (run.stamps_ns[BROKEN] - run.stamps_ns[BROKEN.start])
    assert used[seconds > LocalizerSettings().standing_update_s].sum() >= 10
    assert used[np.argmax(seconds > LocalizerSettings().standing_update_s) + 1 :].all()
