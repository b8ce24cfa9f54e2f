"""Landmarks of maps: which images make them and which calibrate them."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.parts import DrivePart, Part
from kbf_localization.mapping import build_map
from kbf_localization.mapping.landmarks import held_out_count


def test_at_most_one_image_of_five_is_held_out() -> None:
    assert [held_out_count(frames) for frames in (4, 26, 142, 400, 10_000)] == [0, 5, 28, 80, 80]


@pytest.mark.usefixtures("quick_learning")
def test_a_short_drive_has_landmarks(
    office_drives: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    drive = ColdDrive(office_drives[0])
    part = DrivePart(drive, Part("first", last=24.5 / 150))
    assert 20 <= len(part) <= 28
    built = build_map([part], poses=len(part), landmarks=True)
    assert built.landmarks is not None, built.warnings
    assert np.median(built.landmarks.table.counts()) >= 12
    assert "held-out images are too few" in caplog.text


@pytest.mark.usefixtures("quick_learning")
def test_two_images_far_apart_make_a_map_without_landmarks(
    office_drives: tuple[Path, Path],
) -> None:
    part = DrivePart(ColdDrive(office_drives[0]), Part("every:120", every=120))
    built = build_map([part], poses=2, landmarks=True)
    assert len(built) == 2 and built.landmarks is None
    assert any("no map image has 12 landmarks" in line for line in built.warnings)
