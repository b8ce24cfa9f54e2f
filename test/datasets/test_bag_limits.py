"""Bags that unpack to far more than they are, special files, and columns of strange types."""

from __future__ import annotations

import importlib
import io
import os
import resource
import shutil
import signal
import sqlite3
import struct
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Writer

from kbf_localization.datasets import bag_limits, bag_reader, bag_storage
from kbf_localization.datasets.bag_limits import (
    MAX_CHUNK_BYTES,
    MAX_QOS_CHARS,
    BoundedQos,
    check_storages,
    chunk_messages,
)
from kbf_localization.datasets.bag_writer import write_bag
from kbf_localization.datasets.files import read_lines
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


def write_ros1_bag(path: Path, chunks: list[list[int]]) -> Path:
    """A bag of odometry messages at these times, in these chunks; each has 20 kB of zeros."""
    writer = Writer1(path)
    writer.set_compression(Writer1.CompressionFormat.BZ2)
    with writer:
        connection = writer.add_connection("/odom", "nav_msgs/msg/Odometry", msgdef="x", md5sum="y")
        for times in chunks:
            for time in times:
                writer.chunk_threshold = 0 if time == times[-1] else 10**9
                writer.write(connection, START_NS + time, bytes(20_000))
    return path


def test_a_ros1_index_that_names_a_chunk_twice_is_refused(tmp_path: Path) -> None:
    """Each naming would add all messages of the chunk to the index."""
    path = write_ros1_bag(tmp_path / "twice.bag", [[0], [1]])
    first, *others = path.read_bytes().split(b"chunk_pos=")
    changed = [others[0], *(others[0][:8] + other[8:] for other in others[1:])]
    path.write_bytes(b"chunk_pos=".join([first, *changed]))
    with pytest.raises(DatasetError, match="its index names the same chunk twice"):
        RosbagDrive(path)


def read_raw(path: Path) -> int:
    with bag_reader.open_bag(path) as bag:
        return sum(1 for _ in bag.messages(bag.topics))


def test_ros1_messages_that_alternate_between_chunks_unpack_them_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bag_limits, "MAX_CHUNK_BYTES", 0)
    honest = write_ros1_bag(tmp_path / "honest.bag", [list(range(20)), list(range(20, 40))])
    alternating = write_ros1_bag(
        tmp_path / "alternating.bag", [list(range(0, 40, 2)), list(range(1, 40, 2))]
    )
    monkeypatch.setattr(bag_reader.BagReader, "_cdr", lambda *_: b"")
    assert read_raw(honest) == 40
    with pytest.raises(DatasetError, match="alternate between chunks"):
        read_raw(alternating)


