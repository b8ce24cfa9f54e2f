"""UTM's coordinates, millions of metres, are read without loss; negative stamps are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.bags import (
    START_NS,
    MemoryDrive,
    compressed,
    drive_messages,
    odometry,
    write_messages,
)
from test.datasets.test_hostile_files import MAKERS

UTM = np.array([691_608.25, 5_334_764.5])
"""Munich, zone 32: exact in double precision."""


class FarDrive(MemoryDrive):
    """The same drive in UTM's frame."""

    @property
    def poses(self) -> np.ndarray:
        return super().poses + np.array([*UTM, 0.0])


def move_columns(file: Path, columns: tuple[int, int]) -> None:
    """Add UTM's origin to two columns of a text file."""
    lines = []
    for line in file.read_text().splitlines():
        fields = line.split()
        if fields and not line.startswith("#"):
            for column, offset in zip(columns, UTM, strict=True):
                fields[column] = f"{float(fields[column]) + offset:.9f}"
        lines.append(" ".join(fields))
    file.write_text("\n".join(lines) + "\n")


def move_cold(folder: Path) -> None:
    for file in (folder / "std_cam").iterdir():
        stamp, x, y, end = file.name.split("_", 3)
        moved = f"{stamp}_x{float(x[1:]) + UTM[0]:.7f}_y{float(y[1:]) + UTM[1]:.7f}_{end}"
        file.rename(file.with_name(moved))


def move_seven_scenes(folder: Path) -> None:
    for file in folder.glob("*.pose.txt"):
        matrix = np.loadtxt(file)
        matrix[:2, 3] += UTM
        np.savetxt(file, matrix, fmt="%.17g")


MOVES = {
    "cold": move_cold,
    "tum": lambda folder: move_columns(folder / "groundtruth.txt", (1, 2)),
    "openloris": lambda folder: move_columns(folder / "groundtruth.txt", (1, 2)),
    "plain": lambda folder: move_columns(folder / "groundtruth.txt", (1, 2)),
    "kitti": lambda folder: move_columns(folder / "poses" / "03.txt", (3, 11)),
    "seven_scenes": move_seven_scenes,
}


@pytest.mark.parametrize("kind", MOVES)
def test_every_reader_takes_utm_coordinates(tmp_path: Path, kind: str) -> None:
    near, far = tmp_path / "near" / "03", tmp_path / "far" / "03"
    MAKERS[kind](near)
    MAKERS[kind](far)
    MOVES[kind](far)
    part = Path("sequences/03") if kind == "kitti" else Path()
    simulated = {"tum", "kitti", "seven_scenes"}
    how = "simulate" if kind in simulated else "measured"
    here, there = (open_drive(folder / part, odometry=how) for folder in (near, far))
    assert here.poses is not None
    assert there.poses is not None
    moved = there.poses - here.poses
    # The axes of the plane may be turned against the world's, the same for all poses.
    assert np.hypot(*moved[0, :2]) == pytest.approx(np.hypot(*UTM), abs=1e-6)
    np.testing.assert_allclose(moved[:, :2] - moved[0, :2], 0.0, atol=1e-6)
    np.testing.assert_allclose(moved[:, 2], 0.0, atol=1e-9)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_so_do_bags(tmp_path: Path, storage: str) -> None:
    write_bag(FarDrive(), tmp_path / "bag", storage=storage)
    poses = open_drive(tmp_path / "bag").poses
    assert poses is not None
    np.testing.assert_allclose(poses[:, :2] - UTM, MemoryDrive().poses[:, :2], atol=1e-3)


def test_coordinates_beyond_every_map_are_named(tmp_path: Path) -> None:
    MAKERS["plain"](tmp_path / "plain")
    file = tmp_path / "plain" / "groundtruth.txt"
    lines = [line.split() for line in file.read_text().splitlines()]
    file.write_text("".join(f"{' '.join([item[0], '2e7', *item[2:]])}\n" for item in lines))
    with pytest.raises(DatasetError, match=r"the coordinate 2e\+07 is beyond 1e\+07 m"):
        open_drive(tmp_path / "plain")
    MAKERS["cold"](tmp_path / "cold")
    for image in (tmp_path / "cold" / "std_cam").iterdir():
        image.rename(image.with_name(image.name.replace("_y-0.25", "_y-20000000.25")))
    with pytest.raises(DatasetError, match=r"the coordinate 2e\+07 is beyond 1e\+07 m"):
        open_drive(tmp_path / "cold")


def negative_lines(file: Path) -> None:
    lines = file.read_text().splitlines()
    file.write_text("".join(line if line.startswith("#") else f"-{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("tum", "groundtruth.txt"),
        ("tum", "rgb.txt"),
        ("openloris", "odom.txt"),
        ("plain", "groundtruth.txt"),
        ("kitti", "sequences/03/times.txt"),
    ],
)
def test_negative_stamps_are_named(tmp_path: Path, kind: str, file: str) -> None:
    MAKERS[kind](tmp_path / kind)
    negative_lines(tmp_path / kind / file)
    drive = tmp_path / kind / ("sequences/03" if kind == "kitti" else "")
    how = "measured" if kind == "openloris" else "simulate"
    # Zero is no negative number: KITTI's clock begins there.
    with pytest.raises(DatasetError, match=r"the stamp -[0-9.e+-]+ is negative"):
        open_drive(drive, odometry=how)


def test_so_are_those_of_cold_and_of_images_named_by_them(tmp_path: Path) -> None:
    MAKERS["cold"](tmp_path / "cold")
    for image in (tmp_path / "cold" / "std_cam").iterdir():
        image.rename(image.with_name(f"t-{image.name[1:]}"))
    with pytest.raises(DatasetError, match=r"the stamp of t-\S+ is negative"):
        open_drive(tmp_path / "cold")
    MAKERS["plain"](tmp_path / "plain")
    for image in (tmp_path / "plain" / "images").iterdir():
        image.rename(image.with_name(f"-{image.name}"))
    with pytest.raises(DatasetError, match=r"the stamp -\S+ is negative"):
        open_drive(tmp_path / "plain")


def test_and_those_of_a_bag(tmp_path: Path) -> None:
    before = -(10**9)
    messages = [("/odom", START_NS, odometry(before + n, 0.0, 0.0, 0.0)) for n in range(3)]
    messages.append(("/image/compressed", START_NS, compressed(before, b"image")))
    with pytest.raises(DatasetError, match="are zero or negative"):
        open_drive(write_messages(tmp_path / "bag", messages))
    assert drive_messages(MemoryDrive(frames=2))  # stamped after 1970
