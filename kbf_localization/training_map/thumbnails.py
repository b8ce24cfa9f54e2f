"""The map's small pictures, read from its file one at a time."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FileThumbnails(Sequence[bytes]):
    """JPEG bytes a pose, which stand one after the other from byte `offset` of the file.

    `ends` (n,) says where each ends, counted from `offset`. Where the file has gone or has been
    replaced since, a picture is empty.
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
        # What has taken the file's place may be a pipe, whose opening would wait for a writer.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, end - start, self.offset + start)
        finally:
            os.close(descriptor)
