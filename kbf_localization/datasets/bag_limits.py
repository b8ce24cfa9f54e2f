"""Limits on what a bag may unpack to: `rosbags` by itself unpacks whatever a chunk holds.

A few kilobytes can claim, or turn into, gigabytes. Recorders write chunks of one to ten megabytes.
"""

from __future__ import annotations

import bz2
import importlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import lz4.frame  # type: ignore[import-untyped]

from kbf_localization.datasets.files import check_yaml, read_regular
from kbf_localization.errors import DatasetError
from kbf_localization.limits import MAX_METADATA_BYTES

MAX_CHUNK_BYTES = 128_000_000
"""Of one chunk, or one compressed message; a raw 4K image has 25 MB."""
MAX_OPEN_BYTES = 4 * MAX_CHUNK_BYTES
"""Of all chunks whose times overlap: they are held at once."""
MAX_QOS_CHARS = 100_000
"""Of a topic's QoS profiles, in YAML: 300 publishers offer less."""
MAX_METADATA_VALUES = 50_000
"""`rosbags` reads some thousand a second; a topic and a file have about ten each."""
MAX_FILE_RATIO = 200
"""A compressed storage file may unpack to so many times its size, which no recording does."""


def check_files(path: Path) -> None:
    """Refuse what is not made of regular files, or has metadata that grows when it is read."""
    files = [path]
    if path.is_dir():
        files = [entry for entry in path.iterdir() if not entry.is_dir()]
        metadata = path / "metadata.yaml"
        if metadata.exists():
            content = read_regular(metadata, MAX_METADATA_BYTES)
            check_yaml(metadata, content, MAX_METADATA_VALUES)
    for file in files:
        if not stat.S_ISREG(file.stat().st_mode):
            raise DatasetError(f"{file}: is not a regular file")


def check_storages(path: Path, reader: Any) -> None:
    """Refuse a bag whose MCAP chunks claim more than the limits."""
    storages = [getattr(reader, "storage", None), *getattr(reader, "storages", [])]
    storages += getattr(storages[0], "storages", [])
    for storage in storages:
        chunks = getattr(storage, "chunks", [])
        largest = max((chunk.uncompressed_size for chunk in chunks), default=0)
        if largest > MAX_CHUNK_BYTES:
            raise DatasetError(f"{path}: {_too_much(largest, MAX_CHUNK_BYTES)}")
        held = _most_at_once(chunks)
        if held > MAX_OPEN_BYTES:
            raise DatasetError(f"{path}: {_too_much(held, MAX_OPEN_BYTES)} of overlapping times")


def _most_at_once(chunks: list[Any]) -> int:
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
    """All that `data` unpacks to; DatasetError where that is more than `limit` bytes."""
    content = bytes(decompressor.decompress(data, max_length=limit + 1))
    if len(content) > limit:
        raise DatasetError(f"a chunk unpacks to more than the {limit / 1e6:.0f} MB that are read")
    return content


class _BoundedZstd:
    """The part of a zstd module that `rosbags` uses, with limits."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def decompress(self, data: bytes, limit: int = MAX_CHUNK_BYTES) -> bytes:
        return _unpack(self._module.ZstdDecompressor(), data, limit)

    @contextmanager
    def open(self, file: IO[bytes], mode: str) -> Iterator[_BoundedFile]:
        limit = MAX_CHUNK_BYTES + MAX_FILE_RATIO * os.fstat(file.fileno()).st_size
        with self._module.open(file, mode) as content:
            yield _BoundedFile(content, limit)


class _BoundedFile:
    """A file that may be read up to a limit."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._left = file, limit

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DatasetError("a compressed file unpacks to more than any recording does")
        return data


def _bounded_qos(parse: Any) -> Any:
    """Return the parser of QoS profiles, for texts of a length that makes sense."""

    def parse_qos(profiles: Any) -> Any:
        if isinstance(profiles, str):
            if len(profiles) > MAX_QOS_CHARS:
                raise ValueError(f"a topic's QoS profiles have {len(profiles) / 1e6:.1f} MB")
            try:
                check_yaml(Path("a topic's QoS profiles"), profiles.encode())
            except DatasetError as error:
                raise ValueError(str(error)) from error
        return parse(profiles)

    parse_qos.is_bounded = True  # type: ignore[attr-defined]
    return parse_qos


def install() -> None:
    """Put the limits into `rosbags`, once; older versions of it have not all of these places."""
    for storage in ("storage_mcap", "storage_sqlite3", "reader"):
        module: Any = importlib.import_module(f"rosbags.rosbag2.{storage}")
        parse = getattr(module, "parse_qos", None)
        if parse is not None and not hasattr(parse, "is_bounded"):
            module.parse_qos = _bounded_qos(parse)
    ros1_reader: Any = importlib.import_module("rosbags.rosbag1.reader")
    ros2_reader: Any = importlib.import_module("rosbags.rosbag2.reader")
    storage_mcap: Any = importlib.import_module("rosbags.rosbag2.storage_mcap")
    chunks = getattr(storage_mcap, "DECOMPRESSORS", {})
    zstd = getattr(ros2_reader, "zstd", None)
    if zstd is not None and not isinstance(zstd, _BoundedZstd):
        bounded = ros2_reader.zstd = _BoundedZstd(zstd)
        chunks["zstd"] = lambda data, size: bounded.decompress(data, min(size, MAX_CHUNK_BYTES))
    chunks["lz4"] = lambda data, size: _unpack(
        lz4.frame.LZ4FrameDecompressor(), data, min(size, MAX_CHUNK_BYTES)
    )
    getattr(ros1_reader, "decompressors", {}).update(
        lz4=lambda data: _unpack(lz4.frame.LZ4FrameDecompressor(), data),
        bz2=lambda data: _unpack(bz2.BZ2Decompressor(), data),
    )
