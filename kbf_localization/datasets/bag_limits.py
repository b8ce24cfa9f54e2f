"""Limits on what a bag may unpack to: `rosbags` by itself unpacks whatever a chunk holds.

A few kilobytes can claim, or turn into, gigabytes. Recorders write chunks of one to ten megabytes.
"""

from __future__ import annotations

import bz2
import importlib
import io
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PosixPath, PurePath
from typing import IO, Any, BinaryIO

import lz4.frame  # type: ignore[import-untyped]
import numpy as np
import yaml

from kbf_localization.datasets.files import (
    check_regular,
    check_yaml,
    printable,
    read_regular,
)
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_METADATA_BYTES

MAX_CHUNK_BYTES = 128_000_000
"""Of one chunk, or one compressed message; a raw 4K image has 25 MB."""
MAX_OPEN_BYTES = 4 * MAX_CHUNK_BYTES
"""Of all chunks whose times overlap: they are held at once."""
MAX_QOS_CHARS = 100_000
"""Of a topic's QoS profiles, in YAML: 300 publishers offer less."""
MAX_DISTINCT_QOS_CHARS = 10 * MAX_QOS_CHARS
"""Of all texts of a bag that differ: `rosbags` reads 250,000 a second; equal ones are read once."""
MAX_METADATA_VALUES = 50_000
"""`rosbags` reads some thousand a second; a topic and a file have about ten each."""
MAX_FILE_RATIO = 200
"""A storage file may unpack to so many times its size, which no recording does."""


def check_files(path: Path) -> None:
    """Refuse what is not made of regular files, or has metadata that grows when it is read."""
    files = [path]
    if path.is_dir():
        files = [entry for entry in path.iterdir() if not entry.is_dir()]
        metadata = path / "metadata.yaml"
        if metadata.exists():
            content = read_regular(metadata, MAX_METADATA_BYTES)
            check_yaml(metadata, content, MAX_METADATA_VALUES)
            _check_named_once(metadata, content)
    for file in files:
        check_regular(file)


def _check_named_once(path: Path, metadata: bytes) -> None:
    """Refuse a list with the same file twice: `rosbags` opens and reads each that is named."""
    node = yaml.compose(metadata, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for key in ("rosbag2_bagfile_information", "relative_file_paths"):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    named = node.value if isinstance(node, yaml.SequenceNode) else []
    # It looks for them by their names alone, in the bag's own folder.
    names = Counter(PurePath(str(entry.value)).name for entry in named)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise DatasetError(f"{path}: names {printable(twice[0])} more than once")


def max_unpacked_bytes(size: int) -> int:
    """Return the most bytes that a storage of `size` bytes may unpack to."""
    return MAX_CHUNK_BYTES + MAX_FILE_RATIO * size


def bag_size(path: Path) -> int:
    """Return the bytes of a bag's file, or of its folder's files."""
    files = path.iterdir() if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files)


def check_storages(path: Path, reader: Any) -> None:
    """Refuse a bag whose MCAP chunks claim more than the limits."""
    storages = [getattr(reader, "storage", None), *getattr(reader, "storages", [])]
    storages += getattr(storages[0], "storages", [])
    for storage in storages:
        chunks = getattr(storage, "chunks", [])
        largest = max((chunk.uncompressed_size for chunk in chunks), default=0)
        if largest > MAX_CHUNK_BYTES:
            raise DatasetError(f"{path}: {_too_much(largest, MAX_CHUNK_BYTES)}")
        held = _max_open_bytes(chunks)
        if held > MAX_OPEN_BYTES:
            raise DatasetError(f"{path}: {_too_much(held, MAX_OPEN_BYTES)} of overlapping times")


def _max_open_bytes(chunks: list[Any]) -> int:
    """Return the most bytes of chunks whose times overlap."""
    changes = []
    for chunk in chunks:
        changes.append((chunk.message_start_time, 1, chunk.uncompressed_size))
        changes.append((chunk.message_end_time, 2, -chunk.uncompressed_size))
    most = held = 0
    for _, _, size in sorted(changes):
        held += size
        most = max(most, held)
    return most


