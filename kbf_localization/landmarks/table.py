"""The landmarks of a map's images, in flat arrays that are read by the images' rows."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.errors import MapError
from kbf_localization.landmarks.bearings import rotate_to_map

MAX_PER_IMAGE = 200
"""Landmarks of one image: with 146 bytes each, below 30 kB an image."""
_MM = 1000.0
_MAX_OFFSET_MM = 32767
_SIGMA_M = (1e-4, 3e4)
"""What half-precision numbers represent of a standard deviation."""
_LOWER = np.tril_indices(3)
_UNKNOWN = _SIGMA_M[1] * np.eye(3)[_LOWER]
_MAX_ATTITUDE = 1e3
"""Of a height in metres, or an angle in radians."""

COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "descriptors": ("|u1", (128,)),
    "offsets_mm": ("<i2", (3,)),
    "factors": ("<f2", (6,)),
}
"""Type and shape of what a landmark has."""


@dataclass(frozen=True)
class ImageLandmarks:
    """Landmarks of one image.

    `descriptors` (m, 128), `offsets` (m, 3) metres from the image's pose in its level base frame
    (x ahead, y left, z up), `covariances` (m, 3, 3) in that frame, `attitude` (3,): height, pitch,
    roll of the image.
    """

    descriptors: NDArray[np.uint8]
    offsets: Array
    covariances: Array
    attitude: Array

    def __len__(self) -> int:
        return len(self.descriptors)

    @classmethod
    def none(cls) -> ImageLandmarks:
        empty = np.empty((0, 128), np.uint8)
        return cls(empty, np.empty((0, 3)), np.empty((0, 3, 3)), np.zeros(3))


@dataclass(frozen=True)
class PlacedLandmarks:
    """Landmarks of some images in the map's frame, image by image.

    `starts` (r + 1,) bounds each image's landmarks; `points` (m, 3), `covariances` (m, 3, 3).
    """

    descriptors: NDArray[np.uint8]
    points: Array
    covariances: Array
    starts: NDArray[np.intp]
    attitudes: Array

    def __len__(self) -> int:
        return len(self.descriptors)


class HeldFile:
    """A file kept open: what takes its name later changes nothing.

    Another process, which gets it pickled, opens what has the name then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # What has the name may be a pipe, whose opening would wait for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, start: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, start)

    def __reduce__(self) -> tuple[type[HeldFile], tuple[Path]]:
        return HeldFile, (self.path,)


@dataclass(frozen=True)
class FileRows:
    """An array of `shape` and `dtype` from byte `offset` of a file, of which slices are read.

    Where the file has been truncated since, a slice is of zeros.
    """

    file: HeldFile
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, _ = rows.indices(len(self))
        shape = (max(stop - start, 0), *self.shape[1:])
        size = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        try:
            data = self.file.read(self.offset + size * start, size * shape[0])
        except OSError:
            data = b""
        if len(data) != size * shape[0]:
            return np.zeros(shape, self.dtype)
        return np.frombuffer(data, self.dtype).reshape(shape)


