"""What a map says of its landmarks."""

import numpy as np
import pytest

from kbf_localization.landmarks.build import MAX_PER_IMAGE
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.mapping.landmarks import landmark_warnings
from kbf_localization.vision.camera import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera


def landmarks_of(counts: list[int], tilt_deg: float) -> LandmarkMap:
    images = [
        ImageLandmarks(
            np.zeros((count, 128), np.uint8),
            np.ones((count, 3)),
            np.tile(1e-4 * np.eye(3), (count, 1, 1)),
            np.zeros(3),
        )
        for count in counts
    ]
    poses = np.column_stack([np.arange(len(counts)), np.zeros((len(counts), 2))])
    description = LandmarkDescription(
        PinholeCamera.from_focal(320, 240, 230.0),
        Mount.ahead(),
        attitude_sigma=(0.03, np.radians(tilt_deg), np.radians(0.2)),
    )
    return LandmarkMap(LandmarkTable.of_images(images), poses, description)


@pytest.mark.parametrize(("tilt_deg", "said"), [(0.4, False), (5.0, True)])
def test_a_camera_that_tilts_is_said_with_numbers(tilt_deg: float, said: bool) -> None:
    lines = list(landmark_warnings(landmarks_of([MAX_PER_IMAGE] * 4, tilt_deg)))
    assert len(lines) == said
    assert all("pitch varies by 5.0°, its roll by 0.2° and its height by 3 cm" in x for x in lines)


def test_images_without_landmarks_are_counted_and_named_by_their_places() -> None:
    (line,) = landmark_warnings(landmarks_of([50, 0, 50, 11, 12], 0.4))
    assert line.startswith("2 of 5 map images have fewer than 12 landmarks")
    assert "(1.0, 0.0)" in line and "(3.0, 0.0)" in line
    assert line.endswith("the others have 50")