def _too_much(size: int, limit: int) -> str:
    return f"chunks of {size / 1e6:.0f} MB, more than the {limit / 1e6:.0f} MB that are read"


def _unpack(decompressor: Any, data: bytes, limit: int = MAX_CHUNK_BYTES) -> bytes:
    """Return all that `data` unpacks to; ValueError where that is more than `limit` bytes."""
    content = bytes(decompressor.decompress(data, max_length=limit + 1))
    if len(content) > limit:
        raise ValueError(f"a chunk unpacks to more than the {limit / 1e6:.6g} MB that are read")
    return content


def unpack_records(unpack: Callable[[bytes, int], bytes], data: bytes, size: int) -> bytes:
    """Unpack an MCAP chunk; ValueError where it has more records than bytes when packed.

    A record of nine bytes takes as long to pass over as an image, and its time alone leaves a byte
    or more in a packed chunk.
    """
    content = unpack(data, min(size, MAX_CHUNK_BYTES))
    left, at, end = MIN_CHUNK_RECORDS + len(data), 0, len(content) - _RECORD.size
    while at <= end:
        left -= 1
        if left < 0:
            raise ValueError("a chunk has more records than any recording's")
        at += _RECORD.size + _LENGTH.unpack_from(content, at + 1)[0]
    return content


