"""Readers of a bag's storage files, SQLite and MCAP, that check a file before `rosbags` reads it.

SQLite runs what a file's schema says: views, triggers, generated columns and virtual tables turn
a few bytes into endless work, in C code that hears no signal. An MCAP file's index may name one
chunk a million times.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import apsw
from rosbags.rosbag2 import Reader
from rosbags.rosbag2.reader import DirectoryReader
from rosbags.rosbag2.storage_mcap import McapReader
from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader

from kbf_localization.datasets.bag_limits import MAX_CHUNK_BYTES
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_METADATA_BYTES

TABLES = frozenset({"schema", "metadata", "topics", "message_definitions", "messages"})
"""What rosbag2 writes; indexes of these, and SQLite's own tables, may be there too."""
MAX_TOPICS = 10_000
MAX_SCHEMA_CHARS = 100_000
"""Of one SQL statement, those in the file included; rosbag2's longest has 200."""
STEPS_PER_BYTE = 20
"""SQLite's steps for a byte of the file: a row takes ten bytes or more, and some dozen steps in
each of the few statements of a connection."""
LEAST_STEPS = 10_000_000
_STEPS_BETWEEN_LOOKS = 10_000


class CheckedSqlite(Sqlite3Reader):
    """Reads a database of plain tables, within limits of length and work."""

    def open(self) -> None:
        file = Path(str(self.path))
        check_database(file)
        # The path becomes part of a URI, in which %, # and ? have a meaning.
        self.path = Path(quote(os.fsencode(file.resolve())))
        with _limited_connections(file):
            super().open()


class CheckedMcap(McapReader):
    """Reads a file whose index names each of its chunks once."""

    def open(self) -> None:
        check_index(Path(str(self.path)))
        super().open()


class CheckedDirectory(DirectoryReader):
    """Reads a bag's folder by the readers above."""

    STORAGE_PLUGINS: Mapping[str, Any] = {"mcap": CheckedMcap, "sqlite3": CheckedSqlite}


class CheckedReader(Reader):
    """The reader of `rosbags` for folders and single files, with the readers above."""

    STORAGE_PLUGINS: Mapping[str, Any] = {
        "dir": CheckedDirectory,
        ".mcap": CheckedMcap,
        ".db3": CheckedSqlite,
    }


def check_database(path: Path) -> None:
    """Refuse a database that has more than rosbag2's plain tables, or more content than bytes."""
    with _limited_connections(path):
        connection = apsw.Connection(
            f"file:{quote(os.fsencode(path.resolve()))}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
    try:
        _check_content(path, connection, _check_schema(path, connection))
    finally:
        connection.close()


def _check_schema(path: Path, connection: apsw.Connection) -> set[str]:
    """Return the names of the tables."""
    ask = connection.execute
    tables = set()
    for kind, name, table, root in ask("SELECT type, name, tbl_name, rootpage FROM sqlite_master"):
        of_sqlite = isinstance(name, str) and name.startswith("sqlite_")
        if kind not in ("table", "index") or not (of_sqlite or table in TABLES):
            raise DatasetError(
                f"{path}: its database has the {kind!s:.40} {name!r:.40}; no recorder writes such"
            )
        # A virtual table has no pages.
        if not isinstance(root, int) or root < 1:
            raise _computes(path)
        if kind == "table" and not of_sqlite:
            tables.add(str(name))
    for table in tables:
        if any(hidden for (hidden,) in ask("SELECT hidden FROM pragma_table_xinfo(?)", (table,))):
            raise _computes(path)
    return tables


def _check_content(path: Path, connection: apsw.Connection, tables: set[str]) -> None:
    """Refuse too many topics, and pages that are read again and again.

    Without count(*), which SQLite answers in a single step, however long that takes.
    """
    if "topics" in tables:
        topics = connection.execute("SELECT 1 FROM topics LIMIT ?", (MAX_TOPICS + 1,))
        if sum(1 for _ in topics) > MAX_TOPICS:
            raise DatasetError(f"{path}: has more than {MAX_TOPICS} topics")
    if "messages" in tables:
        ((length,),) = connection.execute("SELECT total(length(data)) FROM messages")
        if not isinstance(length, float) or length > path.stat().st_size:
            raise DatasetError(f"{path}: its messages are longer than the file")


def _computes(path: Path) -> DatasetError:
    return DatasetError(f"{path}: its tables compute what they hold; no recorder writes such")


@contextmanager
def _limited_connections(path: Path) -> Iterator[None]:
    """Limit each connection that is made meanwhile, those within `rosbags` included."""
    steps = LEAST_STEPS + STEPS_PER_BYTE * path.stat().st_size

    def limit(connection: apsw.Connection) -> None:
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_CHUNK_BYTES)
        connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, MAX_SCHEMA_CHARS)
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.set_progress_handler(_Deadline(path, steps), _STEPS_BETWEEN_LOOKS)

    apsw.connection_hooks.append(limit)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(limit)