@pytest.mark.parametrize("kind", ["bag", "mcap"])
def test_a_record_of_a_terabyte_that_is_not_on_the_disk_is_not_read(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"sparse.{kind}"
    footer = mcap_record(0x02, bytes(20)) + b"\x89MCAP0\r\n"
    begin = b"" if kind == "bag" else b"\x89MCAP0\r\n" + struct.pack("<BQ", 1, 2**40)
    with path.open("wb") as file:
        file.write(begin)
        file.seek(2**40 + 100)
        file.write(footer)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatasetError):
        open_drive(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


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
    assert len(open_drive(sqlite_bag, follow_links=True)) == 4  # by its storage alone
    put(sqlite_bag / "bag.db3")
    with pytest.raises(DatasetError, match="not a regular file"):
        open_drive(sqlite_bag, follow_links=True)


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


def test_metadata_of_a_hundred_thousand_files_is_refused_at_once(sqlite_bag: Path) -> None:
    metadata = sqlite_bag / "metadata.yaml"
    names = "".join(f"  - part{number}.db3\n" for number in range(100_000))
    text = metadata.read_text().replace("relative_file_paths:\n", f"relative_file_paths:\n{names}")
    assert "part99999" in text
    metadata.write_text(text)
    with pytest.raises(DatasetError, match="more than 50000 values"):
        open_drive(sqlite_bag)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[" * 1_000_000, "nested deeper"), ("[" + "[]," * 1_000_000 + "]", "more than 50000 values")],
)
def test_metadata_of_a_million_lists_is_refused_at_once(
    sqlite_bag: Path, text: str, reason: str
) -> None:
    """libyaml takes 28 s for a hundred thousand open brackets, a hundred times that for ten."""
    with (sqlite_bag / "metadata.yaml").open("a") as file:
        file.write(f"more: {text}\n")
    with pytest.raises(DatasetError, match=reason):
        open_drive(sqlite_bag)


def test_a_sparse_file_of_gigabytes_is_no_image(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", frames=4)
    image = sorted((folder / "std_cam").iterdir())[1]
    with image.open("r+b") as file:
        file.truncate(8_000_000_000)
    drive = open_drive(folder)
    assert [index for index, item in drive.images() if item is None] == [1]


def test_a_list_of_gigabytes_is_refused(tmp_path: Path) -> None:
    folder = make_cold_drive(tmp_path / "drive", frames=4)
    with (folder / "odom_scans" / "odom.tdf").open("r+b") as file:
        file.truncate(8_000_000_000)
    with pytest.raises(DatasetError, match="has 8000 MB, more than the 500 MB"):
        open_drive(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"ab\n" * 5_000_001, "has more than 5000000 lines"),
        (b"1 2\n" + b"ab " * 50_000, "line 2 has 150000 characters"),
    ],
)
def test_a_list_of_tiny_lines_or_words_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    """A word of two letters takes 59 bytes in a list."""
    (tmp_path / "list.txt").write_bytes(text)
    with pytest.raises(DatasetError, match=reason):
        read_lines(tmp_path / "list.txt")