class _BoundedZstd:
    """The part of a zstd module that `rosbags` uses, with limits."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._left = 0

    def begin(self, size: int) -> None:
        """Limit what all files of a bag of `size` bytes, which lie on the disk, unpack to."""
        self._left = max_unpacked_bytes(size)

    def decompress(self, data: bytes, limit: int = MAX_CHUNK_BYTES) -> bytes:
        return _unpack(self._module.ZstdDecompressor(), data, limit)

    @contextmanager
    def open(self, file: IO[bytes], mode: str) -> Iterator[_BoundedFile]:
        with self._module.open(file, mode) as content:
            yield _BoundedFile(content, self._spend)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DatasetError("compressed files unpack to more than any recording does")


class _BoundedFile:
    """A file of which each part that is read is spent."""

    def __init__(self, file: IO[bytes], spend: Callable[[int], None]) -> None:
        self._file, self._spend = file, spend

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._spend(len(data))
        return data


class BoundedPath(PosixPath):
    """A path whose file is read by at most a chunk and its header at once.

    A record may claim any size, and a file of gigabytes need not take any room on the disk.
    """

    def open(self, *_: Any, **__: Any) -> BinaryIO:  # type: ignore[override]
        """Open the file to read its bytes."""
        return _BoundedReads(io.FileIO(self))


class _BoundedReads(io.BufferedReader):
    def read(self, size: int | None = -1) -> bytes:
        most = MAX_CHUNK_BYTES + MAX_METADATA_BYTES
        data = super().read(most + 1 if size is None or not 0 <= size <= most else size)
        if len(data) > most:
            raise DatasetError(
                f"{self.name}: a record has more than the {most / 1e6:.0f} MB that are read"
            )
        return data

    def readline(self, size: int | None = -1) -> bytes:
        """Return a line, or the first thousand bytes of a longer line."""
        return super().readline(1000 if size is None or size < 0 else size)


class BoundedQos:
    """The parser of QoS profiles, for texts of lengths that make sense, each of them once."""

    def __init__(self, parse: Any) -> None:
        self._parse = parse
        self._known: dict[str, Any] = {}

    def begin(self) -> None:
        """Forget the texts of the bag before."""
        self._known.clear()

    def __call__(self, profiles: Any) -> Any:
        if not isinstance(profiles, str):
            return self._parse(profiles)
        if profiles not in self._known:
            self._known[profiles] = self._parse(self._checked(profiles))
        return list(self._known[profiles])

    def _checked(self, profiles: str) -> str:
        if len(profiles) > MAX_QOS_CHARS:
            raise ValueError(f"a topic's QoS profiles have {len(profiles) / 1e6:.1f} MB")
        if len(profiles) + sum(map(len, self._known)) > MAX_DISTINCT_QOS_CHARS:
            raise ValueError(f"its QoS profiles have over {MAX_DISTINCT_QOS_CHARS / 1e6:.1f} MB")
        try:
            check_yaml(Path("a topic's QoS profiles"), profiles.encode())
        except DatasetError as error:
            raise ValueError(str(error)) from error
        return profiles


_RECORD, _LENGTH = struct.Struct("<BQ"), struct.Struct("<Q")
MIN_CHUNK_RECORDS = 1000
_MESSAGE, _MESSAGE_HEAD = 0x05, struct.Struct("<HIQQ")


def chunk_messages(
    chunk: Any, channels: Mapping[int, Any], start: int, stop: int, file: IO[bytes]
) -> Iterator[Any]:
    """Yield the messages of an MCAP chunk in the order of time, as `rosbags` does.

    That makes objects of all messages at once: some 200 bytes for each, of which a chunk of empty
    ones has millions.
    """
    mcap: Any = importlib.import_module("rosbags.rosbag2.storage_mcap")
    yield mcap.Msg(chunk.message_start_time, 0, None, None)
    begin = chunk.chunk_start_offset + _RECORD.size
    file.seek(begin + 24)
    (checksum,) = struct.unpack("<I", mcap.read_exact(file, 4))
    file.seek(begin + 40 + len(chunk.compression))
    packed = mcap.read_exact(file, chunk.compressed_size)
    size = chunk.uncompressed_size
    content = mcap.decompress(packed, chunk.compression, size, checksum)
    at, places, times = 0, array("Q"), array("Q")
    while at < size:
        kind, length = _RECORD.unpack_from(content, at)
        if at + _RECORD.size + length > size:
            raise ValueError(f"a record of {length} bytes is longer than its chunk")
        if kind == _MESSAGE:
            channel, _, time, _ = _MESSAGE_HEAD.unpack_from(content, at + _RECORD.size)
            if start <= time < stop and channel in channels:
                places.append(at)
                times.append(time)
        at += _RECORD.size + length
    for row in np.argsort(np.array(times), kind="stable"):
        at = places[row]
        (length,) = struct.unpack_from("<Q", content, at + 1)
        channel, _, time, _ = _MESSAGE_HEAD.unpack_from(content, at + _RECORD.size)
        data = content[at + _RECORD.size + _MESSAGE_HEAD.size : at + _RECORD.size + length]
        yield mcap.Msg(time, chunk.chunk_start_offset, channels[channel], data)


def install(size: int) -> None:
    """Put the limits into `rosbags`, once, and begin to read a bag of `size` bytes.

    Older versions of it have not all of these places.
    """
    for storage in ("storage_mcap", "storage_sqlite3", "reader"):
        module: Any = importlib.import_module(f"rosbags.rosbag2.{storage}")
        parse = getattr(module, "parse_qos", None)
        if isinstance(parse, BoundedQos):
            parse.begin()
        elif parse is not None:
            module.parse_qos = BoundedQos(parse)
    ros1_reader: Any = importlib.import_module("rosbags.rosbag1.reader")
    ros2_reader: Any = importlib.import_module("rosbags.rosbag2.reader")
    storage_mcap: Any = importlib.import_module("rosbags.rosbag2.storage_mcap")
    if hasattr(storage_mcap, "msgsrc") and hasattr(storage_mcap, "decompress"):
        storage_mcap.msgsrc = chunk_messages
    chunks = getattr(storage_mcap, "DECOMPRESSORS", {})
    zstd = getattr(ros2_reader, "zstd", None)
    if zstd is not None and not isinstance(zstd, _BoundedZstd):
        zstd = ros2_reader.zstd = _BoundedZstd(zstd)
        chunks["zstd"] = partial(unpack_records, zstd.decompress)
    if zstd is not None:
        zstd.begin(size)
    chunks["lz4"] = partial(
        unpack_records,
        lambda data, limit: _unpack(lz4.frame.LZ4FrameDecompressor(), data, limit),
    )
    getattr(ros1_reader, "decompressors", {}).update(
        lz4=lambda data: _unpack(lz4.frame.LZ4FrameDecompressor(), data),
        bz2=lambda data: _unpack(bz2.BZ2Decompressor(), data),
    )
