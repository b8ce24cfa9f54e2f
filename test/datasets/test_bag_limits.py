"""Bags that unpack to far more than they are, special files, and columns of strange types."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Writer

from kbf_localization.datasets.bag_limits import MAX_CHUNK_BYTES, check_storages
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.rosbag import RosbagDrive
from kbf_localization.errors import DatasetError
from test.datasets.bags import (
    START_NS,
    MemoryDrive,
    compressed,
    drive_messages,
    odometry,
    write_messages,
)
from test.datasets.cold_folders import make_cold_drive

BOMB = MAX_CHUNK_BYTES + 1_000_000


class CompressingWriter(Writer):
    """Compresses as `mode` says."""

    mode = CompressionMode.NONE

    def open(self) -> None:
        self.set_compression(self.mode, CompressionFormat.ZSTD)
        super().open()


@pytest.fixture
def compressing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(CompressingWriter, "mode", request.param)
    monkeypatch.setattr("test.datasets.bags.Writer", CompressingWriter)


def write_bomb(path: Path, size: int = BOMB) -> Path:
    """A bag with an image message of zeros, which compress to a few kilobytes."""
    messages = [
        ("/odom", START_NS, odometry(START_NS, 0, 0, 0)),
        ("/odom", START_NS, odometry(START_NS + 10**8, 0, 0, 0)),
        ("/image/compressed", START_NS, compressed(START_NS + 10, bytes(size))),
    ]
    return write_messages(path, messages)


STORAGE, MESSAGE, FILE = CompressionMode.STORAGE, CompressionMode.MESSAGE, CompressionMode.FILE


@pytest.mark.usefixtures("compressing")
@pytest.mark.parametrize("compressing", [STORAGE, MESSAGE], indirect=True)
def test_a_bag_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    bag = write_bomb(tmp_path / "bomb")
    assert sum(file.stat().st_size for file in bag.iterdir()) < 200_000
    with pytest.raises(DatasetError, match="128 MB that are read"):
        RosbagDrive(bag)


@pytest.mark.usefixtures("compressing")
@pytest.mark.parametrize("compressing", [FILE], indirect=True)
def test_a_compressed_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="more than any recording"):
        RosbagDrive(write_bomb(tmp_path / "bomb", size=BOMB + 20_000_000))


@pytest.mark.usefixtures("compressing")
@pytest.mark.parametrize("compressing", [STORAGE, MESSAGE, FILE], indirect=True)
def test_honest_compression_is_read(tmp_path: Path) -> None:
    drive = RosbagDrive(write_messages(tmp_path / "bag", drive_messages(MemoryDrive())))
    assert len(drive) == 12
    assert all(image is not None for _, image in drive.images())


@pytest.mark.parametrize("kind", [Writer1.CompressionFormat.BZ2, Writer1.CompressionFormat.LZ4])
def test_a_ros1_chunk_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, kind: Writer1.CompressionFormat
) -> None:
    path = tmp_path / "bomb.bag"
    writer = Writer1(path)
    writer.set_compression(kind)
    with writer:
        for topic, kind_of, size in (
            ("/odom", "nav_msgs/msg/Odometry", 10),
            ("/camera", "sensor_msgs/msg/CompressedImage", BOMB),
        ):
            connection = writer.add_connection(topic, kind_of, msgdef="x", md5sum=topic)
            writer.write(connection, START_NS, bytes(size))
    with pytest.raises(DatasetError, match="unpacks to more than the 128 MB"):
        RosbagDrive(path)


def test_chunks_that_would_be_held_at_once_are_limited_together() -> None:
    def chunk(start: int, end: int, size: int) -> SimpleNamespace:
        return SimpleNamespace(
            message_start_time=start, message_end_time=end, uncompressed_size=size
        )

    def reader(chunks: list[SimpleNamespace]) -> SimpleNamespace:
        return SimpleNamespace(storage=SimpleNamespace(chunks=chunks))

    size = MAX_CHUNK_BYTES // 2
    check_storages(Path("bag"), reader([chunk(i, i, size) for i in range(100)]))
    with pytest.raises(DatasetError, match="overlapping times"):
        check_storages(Path("bag"), reader([chunk(0, 100, size) for _ in range(9)]))


@pytest.fixture
def sqlite_bag(tmp_path: Path) -> Path:
    write_bag(MemoryDrive(frames=4), tmp_path / "bag", storage="sqlite3")
    return tmp_path / "bag"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE messages SET timestamp = 'yesterday'",
        "UPDATE messages SET data = 'text'",
        "UPDATE messages SET timestamp = x'00'",
        "UPDATE topics SET type = x'00ff'",
        "UPDATE topics SET offered_qos_profiles = 12",
    ],
)
def test_sqlite_columns_of_strange_types_are_one_line(sqlite_bag: Path, change: str) -> None:
    (file,) = sqlite_bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.execute(change)
    for path in (sqlite_bag, file):
        with pytest.raises(DatasetError) as raised:
            RosbagDrive(path)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("special", ["fifo", "zero"])
def test_special_files_in_a_bag_do_not_block(sqlite_bag: Path, special: str) -> None:
    def put(path: Path) -> None:
        path.unlink()
        if special == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")

    put(sqlite_bag / "metadata.yaml")
    assert len(open_drive(sqlite_bag)) == 4  # by its storage alone
    put(sqlite_bag / "bag.db3")
    with pytest.raises(DatasetError, match="not a regular file"):
        open_drive(sqlite_bag)


def test_a_bag_that_is_itself_a_fifo_does_not_block(tmp_path: Path) -> None:
    for suffix in (".mcap", ".db3", ".bag"):
        os.mkfifo(tmp_path / f"drive{suffix}")
        with pytest.raises(DatasetError, match="not a regular file"):
            open_drive(tmp_path / f"drive{suffix}")


def test_metadata_with_aliases_is_not_expanded(sqlite_bag: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    with (sqlite_bag / "metadata.yaml").open("a") as file:
        file.write("\n".join(lines))
    with pytest.raises(DatasetError, match="YAML aliases"):
        open_drive(sqlite_bag)


def test_a_sparse_file_of_gigabytes_is_no_image(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", frames=4)
    image = sorted((folder / "std_cam").iterdir())[1]
    with image.open("r+b") as file:
        file.truncate(8_000_000_000)
    drive = open_drive(folder)
    assert [index for index, one in drive.images() if one is None] == [1]


def test_a_list_of_gigabytes_is_refused(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", frames=4)
    with (folder / "odom_scans" / "odom.tdf").open("r+b") as file:
        file.truncate(8_000_000_000)
    with pytest.raises(DatasetError, match="has 8000 MB, more than the 500 MB"):
        open_drive(folder)


def test_a_folder_whose_name_is_not_utf8_has_a_name_that_can_be_written(tmp_path: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/drive\xff"))
    shutil.copytree(make_cold_drive(tmp_path / "plain", frames=4), strange)
    (strange / "std_cam" / "notes.txt").write_text("not an image")
    drive = open_drive(strange)
    assert drive.name == r"drive\xff"
    assert drive.warnings and all(line.encode("utf-8") for line in drive.warnings)


COMPUTING_TABLES = {
    "a computed column": "CREATE TABLE {}(id INTEGER, topic_id INTEGER, timestamp INTEGER, "
    "data BLOB AS (zeroblob(999999000)))",
    "a virtual table": "CREATE VIRTUAL TABLE {} USING fts5(id, topic_id, timestamp, data)",
}


@pytest.mark.parametrize("statement", COMPUTING_TABLES.values(), ids=COMPUTING_TABLES.keys())
def test_tables_that_compute_what_they_hold_are_refused(sqlite_bag: Path, statement: str) -> None:
    """A message of 1 GB from a file of 30 kB, and no signal that SQLite would heed meanwhile."""
    with sqlite3.connect(sqlite_bag / "bag.db3") as database:
        database.execute("ALTER TABLE messages RENAME TO recorded")
        database.execute(statement.format("messages"))
        database.execute(
            "INSERT INTO messages(id, topic_id, timestamp) "
            "SELECT id, topic_id, timestamp FROM recorded"
        )
    with pytest.raises(DatasetError, match="its tables compute what they hold"):
        open_drive(sqlite_bag)