def test_lines_end_as_in_any_text_file(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbfa b\r\nc\x0bd\n\n\xff\rlast")
    lines = ["\ufeffa b", "c\x0bd", "", "\ufffd", "last"]
    assert read_lines(tmp_path / "list.txt") == lines


def test_a_folder_whose_name_is_not_utf8_has_a_name_that_can_be_written(tmp_path: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/drive\xff"))
    shutil.copytree(make_cold_drive(tmp_path / "plain", frames=4), strange)
    (strange / "std_cam" / "notes.txt").write_text("not an image")
    drive = open_drive(strange)
    assert drive.name == r"drive\xff"
    assert drive.warnings and all(line.encode("utf-8") for line in drive.warnings)


HOSTILE_SCHEMAS = {
    "an endless view": "DROP TABLE schema; CREATE VIEW schema AS WITH RECURSIVE more(x) AS "
    "(SELECT 1 UNION ALL SELECT x + 1 FROM more) SELECT max(x) AS schema_version FROM more",
    "a generated column": "DROP TABLE messages; CREATE TABLE messages(id INTEGER PRIMARY KEY, "
    "topic_id INTEGER, timestamp INTEGER, data BLOB AS (zeroblob(900000000))); "
    "INSERT INTO messages(topic_id, timestamp) VALUES (1, 1)",
    "a virtual table": "CREATE VIRTUAL TABLE metadata_text USING fts5(data)",
    "a virtual table of a known name": "DROP TABLE metadata; "
    "CREATE VIRTUAL TABLE metadata USING fts5(data)",
    "a trigger": "CREATE TRIGGER more AFTER INSERT ON messages BEGIN "
    "INSERT INTO messages(topic_id, timestamp, data) VALUES (1, 1, zeroblob(1000)); END",
    "another table": "CREATE TABLE notes(text TEXT)",
}


@pytest.mark.parametrize("statements", HOSTILE_SCHEMAS.values(), ids=HOSTILE_SCHEMAS.keys())
def test_databases_of_more_than_plain_known_tables_are_refused(
    sqlite_bag: Path, statements: str
) -> None:
    """A message of 1 GB from a file of 30 kB, and no signal that SQLite would heed meanwhile."""
    (file,) = sqlite_bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.executescript(statements)
    for path in (sqlite_bag, file):
        with pytest.raises(DatasetError, match="no recorder writes such"):
            open_drive(path)


@pytest.mark.usefixtures("compressing")
@pytest.mark.parametrize("compressing", [FILE], indirect=True)
def test_what_a_compressed_file_unpacks_to_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    monkeypatch.setattr(bag_storage, "check_index", checked.append)
    RosbagDrive(write_messages(tmp_path / "bag", drive_messages(MemoryDrive())))
    assert [path.suffix for path in checked] == [".mcap"]


def test_qos_profiles_of_megabytes_are_not_parsed(sqlite_bag: Path) -> None:
    (file,) = sqlite_bag.glob("*.db3")
    for profiles, reason in (
        ("- depth: 10\n" * 2_000_000, "profiles have 24.0 MB"),
        ("- &a {depth: 1}\n- *a\n", "YAML aliases"),
        ("[" * 90_000, "nested deeper than 50 levels"),
    ):
        with sqlite3.connect(file) as database:
            database.execute("UPDATE topics SET offered_qos_profiles = ?", (profiles,))
        with pytest.raises(DatasetError, match=rf"bag\.db3.*{reason}"):
            open_drive(file)


# A cell of a leaf: lengths of record and header, types of 5 columns, and no data.
EMPTY_ROW = bytes([7, 1, 5, 0, 1, 1, 12, 1, 1])


def put_tree_bomb(
    file: Path,
    levels: int = 8,
    children: int = 300,
    table: str = "messages",
    row: bytes = EMPTY_ROW,
) -> None:
    """Let a table's B-tree refer to the same page again and again: 300^8 rows in 100 kB."""
    with sqlite3.connect(file) as database:
        ((root,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        ((size,),) = database.execute("PRAGMA page_size")
    content = bytearray(file.read_bytes())
    pages = len(content) // size
    leaf = struct.pack(">BHHHBH", 0x0D, 0, 1, size - len(row), 0, size - len(row))
    numbers = [root, *range(pages + 1, pages + levels + 1)]
    made = []
    for child in numbers[1:]:
        cells = struct.pack(">IB", child, 1) * children
        begin = size - len(cells)
        head = struct.pack(">BHHHBI", 0x05, 0, children, begin, 0, child)
        places = struct.pack(f">{children}H", *range(begin, size, 5))
        made.append((head + places).ljust(begin, b"\0") + cells)
    made.append(leaf.ljust(size - len(row), b"\0") + row)
    content += bytes(size * levels)
    for number, page in zip(numbers, made, strict=True):
        content[(number - 1) * size : number * size] = page
    content[28:32] = struct.pack(">I", len(content) // size)
    file.write_bytes(content)


def test_a_tree_that_refers_to_its_pages_again_and_again_ends(sqlite_bag: Path) -> None:
    (file,) = sqlite_bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.execute("DROP INDEX timestamp_idx")
    put_tree_bomb(file)
    with pytest.raises(DatasetError, match="more steps than a file of its size has rows"):
        open_drive(file)


def test_topics_of_more_characters_than_the_file_are_refused(sqlite_bag: Path) -> None:
    """91² topics of 3500 characters, all of them on one page of 4 kB."""
    (file,) = sqlite_bag.glob("*.db3")
    # The type of a text is 13 + 2 * its length; as here, 7 bits a byte.
    record = bytes([8, 0, 0x80 | 7013 >> 7, 7013 & 0x7F, 13, 13, 13, 13]) + b"x" * 3500
    row = bytes([0x80 | len(record) >> 7, len(record) & 0x7F, 1]) + record
    put_tree_bomb(file, levels=2, children=90, table="topics", row=row)
    with pytest.raises(DatasetError, match="its topics are longer than the file"):
        open_drive(file)


def test_thousands_of_message_definitions_are_not_looked_through(sqlite_bag: Path) -> None:
    (file,) = sqlite_bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        rows = ((number, "a/msg/B", "ros2msg", "", "") for number in range(100, 2200))
        database.executemany("INSERT INTO message_definitions VALUES (?, ?, ?, ?, ?)", rows)
    with pytest.raises(DatasetError, match="more than 2000 message definitions"):
        open_drive(file)


def test_an_index_that_names_a_message_again_and_again_ends(
    sqlite_bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tree's last page is the same 40 times: each message comes 40 times."""
    monkeypatch.setattr(bag_limits, "MAX_CHUNK_BYTES", 0)
    monkeypatch.setattr(bag_limits, "MAX_FILE_RATIO", 2)
    (file,) = sqlite_bag.glob("*.db3")
    assert len(open_drive(file)) == 4
    with sqlite3.connect(file) as database:
        ((root,),) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'timestamp_idx'"
        )
        ((size,),) = database.execute("PRAGMA page_size")
    content = bytearray(file.read_bytes())
    leaf = bytes(content[(root - 1) * size : root * size])
    count, begin = struct.unpack_from(">3xHH", leaf)
    assert leaf[0] == 0x0A
    # Records of an interior page of an index stand behind the number of their child.
    cell = (
        struct.pack(">I", len(content) // size + 1) + leaf[struct.unpack_from(">H", leaf, 8)[0] :]
    )
    cell = cell[: 5 + cell[4]]
    copies = 40
    begin = size - copies * len(cell)
    head = struct.pack(">BHHHBI", 0x02, 0, copies, begin, 0, len(content) // size + 1)
    places = struct.pack(f">{copies}H", *range(begin, size, len(cell)))
    content[(root - 1) * size : root * size] = (head + places).ljust(begin, b"\0") + cell * copies
    content += leaf
    content[28:32] = struct.pack(">I", len(content) // size)
    file.write_bytes(content)
    with pytest.raises(DatasetError, match="more bytes of messages than any recording"):
        open_drive(file)
    assert count > 0


def test_a_long_statement_hears_signals(sqlite_bag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls Python now and then, where the handler of Ctrl-C runs."""
    monkeypatch.setattr(bag_storage, "MIN_STEPS", 10**15)
    (file,) = sqlite_bag.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.execute("DROP INDEX timestamp_idx")
    put_tree_bomb(file)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            open_drive(file)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_names_that_mean_something_in_an_address_are_written_and_read(
    tmp_path: Path, storage: str
) -> None:
    for name in ("50%", "a#b", "what?", "..%2fbag%2fbag", "a b&c=d"):
        folder = tmp_path / name
        write_bag(MemoryDrive(frames=4), folder, storage=storage)
        assert len(open_drive(folder)) == 4
        (file,) = (file for file in folder.iterdir() if file.name != "metadata.yaml")
        assert file.name.startswith(name)
        assert len(open_drive(file)) == 4
    assert len(list(tmp_path.iterdir())) == 5


def test_an_encoded_name_does_not_lead_out_of_the_bag(sqlite_bag: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write_bag(MemoryDrive(frames=7), outside, storage="sqlite3")
    shutil.copy(sqlite_bag / "bag.db3", sqlite_bag / "..%2foutside%2foutside.db3")
    metadata = sqlite_bag / "metadata.yaml"
    text = metadata.read_text()
    assert "bag.db3" in text
    metadata.write_text(text.replace("bag.db3", "..%2foutside%2foutside.db3"))
    assert len(open_drive(sqlite_bag)) == 4


def indexed_twice(content: bytes) -> bytes:
    """An MCAP file whose index has its first chunk twice."""
    (begin,) = struct.unpack_from("<Q", content, len(content) - 28)
    at = begin
    while content[at] != 0x08:
        at += 9 + struct.unpack_from("<Q", content, at + 1)[0]
    end = at + 9 + struct.unpack_from("<Q", content, at + 1)[0]
    return content[:end] + content[at:end] + content[end:]


def test_an_index_that_names_a_chunk_twice_is_refused(tmp_path: Path) -> None:
    write_bag(MemoryDrive(frames=4), tmp_path / "bag", storage="mcap")
    (file,) = (tmp_path / "bag").glob("*.mcap")
    file.write_bytes(indexed_twice(file.read_bytes()))
    with pytest.raises(DatasetError, match=r"bag\.mcap: its index names the same bytes"):
        open_drive(tmp_path / "bag")


@pytest.mark.parametrize("claim", [2**40, 2**63])
def test_a_summary_that_claims_more_than_the_file_is_refused(tmp_path: Path, claim: int) -> None:
    write_bag(MemoryDrive(frames=4), tmp_path / "bag", storage="mcap")
    (file,) = (tmp_path / "bag").glob("*.mcap")
    content = bytearray(file.read_bytes())
    (begin,) = struct.unpack_from("<Q", content, len(content) - 28)
    struct.pack_into("<Q", content, begin + 1, claim)
    file.write_bytes(content)
    with pytest.raises(DatasetError, match=f"a record of its summary claims {claim} bytes"):
        open_drive(file)


def mcap_record(kind: int, content: bytes) -> bytes:
    return struct.pack("<BQ", kind, len(content)) + content


def mcap_chunk(content: bytes, claimed: int) -> bytes:
    head = struct.pack("<QQQI", 0, 1, claimed, 0)
    return mcap_record(
        0x06, head + struct.pack("<I", 0) + struct.pack("<Q", len(content)) + content
    )


MCAP_BEGIN = b"\x89MCAP0\r\n" + mcap_record(
    0x01, struct.pack("<I", 4) + b"ros2" + struct.pack("<I", 0)
)


@pytest.mark.parametrize("with_summary", [False, True])
def test_chunks_without_an_index_are_limited_together(tmp_path: Path, with_summary: bool) -> None:
    """A few kilobytes of zstd hold 100 MB of zeros, a hundred times; a summary may name none."""
    content = MCAP_BEGIN + mcap_chunk(b"packed", 100_000_000) * 100
    footer = mcap_record(0x02, struct.pack("<Q", with_summary * len(content)) + bytes(12))
    file = tmp_path / "bombs.mcap"
    file.write_bytes(content + footer + b"\x89MCAP0\r\n")
    with pytest.raises(DatasetError, match="unpacks to 10000 MB, more than any recording"):
        open_drive(file)


def test_an_index_whose_chunks_unpack_to_too_much_together_is_refused(tmp_path: Path) -> None:
    write_bag(MemoryDrive(frames=4), tmp_path / "bag", storage="mcap")
    (file,) = (tmp_path / "bag").glob("*.mcap")
    content = bytearray(file.read_bytes())
    (at,) = struct.unpack_from("<Q", content, len(content) - 28)
    while content[at] != 0x08:
        at += 9 + struct.unpack_from("<Q", content, at + 1)[0]
    end = at + 9 + struct.unpack_from("<Q", content, at + 1)[0]
    struct.pack_into("<Q", content, end - 8, 10**12)
    file.write_bytes(content)
    with pytest.raises(DatasetError, match="unpacks to 1000000 MB, more than any recording"):
        open_drive(file)


def plain_chunk(content: bytes, start: int) -> tuple[SimpleNamespace, io.BytesIO]:
    """What a bag's index says of a chunk that is not compressed, and the chunk's file."""
    described = SimpleNamespace(
        message_start_time=start,
        chunk_start_offset=0,
        compression="",
        compressed_size=len(content),
        uncompressed_size=len(content),
    )
    return described, io.BytesIO(mcap_chunk(content, len(content)))


def test_a_chunk_of_empty_messages_takes_no_more_memory_than_its_bytes_and_places() -> None:
    """20,000 messages without data: 31 bytes each, and 16 for place and time."""
    count = 20_000
    record = mcap_record(0x05, struct.pack("<HIQQ", 1, 0, 5, 5))
    content = record * count
    chunk, file = plain_chunk(content, start=0)
    tracemalloc.start()
    try:
        messages = chunk_messages(chunk, {1: "connection"}, 0, 10, file)
        found = sum(message.connection is not None for message in messages)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == count
    # The bytes twice, places and times in growing arrays, and their order.
    assert most < 2 * len(content) + 64 * count


def test_a_chunks_messages_come_in_the_order_of_time_and_within_the_limits_asked_for() -> None:
    times = [5, 3, 9, 3, 7]
    records = [
        mcap_record(0x05, struct.pack("<HIQQ", 1 + (row == 4), 0, time, 0) + bytes([row]))
        for row, time in enumerate(times)
    ]
    content = mcap_record(0x03, b"a schema").join(records)
    chunk, file = plain_chunk(content, start=3)
    _, *found = chunk_messages(chunk, {1: "connection"}, 3, 9, file)
    assert [(message.timestamp, message.data) for message in found] == [
        (3, b"\1"),
        (3, b"\3"),
        (5, b"\0"),
    ]
    file = io.BytesIO(mcap_chunk(content[:-1], len(content)))
    chunk.uncompressed_size = chunk.compressed_size = len(content) - 1
    with pytest.raises(ValueError, match="longer than its chunk"):
        list(chunk_messages(chunk, {1: "connection"}, 3, 9, file))


def test_equal_qos_profiles_are_parsed_once_and_the_others_limited_together() -> None:
    parsed: list[str] = []

    def parse(text: str) -> list[str]:
        parsed.append(text)
        return [text]

    bounded = BoundedQos(parse)
    for _ in range(1000):
        assert bounded("- depth: 1") == ["- depth: 1"]
    assert len(parsed) == 1
    long = "#" * (MAX_QOS_CHARS - 2)
    for number in range(9):
        bounded(f"{long}{number}")
    with pytest.raises(ValueError, match="over 1.0 MB"):
        bounded(f"{long}99")
    bounded.begin()
    assert bounded(f"{long}0")


def mcap_text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


def mcap_of_one_chunk(packed: bytes, claimed: int) -> bytes:
    """A file with an index, which says that its zstd chunk has odometry and images."""
    kinds = ("nav_msgs/msg/Odometry", "/odom"), ("sensor_msgs/msg/CompressedImage", "/image")
    known = b""
    for number, (kind, topic) in enumerate(kinds, 1):
        texts = mcap_text(kind) + mcap_text("ros2msg") + mcap_text("x")
        known += mcap_record(0x03, struct.pack("<H", number) + texts)
        texts = mcap_text(topic) + mcap_text("cdr") + struct.pack("<I", 0)
        known += mcap_record(0x04, struct.pack("<HH", number, number) + texts)
    begin = MCAP_BEGIN + known
    head = struct.pack("<QQQI", 0, 10, claimed, 0) + mcap_text("zstd")
    chunk = mcap_record(0x06, head + struct.pack("<Q", len(packed)) + packed)
    place = struct.pack("<QQQQIQ", 0, 10, len(begin), len(chunk), 0, 0)
    sizes = struct.pack("<QQ", len(packed), claimed)
    index = mcap_record(0x08, place + mcap_text("zstd") + sizes)
    counts = struct.pack("<IHQHQ", 20, 1, 10, 2, 10)
    counted = mcap_record(0x0B, struct.pack("<QHIIIIQQ", 20, 2, 2, 0, 0, 1, 0, 10) + counts)
    body = begin + chunk + mcap_record(0x0F, bytes(4))
    end = mcap_record(0x02, struct.pack("<QQI", len(body), 0, 0)) + b"\x89MCAP0\r\n"
    return body + known + index + counted + end


def zstd(content: bytes, times: int = 1) -> bytes:
    compressor = importlib.import_module("rosbags.rosbag2.writer").zstd.ZstdCompressor()
    return b"".join(compressor.compress(content) for _ in range(times)) + compressor.flush()


@pytest.mark.parametrize("kind", ["claims less", "packed twice", "a chunk within a chunk"])
def test_an_mcap_chunk_unpacks_once_and_to_what_it_claims(tmp_path: Path, kind: str) -> None:
    zeros = zstd(bytes(1_000_000), 300)
    packed, claimed = {
        "claims less": (zeros, 1000),
        "packed twice": (zstd(zeros), len(zeros)),
        "a chunk within a chunk": (
            zstd(mcap_chunk(zeros, 3 * 10**8)),
            len(mcap_chunk(zeros, 3 * 10**8)),
        ),
    }[kind]
    file = tmp_path / "bomb.mcap"
    file.write_bytes(mcap_of_one_chunk(packed, claimed))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=r"bomb\.mcap: none of the 10 messages on /odom"):
            open_drive(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A record is read into room for the longest that is allowed.
    assert most < MAX_CHUNK_BYTES + 30_000_000
