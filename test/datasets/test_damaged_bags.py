"""Whatever bytes are wrong in a bag: a drive, or the documented error, soon."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import yaml

from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import DatasetError
from test.datasets.bags import MemoryDrive, drive_messages, write_messages_ros1

CASES = 25


def read_everything(path: Path) -> None:
    try:
        drive = RosbagDrive(path)
        assert len(drive) == len(drive.stamps_ns)
        for _ in drive.images():
            pass
    except DatasetError as error:
        assert "\n" not in str(error) and str(path) in str(error)


@pytest.mark.parametrize(
    "notes", ["[5]", "a word", "{condition: [5], 7: night}", "{condition: {}}"]
)
def test_notes_that_are_none_are_passed_over(tmp_path: Path, notes: str) -> None:
    path = tmp_path / "bag"
    write_bag(MemoryDrive(frames=4), path)
    metadata = path / "metadata.yaml"
    kept = yaml.safe_load(metadata.read_text())
    kept["rosbag2_bagfile_information"]["custom_data"] = yaml.safe_load(notes)
    metadata.write_text(yaml.safe_dump(kept))
    assert RosbagDrive(path).condition is None


def damage(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out, or doubled at a random place."""
    at, length = rng.randrange(len(data)), rng.choice((1, 1, 2, 4, 8, 64))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at] + rng.randbytes(length) + data[at + length :]
    if kind == 1:
        return data[:at] + b"\xff" * length + data[at + length :]
    if kind == 2:
        return data[:at] + data[at + length :]
    return data[:at]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3", "metadata", "ros1"])
def test_damaged_bytes_give_a_drive_or_one_line(tmp_path: Path, storage: str) -> None:
    drive = MemoryDrive(frames=4)
    if storage == "ros1":
        whole = write_messages_ros1(tmp_path / "whole.bag", drive_messages(drive))
        file = tmp_path / "damaged.bag"
        original = whole.read_bytes()
        path = file
    else:
        kind = "mcap" if storage == "metadata" else storage
        write_bag(drive, tmp_path / "whole", storage=kind)
        path = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", path)
        name = "metadata.yaml" if storage == "metadata" else next(path.glob("whole.*")).name
        file = path / name
        original = file.read_bytes()
    rng = random.Random(storage)
    for _ in range(CASES):
        file.write_bytes(damage(original, rng))
        read_everything(path)
