"""Rows of a map file that stay on the disk until they are needed: thumbnails and landmarks."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import h5py
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FileThumbnails(Sequence[bytes]):
    """JPEG bytes a pose, which stand one after the other from byte `offset` of the file.

    `ends` (n,) says where each ends, counted from `offset`. Where the file has gone or has been
    replaced since, a thumbnail is empty.
    """

    path: Path
    offset: int
    ends: NDArray[np.int64]
    checksums: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        start = int(self.ends[row - 1]) if row else 0
        try:
            data = self._read(start, int(self.ends[row]))
        except OSError:
            return b""
        return data if zlib.crc32(data) == self.checksums[row] else b""

    def _read(self, start: int, end: int) -> bytes:
        return _read_bytes(self.path, self.offset + start, end - start)


@dataclass(frozen=True)
class FileRows:
    """An array of `shape` and `dtype` from byte `offset` of a file, of which slices are read.

    Where the file has gone or has been truncated since, a slice is of zeros.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of_dataset(cls, path: Path, dataset: h5py.Dataset) -> FileRows:
        """Return the rows of a data set that lies in the file in one piece."""
        return cls(path, int(dataset.id.get_offset() or 0), dataset.shape, dataset.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        shape = (max(stop - start, 0), *self.shape[1:])
        size = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        try:
            data = _read_bytes(self.path, self.offset + size * start, size * shape[0])
        except OSError:
            data = b""
        if len(data) != size * shape[0]:
            return np.zeros(shape, self.dtype)
        return np.frombuffer(data, self.dtype).reshape(shape)


def _read_bytes(path: Path, start: int, count: int) -> bytes:
    # What has taken the file's place may be a pipe, whose opening would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, count, start)
    finally:
        os.close(descriptor)
