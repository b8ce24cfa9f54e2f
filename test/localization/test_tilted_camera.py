"""A camera that is rolled since the map was made: the roll is measured, the pose not claimed."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.arrays import Image
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer
from kbf_localization.training_map import TrainingMap


def rolled(image: Image, degrees: float) -> Image:
    """What a camera sees that is turned clockwise about its axis, by a rotation of the image."""
    height, width = image.shape
    turn = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), degrees, 1.0)
    seen = cv2.warpAffine(image, turn, (width, height), borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(seen, dtype=np.uint8)


@pytest.mark.parametrize("degrees", [0.0, -2.0, 5.0])
def test_the_roll_of_a_camera_is_measured_apart_from_the_pose(
    office_drives: tuple[Path, Path], office_map: TrainingMap, degrees: float
) -> None:
    drive = ColdDrive(office_drives[0])
    localizer = Localizer(office_map, make_filter("kbf", office_map))
    for stamp_ns, pose in zip(drive.odometry.stamps_ns, drive.odometry.poses, strict=True):
        localizer.add_odometry(int(stamp_ns), pose)
    assert np.isnan(localizer.camera_tilt()).all()
    found = []
    for index, image in drive.images(range(30, 50)):
        assert image is not None
        assert localizer.add_image(int(drive.stamps_ns[index]), rolled(image, degrees)) is not None
        found.append(np.degrees(localizer.camera_tilt()))
    assert np.isfinite(found).all(axis=1).mean() > 0.8
    np.testing.assert_allclose(np.nanmedian(found, axis=0), [0.0, degrees], atol=0.2)
