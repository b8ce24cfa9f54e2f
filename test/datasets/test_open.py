"""The kind of a drive is seen from its path."""

from pathlib import Path

import pytest

from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.cold_folders import make_cold_drive


def test_a_folder_with_images_is_a_cold_drive(tmp_path: Path) -> None:
    assert isinstance(open_drive(make_cold_drive(tmp_path / "drive", frames=3)), ColdDrive)


def test_a_list_without_images_says_that_they_are_missing(tmp_path: Path) -> None:
    (tmp_path / "localization").mkdir()
    (tmp_path / "localization" / "places.lst").write_text("")
    with pytest.raises(DatasetError, match="no folder std_cam"):
        open_drive(tmp_path)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    for path in (tmp_path, other):
        with pytest.raises(DatasetError, match="neither a COLD sequence"):
            open_drive(path)


@pytest.mark.parametrize("name", ["nowhere", "nul\0byte", "x" * 5000])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError):
        open_drive(tmp_path / name)
