"""Storage files of bags, which are checked before `rosbags` reads them.

SQLite runs what a file's schema says: views, triggers, generated columns and virtual tables turn a
few bytes into endless work, in C code that hears no signal. An MCAP file's index may name one chunk
a million times.
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
from rosbags.rosbag1 import Reader as Reader1
from rosbags.rosbag2 import Reader as Reader2
from rosbags.rosbag2.reader import DirectoryReader
from rosbags.rosbag2.storage_mcap import McapReader
from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader

from kbf_localization.datasets.bag_limits import MAX_CHUNK_BYTES, BoundedPath, max_unpacked_bytes
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_METADATA_BYTES

TABLES = frozenset({"schema", "metadata", "topics", "message_definitions", "messages"})
"""What rosbag2 writes; indexes of these, and SQLite's own tables, may be there too."""
MAX_TOPICS = 10_000
MAX_TYPES = 2000
"""Definitions of messages: `rosbags` looks through them for each topic."""
MAX_DEFINED_CHARS = 20_000_000
"""Of all definitions of messages, or of topics, in an MCAP file."""
MAX_SCHEMA_CHARS = 100_000
"""Of one SQL statement, those in the file included; rosbag2's longest has 200."""
STEPS_PER_BYTE = 20
"""SQLite's steps for a byte of the file: a row takes ten bytes or more, and some dozen steps in
each of the few statements of a connection."""
MIN_STEPS = 10_000_000
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


class _Definitions(dict[int, Any]):
    """Schemas or channels of an MCAP file, up to a number of them and of characters.

    One that is defined again counts too: a topic keeps the definition that it was made with.
    """

    def __init__(self, path: object, most: int) -> None:
        super().__init__()
        self._path, self._most, self._left = path, most, MAX_DEFINED_CHARS

    def __setitem__(self, key: int, definition: Any) -> None:
        known = self.get(key)
        if known == definition:
            return
        self._left -= sum(len(text) for text in definition if isinstance(text, (str, bytes)))
        if self._left < 0 or (known is None and len(self) == self._most):
            raise DatasetError(f"{self._path}: defines more topics or types than any recording")
        super().__setitem__(key, definition)


class CheckedMcap(McapReader):
    """Reads a file whose index names each of its chunks once."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self.schemas = _Definitions(path, MAX_TYPES)
        self.channels = _Definitions(path, MAX_TOPICS)

    def open(self) -> None:
        check_index(Path(str(self.path)))
        self.path = BoundedPath(str(self.path))
        super().open()


class CheckedDirectory(DirectoryReader):
    """Reads a bag's folder by the readers above."""

    STORAGE_PLUGINS: Mapping[str, Any] = {"mcap": CheckedMcap, "sqlite3": CheckedSqlite}


class CheckedReader(Reader2):
    """The reader of `rosbags` for folders and single files, with the readers above."""

    STORAGE_PLUGINS: Mapping[str, Any] = {
        "dir": CheckedDirectory,
        ".mcap": CheckedMcap,
        ".db3": CheckedSqlite,
    }


