"""Small bags that would make much work or fill the memory, without being large when unpacked."""

from __future__ import annotations

import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest

from kbf_localization.datasets.bag_limits import MAX_CHUNK_BYTES, MIN_CHUNK_RECORDS, unpack_records
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from test.datasets.bags import MemoryDrive
from test.datasets.test_bag_limits import (
    FILE,
    MCAP_BEGIN,
    compressing,  # noqa: F401 (a fixture)
    mcap_record,
    mcap_text,
    write_bomb,
    zstd,
)

MCAP_END = mcap_record(0x02, bytes(20)) + b"\x89MCAP0\r\n"


def zstd_chunk(content: bytes) -> bytes:
    packed = zstd(content)
    head = struct.pack("<QQQI", 0, 1, len(content), 0) + mcap_text("zstd")
    return mcap_record(0x06, head + struct.pack("<Q", len(packed)) + packed)


def list_files(bag: Path, names: list[str]) -> None:
    """Have the metadata name these files in place of the only one."""
    metadata = bag / "metadata.yaml"
    lines = metadata.read_text().splitlines()
    (at,) = (i for i, line in enumerate(lines) if "relative_file_paths" in line)
    indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
    lines[at + 1 : at + 2] = [f"{indent}- {name}" for name in names]
    metadata.write_text("\n".join(lines))


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("again", ["{}", "elsewhere/{}", "../../{}"])
def test_a_file_that_is_named_again_and_again_is_not_opened_as_often(
    tmp_path: Path, storage: str, again: str
) -> None:
    bag = tmp_path / "bag"
    write_bag(MemoryDrive(frames=4), bag, storage=storage)
    (file,) = (path for path in bag.iterdir() if path.suffix in (".mcap", ".db3"))
    list_files(bag, [file.name])
    assert len(open_drive(bag)) == 4
    list_files(bag, [file.name] + [again.format(file.name)] * 10_000)
    with pytest.raises(DatasetError, match=rf"metadata\.yaml: names {file.name} more than once"):
        open_drive(bag)


@pytest.mark.usefixtures("compressing")
@pytest.mark.parametrize("compressing", [FILE], indirect=True)
def test_compressed_files_are_limited_together(tmp_path: Path) -> None:
    """Each would unpack to 100 MB in the folder for temporary files."""
    bag = write_bomb(tmp_path / "bombs", size=100_000_000)
    (file,) = bag.glob("*.zstd")
    shutil.copy(file, bag / "another.zstd")
    list_files(bag, [file.name, "another.zstd"])
    with pytest.raises(DatasetError, match="unpack to more than any recording"):
        open_drive(bag)


def test_a_chunk_has_no_more_records_than_its_packed_bytes() -> None:
    packed = b"eleven bytes"
    for count, refused in ((MIN_CHUNK_RECORDS + len(packed), False), (10**5, True)):
        content = mcap_record(0x70, b"") * count
        if refused:
            with pytest.raises(ValueError, match="more records than any recording"):
                unpack_records(lambda *_, found=content: found, packed, len(content))
        else:
            unpacked = unpack_records(lambda *_, found=content: found, packed, len(content))
            assert unpacked == content


def test_the_smallest_messages_that_a_robot_records_pass() -> None:
    """A megabyte of empty messages at a constant rate; only their numbers and times differ."""
    content = b"".join(
        mcap_record(0x05, struct.pack("<HIQQ", 1, number, 10**18 + number * 10**6, 0))
        for number in range(34_000)
    )
    packed = zstd(content)
    assert unpack_records(lambda *_: content, packed, len(content)) == content


def test_a_file_of_few_kilobytes_with_millions_of_records_is_refused(tmp_path: Path) -> None:
    records = mcap_record(0x70, b"") * 5_000_000
    file = tmp_path / "records.mcap"
    file.write_bytes(MCAP_BEGIN + zstd_chunk(records) + MCAP_END)
    with pytest.raises(DatasetError, match=r"records\.mcap: .*more records than any recording"):
        open_drive(file)


def schema(number: int, characters: int) -> bytes:
    head = struct.pack("<H", number) + mcap_text("a/msg/B") + mcap_text("ros2msg")
    return mcap_record(0x03, head + mcap_text(f"{number:x}" * (characters // len(f"{number:x}"))))


def channel(number: int, of_schema: int, metadata: bytes = b"") -> bytes:
    head = struct.pack("<HH", number, of_schema) + mcap_text(f"/topic{number}") + mcap_text("cdr")
    return mcap_record(0x04, head + struct.pack("<I", len(metadata)) + metadata)


@pytest.mark.parametrize("kind", ["many", "one again and again", "channels", "metadata"])
def test_definitions_that_would_be_held_together_are_limited(tmp_path: Path, kind: str) -> None:
    """8 chunks of 15 MB that compress to almost nothing, each with what a reader keeps."""
    chunks = {
        "many": [schema(number, 15_000_000) for number in range(1, 9)],
        "one again and again": [
            schema(number, 15_000_000).replace(struct.pack("<H", number), b"\x01\x00", 1)
            + channel(number, 1)
            for number in range(1, 9)
        ],
        "channels": [b"".join(channel(number, 0) for number in range(20_000))],
        "metadata": [
            channel(number, 0, mcap_text("k" * 15_000_000) + mcap_text(""))
            for number in range(1, 9)
        ],
    }[kind]
    file = tmp_path / "definitions.mcap"
    packed = b"".join(zstd_chunk(chunk) for chunk in chunks)
    file.write_bytes(MCAP_BEGIN + packed + MCAP_END)
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=r"definitions\.mcap: defines more topics or types"):
            open_drive(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A record is read into room for the longest, and is there as bytes and as text meanwhile.
    assert most < MAX_CHUNK_BYTES + 60_000_000
