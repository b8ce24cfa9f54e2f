"""Simulated drives are COLD sequences, the same whenever and by whomever they are rendered."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from kbf_localization.parallel import Cores
from kbf_localization.simulator.simulated_drives import simulate, simulate_along

SMALL = (96, 72)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_drive_has_the_layout_of_cold(office_drives: tuple[Path, Path]) -> None:
    for folder in office_drives:
        drive = ColdDrive(folder)
        assert len(drive) == 150
        assert drive.warnings == ()
        assert drive.condition == "cloudy"
        assert np.median(np.diff(drive.stamps_ns)) * 1e-9 == pytest.approx(1 / 4.9, rel=0.01)
        assert drive.labels is not None and "CR-A" in drive.labels
        assert drive.odometry.stamps_ns[0] < drive.stamps_ns[0]
        assert drive.odometry.stamps_ns[-1] > drive.stamps_ns[-1]
        index, image = next(drive.images())
        assert index == 0
        assert image is not None and image.shape == (240, 320)
        path = next((folder / "std_cam").iterdir())
        colour = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        assert colour is not None and colour.shape == (240, 320, 3)
        assert path.read_bytes()[:2] == b"\xff\xd8"  # a JPEG


def test_images_have_structure_and_are_neither_black_nor_white(
    office_drives: tuple[Path, Path],
) -> None:
    images = [image for _, image in ColdDrive(office_drives[0]).images(range(0, 150, 10))]
    means = [float(image.mean()) for image in images if image is not None]
    assert 40 < min(means) < max(means) < 215
    assert np.mean([image.std() for image in images if image is not None]) > 25


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    frames = 52  # for two workers: each renders fifty at a time
    (first,) = simulate(tmp_path / "one", runs=1, frames=frames, size=SMALL, seed=5)
    (two,) = simulate(tmp_path / "two", runs=1, frames=frames, size=SMALL, seed=5, workers=Cores(2))
    # The floor plan's two files, places.lst, odom.tdf and the note that all is simulated.
    assert len(contents(first)) == frames + 5
    assert contents(first) == contents(two)
    (other,) = simulate(tmp_path / "other", runs=1, frames=2, size=SMALL, seed=6)
    assert contents(other)["floor_plan.pgm"] != contents(first)["floor_plan.pgm"]


def test_conditions_may_differ_between_the_drives_of_one_office(tmp_path: Path) -> None:
    folders = simulate(
        tmp_path, runs=3, frames=4, size=SMALL, condition=("cloudy", "sunny", "night")
    )
    assert [folder.name for folder in folders] == ["seq1_cloudy1", "seq1_sunny2", "seq1_night3"]
    assert [ColdDrive(folder).condition for folder in folders] == ["cloudy", "sunny", "night"]


@pytest.mark.parametrize("first_drive", [0, 1_000_000, 1_499_999])
def test_every_drive_can_be_written_to_a_bag(tmp_path: Path, first_drive: int) -> None:
    """Whose stamps end in 2038."""
    (folder,) = simulate(tmp_path, runs=1, frames=2, size=SMALL, first_drive=first_drive)
    write_bag(ColdDrive(folder), tmp_path / "bag")
    assert len(open_drive(tmp_path / "bag")) == 2


@pytest.fixture
def short_places(tmp_path: Path, cold_data: Path) -> list[Path]:
    """The first 40 places of the two real drives, in folders of their names."""
    lists = []
    for name in ("seq2_cloudy1", "seq1_cloudy1"):
        real = cold_data / "saarbruecken" / name / "localization" / "places.lst"
        path = tmp_path / "real" / name / "localization" / "places.lst"
        path.parent.mkdir(parents=True)
        path.write_text("".join(real.read_text().splitlines(keepends=True)[:40]))
        lists.append(path)
    return lists


def test_real_trajectories_keep_their_names_poses_and_labels(
    tmp_path: Path, short_places: list[Path]
) -> None:
    folders = simulate_along(tmp_path / "out", short_places, extra_drives=1, size=SMALL)
    assert [folder.name for folder in folders] == [
        "seq2_cloudy1",
        "seq1_cloudy1",
        "further_cloudy1",
    ]
    for folder, places in zip(folders, short_places):
        written = folder / "localization" / "places.lst"
        assert written.read_text() == places.read_text()
        images = {line.split()[0] for line in places.read_text().splitlines()}
        assert {path.name for path in (folder / "std_cam").iterdir()} == images
    assert len(ColdDrive(folders[2])) > 30


def test_drives_rendered_apart_have_one_office_when_asked(
    tmp_path: Path, short_places: list[Path]
) -> None:
    both = simulate_along(tmp_path / "both", short_places, size=SMALL)
    (alone,) = simulate_along(
        tmp_path / "alone", short_places[:1], office_from=short_places[1:], size=SMALL
    )
    assert contents(both[0]) == contents(alone)


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "seq1_cloudy2").mkdir()
    with pytest.raises(DatasetError, match="exists already"):
        simulate(tmp_path, runs=2, frames=2, size=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["seq1_cloudy2"]


def test_nothing_half_written_is_left_when_rendering_is_broken_off(tmp_path: Path) -> None:
    def stop(done: int, total: int, doing: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path / "office", runs=1, frames=60, size=SMALL, progress=stop)
    assert list((tmp_path / "office").iterdir()) == []


@pytest.mark.parametrize("size", [(0, 0), (640, 8), (10**6, 480)])
def test_sizes_that_no_camera_has_are_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    with pytest.raises(DatasetError, match="pixels"):
        simulate(tmp_path, runs=1, frames=2, size=size)