class _Deadline:
    """Called by SQLite now and then, which lets Python hear signals; ends what takes too long."""

    def __init__(self, path: Path, steps: int) -> None:
        self._path, self._left = path, steps

    def __call__(self) -> bool:
        self._left -= _STEPS_BETWEEN_LOOKS
        if self._left < 0:
            raise DatasetError(f"{self._path}: takes more steps than a file of its size has rows")
        return False


_MAGIC = b"\x89MCAP0\r\n"
_FOOTER_BYTES, _RECORD_BYTES = 37, 9
_FOOTER, _CHUNK_INDEX, _SUMMARY_OFFSET = 0x02, 0x08, 0x0E
_CHUNK_INDEX_BEGIN = struct.Struct("<QQQQI")
MAX_SUMMARY_FRACTION = 10
"""An index may take so much of the file, as 1 in 10, and MAX_METADATA_BYTES beside it."""


def check_index(path: Path) -> None:
    """Refuse an MCAP file whose summary is huge, or names bytes outside or twice as chunks.

    What is damaged otherwise `rosbags` refuses by itself.
    """
    size = path.stat().st_size
    if size < len(_MAGIC) + _FOOTER_BYTES:
        return
    with path.open("rb") as file:
        file.seek(size - _FOOTER_BYTES)
        footer = file.read(_FOOTER_BYTES)
        (begin,) = struct.unpack_from("<Q", footer, _RECORD_BYTES)
        end = size - _FOOTER_BYTES
        if not footer.endswith(_MAGIC) or not 0 < begin <= end:
            return
        if end - begin > MAX_METADATA_BYTES + size // MAX_SUMMARY_FRACTION:
            raise DatasetError(f"{path}: its summary has {(end - begin) / 1e6:.0f} MB")
        chunks = sorted(_indexed_chunks(path, file, begin, end))
    for (start, length), (following, _) in pairwise([*chunks, (begin, 0)]):
        if start + length > following:
            raise DatasetError(f"{path}: its index names the same bytes in several chunks")


def _indexed_chunks(path: Path, file: IO[bytes], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where each chunk of the index begins, and how many bytes it has."""
    at = begin
    while at + _RECORD_BYTES <= end:
        file.seek(at)
        kind, length = struct.unpack("<BQ", file.read(_RECORD_BYTES))
        if kind in (_FOOTER, _SUMMARY_OFFSET):
            return
        if at + _RECORD_BYTES + length > end:
            raise DatasetError(f"{path}: a record of its summary claims {length} bytes")
        if kind == _CHUNK_INDEX:
            record = file.read(length)
            _, _, start, chunk_length, offsets = _CHUNK_INDEX_BEGIN.unpack_from(record)
            (name,) = struct.unpack_from("<I", record, _CHUNK_INDEX_BEGIN.size + offsets + 8)
            sizes = _CHUNK_INDEX_BEGIN.size + offsets + 12 + name
            (compressed,) = struct.unpack_from("<Q", record, sizes)
            if compressed > chunk_length:
                raise DatasetError(f"{path}: a chunk of {chunk_length} bytes holds {compressed}")
            yield start, chunk_length
        at += _RECORD_BYTES + length