class CheckedRos1(Reader1):
    """Reads a ROS 1 bag whose index names each chunk once, and unpacks them about once a reading.

    `rosbags` keeps one unpacked chunk: messages that alternate between two of them unpack one for
    each message.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(BoundedPath(path))
        self._places: set[int] = set()
        self._left = 0

    def read_chunk_info(self) -> Any:
        info = super().read_chunk_info()
        if info.pos in self._places:
            raise DatasetError(f"{self.path}: its index names the same chunk twice")
        self._places.add(info.pos)
        return info

    def read_chunk(self) -> Any:
        chunk = super().read_chunk()

        def unpack(data: bytes) -> bytes:
            content = chunk.decompressor(data)
            self._left -= len(content)
            if self._left < 0:
                raise DatasetError(
                    f"{self.path}: its messages alternate between chunks so often that these "
                    "unpack to more than any recording of its size"
                )
            return content

        return chunk._replace(decompressor=unpack)

    def messages(self, *arguments: Any, **keywords: Any) -> Any:
        self._left = max_unpacked_bytes(self.path.stat().st_size)
        return super().messages(*arguments, **keywords)


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
    for table, most in (("topics", MAX_TOPICS), ("message_definitions", MAX_TYPES)):
        if table in tables:
            query = f"SELECT 1 FROM {_quoted(table)} LIMIT ?"  # noqa: S608
            rows = connection.execute(query, (most + 1,))
            if sum(1 for _ in rows) > most:
                raise DatasetError(f"{path}: has more than {most} {table.replace('_', ' ')}")
    size = path.stat().st_size
    for table in sorted(tables):
        names = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        # Of bytes, without reading them: overflow pages may form a circle.
        lengths = "+".join(f"total(octet_length({_quoted(name)}))" for (name,) in names)
        query = f"SELECT {lengths} FROM {_quoted(table)}"  # noqa: S608
        ((length,),) = connection.execute(query)
        if not isinstance(length, float) or length > size:
            raise DatasetError(f"{path}: its {table} are longer than the file")


def _quoted(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _computes(path: Path) -> DatasetError:
    return DatasetError(f"{path}: its tables compute what they hold; no recorder writes such")


@contextmanager
def _limited_connections(path: Path) -> Iterator[None]:
    """Limit each connection that is made meanwhile, those within `rosbags` included."""
    steps = MIN_STEPS + STEPS_PER_BYTE * path.stat().st_size

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
_FOOTER, _CHUNK, _CHUNK_INDEX, _SUMMARY_OFFSET = 0x02, 0x06, 0x08, 0x0E
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
        if not footer.endswith(_MAGIC) or begin > end:
            return
        # Where the summary lacks chunks or schemas, `rosbags` looks through all of the file.
        _check_scanned(path, file, begin or end)
        if begin == 0:
            return
        if end - begin > MAX_METADATA_BYTES + size // MAX_SUMMARY_FRACTION:
            raise DatasetError(f"{path}: its summary has {(end - begin) / 1e6:.0f} MB")
        chunks = sorted(_indexed_chunks(path, file, begin, end))
    for (start, length, _), (following, _, _) in pairwise([*chunks, (begin, 0, 0)]):
        if start + length > following:
            raise DatasetError(f"{path}: its index names the same bytes in several chunks")
    _check_unpacked(path, sum(unpacked for _, _, unpacked in chunks))


def _check_unpacked(path: Path, unpacked: int) -> None:
    if unpacked > max_unpacked_bytes(path.stat().st_size):
        raise DatasetError(
            f"{path}: unpacks to {unpacked / 1e6:.0f} MB, more than any recording of its size"
        )


def _check_scanned(path: Path, file: IO[bytes], end: int) -> None:
    """Refuse a file whose chunks, whether the index names them or not, unpack to too much."""
    at, unpacked = len(_MAGIC), 0
    while at + _RECORD_BYTES <= end:
        file.seek(at)
        kind, length = struct.unpack("<BQ", file.read(_RECORD_BYTES))
        if kind == _CHUNK:
            unpacked += struct.unpack("<16xQ", file.read(24))[0]
        at += _RECORD_BYTES + length
    _check_unpacked(path, unpacked)


def _indexed_chunks(
    path: Path, file: IO[bytes], begin: int, end: int
) -> Iterator[tuple[int, int, int]]:
    """Yield where each chunk of the index begins, how many bytes it has, and how many unpacked."""
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
            compressed, unpacked = struct.unpack_from("<QQ", record, sizes)
            if compressed > chunk_length:
                raise DatasetError(f"{path}: a chunk of {chunk_length} bytes holds {compressed}")
            yield start, chunk_length, unpacked
        at += _RECORD_BYTES + length
