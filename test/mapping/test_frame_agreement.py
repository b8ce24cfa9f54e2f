"""Drives whose poses are of different frames are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.geometry import compose, relative
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.mapping import build_map
from kbf_localization.mapping.editing import merge_maps, move_map
from kbf_localization.mapping.frame_agreement import frame_warnings, motion_between
from kbf_localization.training_map import TrainingMap, subset
from test.conftest import learning_quickly

MOTION = np.array([0.8, -0.3, 0.4])


def _landmarks(points: np.ndarray, descriptors: np.ndarray) -> ImageLandmarks:
    covariances = np.tile(1e-4 * np.eye(3), (len(points), 1, 1))
    return ImageLandmarks(descriptors, points, covariances, np.zeros(3))


def _pair(count: int, wrong: int) -> tuple[ImageLandmarks, ImageLandmarks]:
    """Return points as two images see them, of which `wrong` are matched with others."""
    rng = np.random.default_rng(4)
    there = rng.uniform((1.0, -3.0, 0.0), (6.0, 3.0, 2.0), (count, 3))
    descriptors = rng.integers(0, 256, (count, 128)).astype(np.uint8)
    level = np.column_stack((there[:, :2], np.zeros(count)))
    here = np.column_stack((relative(MOTION, level)[:, :2], there[:, 2]))
    here[:wrong, :2] += rng.uniform(1.0, 4.0, (wrong, 2))
    return _landmarks(here, descriptors), _landmarks(there, descriptors)


def test_shared_points_give_the_motion_between_images() -> None:
    image, other = _pair(60, 20)
    found = motion_between(image, other)
    assert found is not None
    np.testing.assert_allclose(found, MOTION, atol=1e-6)


@pytest.mark.parametrize(("count", "wrong"), [(15, 0), (60, 50)])
def test_few_points_that_agree_give_none(count: int, wrong: int) -> None:
    assert motion_between(*_pair(count, wrong)) is None


@pytest.fixture(scope="module")
def first_map(office_map: TrainingMap) -> TrainingMap:
    """Every second pose of the office's map."""
    return subset(office_map, np.arange(0, len(office_map), 2))


@pytest.fixture(scope="module")
def second_map(office_drives: tuple[Path, Path], office_map: TrainingMap) -> TrainingMap:
    with learning_quickly():
        return build_map([ColdDrive(office_drives[1])], poses=40, like=office_map, landmarks=True)


def test_a_drive_in_another_frame_is_named_with_the_distance(
    first_map: TrainingMap, second_map: TrainingMap
) -> None:
    frame = np.array([3.0, 1.0, 0.0])
    (line,) = (
        line
        for line in merge_maps([first_map, move_map(second_map, frame)]).warnings
        if "frame" in line
    )
    assert line.startswith(f"{second_map.sources[0].name}: its poses put ")
    shown = float(line.split(" by ")[1].split(" m")[0])
    # All is moved alike, and the poses of a simulated drive are true.
    assert shown == pytest.approx(np.hypot(3.0, 1.0), abs=0.2)
    turned = compose(np.array([0.0, 0.0, 0.5]), second_map.poses[0])
    about = compose(second_map.poses[0], relative(turned, np.zeros(3)))
    assert frame_warnings(merge_maps([first_map, move_map(second_map, about)]))


def test_drives_of_one_frame_are_not_named(first_map: TrainingMap, second_map: TrainingMap) -> None:
    merged = merge_maps([first_map, second_map])
    assert frame_warnings(merged) == []
    assert merged.warnings == tuple(dict.fromkeys((*first_map.warnings, *second_map.warnings)))
