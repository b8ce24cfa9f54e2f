"""A localizer on a map with landmarks, whose images have keypoints that measure no pose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.metrics import mahalanobis_errors, position_errors
from kbf_localization.evaluation.run import replay
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer
from kbf_localization.training_map import TrainingMap
from kbf_localization.vision.keypoints import Keypoints

SOUND = 12
"""Images that are as they should be, before those that are not."""
RIGHT_M = 0.3


@pytest.fixture(scope="module")
def drive(office_drives: tuple[Path, Path], office_map: TrainingMap) -> DescribedDrive:
    """The map's own drive, from its middle, so that the map covers what it sees."""
    rows = np.arange(40, 76)
    return describe_drive(ColdDrive(office_drives[0]), office_map.image_describer, indices=rows)


def first(count: int) -> Callable[[Keypoints], Keypoints]:
    return lambda found: Keypoints(found.pixels[:count], found.descriptors[:count])


def placed(place: Callable[[np.ndarray], object]) -> Callable[[Keypoints], Keypoints]:
    """The same descriptors, so that all match, at other places of the image."""

    def spoil(found: Keypoints) -> Keypoints:
        pixels = found.pixels.copy()
        pixels[:] = place(pixels)
        return Keypoints(pixels, found.descriptors)

    return spoil


POOR = {
    "none": first(0),
    "one": first(1),
    "on a level line": placed(lambda pixels: pixels * [1.0, 0.0] + [0.0, 120.0]),
    "on an upright line": placed(lambda pixels: pixels * [0.0, 1.0] + [160.0, 0.0]),
    "at one point": placed(lambda pixels: np.full_like(pixels, 120.0)),
    # Straight ahead, far beyond what is there.
    "at infinity": placed(lambda pixels: 0.01 * (pixels - [160.0, 120.0]) + [160.0, 120.0]),
    "mirrored, as if behind": placed(lambda pixels: [319.0, 239.0] - pixels),
    "outside of the image": placed(lambda pixels: pixels + 1e7),
    "no numbers": placed(lambda pixels: np.full_like(pixels, np.nan)),
    "infinite": placed(lambda pixels: np.full_like(pixels, np.inf)),
}


@pytest.mark.parametrize("kind", POOR)
@pytest.mark.parametrize("since", [0, SOUND])
def test_keypoints_that_measure_nothing_leave_an_honest_pose(
    drive: DescribedDrive, office_map: TrainingMap, kind: str, since: int
) -> None:
    """From the start, or from when the robot is tracked, while odometry goes on."""
    seen = []
    for number, image in enumerate(drive.descriptions):
        assert image is not None and image.keypoints is not None
        keypoints = image.keypoints if number < since else POOR[kind](image.keypoints)
        seen.append(replace(image, keypoints=keypoints))
    spoiled = replace(drive, descriptions=tuple(seen))
    run = replay(spoiled, Localizer(office_map, make_filter("kbf", office_map)))
    assert len(run) == len(drive)
    assert np.isfinite(run.estimates).all() and np.isfinite(run.covariances).all()
    assert (np.linalg.eigvalsh(run.covariances) > 0.0).all()
    tracking = np.array([state == "tracking" for state in run.states])
    wrong = (position_errors(run) > RIGHT_M) & (mahalanobis_errors(run) > 3.0)
    assert not (tracking & wrong).any()
    assert since == 0 or tracking[since // 2 : since].all()