class LandmarkTable:
    """Landmarks of n images.

    The columns may be arrays or `FileRows`, of which only the rows of the images that are asked for
    are read.
    """

    def __init__(
        self, starts: NDArray[np.int64], attitudes: NDArray[np.float32], columns: Mapping[str, Any]
    ) -> None:
        """Take `starts` (n + 1,), `attitudes` (n, 3) and `columns`; MapError if damaged."""
        self.starts = np.asarray(starts)
        self.attitudes = np.asarray(attitudes)
        self.columns = dict(columns)
        self._check()

    def _check(self) -> None:
        starts, total = self.starts, {len(column) for column in self.columns.values()}
        if set(self.columns) != set(COLUMNS) or len(total) != 1:
            raise MapError("the landmark table lacks columns, or they differ in length")
        if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) < 1:
            raise MapError("the landmark table's row offsets are no list of whole numbers")
        counts = np.diff(starts.astype(np.int64))
        if starts[0] != 0 or (counts < 0).any() or (counts > MAX_PER_IMAGE).any():
            raise MapError("the landmark table's row offsets do not increase as they must")
        if int(starts[-1]) != total.pop():
            raise MapError("the landmark table's row offsets do not fit its length")
        fits = self.attitudes.shape == (len(counts), 3)
        # A comparison with NaN is false.
        if not (fits and (np.abs(self.attitudes) <= _MAX_ATTITUDE).all()):
            raise MapError("the landmark table's heights and tilts are damaged")
        for name, (kind, shape) in COLUMNS.items():
            column = self.columns[name]
            if column.dtype != np.dtype(kind) or column.shape[1:] != shape:
                raise MapError(f"the landmark table's {name} have the wrong type or shape")

    @classmethod
    def of_images(cls, images: Sequence[ImageLandmarks]) -> LandmarkTable:
        """Return a table in memory of what each image has."""
        counts = [len(image) for image in images]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        columns = {
            "descriptors": _joined([image.descriptors for image in images], "descriptors"),
            "offsets_mm": _joined([_in_mm(image.offsets) for image in images], "offsets_mm"),
            "factors": _joined([_factors(image.covariances) for image in images], "factors"),
        }
        attitudes = np.array([image.attitude for image in images]).reshape(-1, 3)
        return cls(starts, attitudes.astype(np.float32), columns)

    def __len__(self) -> int:
        """Return how many images it has."""
        return len(self.starts) - 1

    def counts(self) -> NDArray[np.int64]:
        """Return (n,) landmarks of each image."""
        return np.asarray(np.diff(self.starts.astype(np.int64)), dtype=np.int64)

    def max_count(self, rows: Rows) -> int:
        """Return how many landmarks the image with most of them has, among these rows."""
        return int((self.starts[rows + 1] - self.starts[rows]).max(initial=0))

    def image(self, row: int) -> ImageLandmarks:
        """Return the landmarks of one image."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        lower = np.zeros((part.stop - part.start, 3, 3))
        stored = np.asarray(self.columns["factors"][part], dtype=np.float64)
        # What a damaged table says of a landmark is all or nothing: it measures nothing.
        known = np.isfinite(stored).all(axis=1, keepdims=True)
        stored = np.where(known, stored, _UNKNOWN)
        lower[:, _LOWER[0], _LOWER[1]] = stored
        return ImageLandmarks(
            np.asarray(self.columns["descriptors"][part]),
            np.asarray(self.columns["offsets_mm"][part]) / _MM,
            lower @ np.swapaxes(lower, 1, 2),
            self.attitudes[row].astype(np.float64),
        )

    def subset(self, rows: Rows) -> LandmarkTable:
        """Return the table, in memory, of these images alone."""
        return LandmarkTable.of_images([self.image(int(row)) for row in rows])

    def place(self, rows: Rows, poses: Array) -> PlacedLandmarks:
        """Return the landmarks of the images `rows`, whose poses in the map are `poses` (r, 3)."""
        images = [self.image(int(row)) for row in rows]
        counts = np.array([len(image) for image in images], dtype=np.intp)
        if not counts.sum():
            images = [*images, ImageLandmarks.none()]
        headings = np.repeat(poses[:, 2], counts)
        points = rotate_to_map(headings, np.concatenate([image.offsets for image in images]))
        points[:, :2] += np.repeat(poses[:, :2], counts, axis=0)
        covariances = np.concatenate([image.covariances for image in images])
        turn = _about_vertical(headings)
        return PlacedLandmarks(
            np.concatenate([image.descriptors for image in images]),
            points,
            np.matmul(np.matmul(turn, covariances), np.swapaxes(turn, 1, 2)),
            np.concatenate(([0], np.cumsum(counts))).astype(np.intp),
            np.array([image.attitude for image in images[: len(rows)]]).reshape(-1, 3),
        )


def _about_vertical(headings: Array) -> Array:
    turn = np.zeros((len(headings), 3, 3))
    turn[:, 0, 0] = turn[:, 1, 1] = np.cos(headings)
    turn[:, 1, 0] = np.sin(headings)
    turn[:, 0, 1] = -turn[:, 1, 0]
    turn[:, 2, 2] = 1.0
    return turn


def _joined(parts: Sequence[NDArray[Any]], name: str) -> NDArray[Any]:
    kind, shape = COLUMNS[name]
    return np.concatenate([np.empty((0, *shape), kind), *parts]).astype(kind, copy=False)


def _in_mm(offsets: Array) -> NDArray[np.int16]:
    return np.clip(np.rint(offsets * _MM), -_MAX_OFFSET_MM, _MAX_OFFSET_MM).astype("<i2")


def _factors(covariances: Array) -> NDArray[np.float16]:
    """Lower triangles (m, 6) of the Cholesky factors."""
    # Rounding to millimetres and to half precision leaves 0.3 mm.
    inflated = covariances + 9e-8 * np.eye(3)
    lower = np.linalg.cholesky(inflated)[:, _LOWER[0], _LOWER[1]]
    return np.asarray(np.clip(lower, -_SIGMA_M[1], _SIGMA_M[1]), dtype="<f2")
