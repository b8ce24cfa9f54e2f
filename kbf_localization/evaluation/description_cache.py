"""Descriptions of images that were described before, kept on disk by the images' content.

An entry is found by a digest of the image's pixels and of everything that determines its
description, so a second evaluation of a drive, with another method or another map of the same
vocabulary, describes nothing again; keypoints depend on no vocabulary and serve every map.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kbf_localization import __version__
from kbf_localization.arrays import Image
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.vision.describer import (
    ImageDescriber,
    ImageDescription,
    as_grey,
    tiny_image,
)
from kbf_localization.vision.keypoints import Keypoints, detect_keypoints
from kbf_localization.vision.registry import identity_of

FOLDER_VARIABLE = "KBF_CACHE_DIR"
FILE_NAME = "descriptions.sqlite3"
MAX_BYTES = 2_000_000_000
"""Some 20,000 images of 640x480 with their keypoints."""
FLUSHED_ENTRIES = 64
"""Entries of one transaction: another process waits for no more."""
LOCK_TIMEOUT_S = 2.0
_FORMAT = 1
"""Changes when the same entry would mean something else."""
_TABLE = (
    "entries (key BLOB PRIMARY KEY, value BLOB NOT NULL, "
    "size INTEGER NOT NULL, used INTEGER NOT NULL)"
)
_DIMENSIONS = {"features": 1, "words": 1, "pixels": 2, "descriptors": 2, "ms": 0}
_TYPES = ("uint8", "uint16", "float32", "float64")

Arrays = Mapping[str, NDArray[np.generic]]

Outcome = tuple["ImageDescription | None", float]
"""An image's description, None where it cannot be decoded, with its milliseconds."""


class CacheError(KbfError):
    """The cache's file cannot be opened: a full disk, or another process that keeps it locked."""


def default_folder() -> Path:
    """Return $KBF_CACHE_DIR, else the user's cache folder as the XDG specification has it."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kbf_localization"


@contextmanager
def opened_cache(wanted: bool = True) -> Iterator[DescriptionCache | None]:
    """Open the user's cache; None where it is not wanted or its folder cannot be made."""
    cache = None
    if wanted:
        with suppress(OSError, CacheError):  # a home folder that is missing, read-only or full
            cache = DescriptionCache(default_folder())
    try:
        yield cache
    finally:
        if cache is not None:
            cache.close()


class DescriptionCache:
    """Entries of arrays by digest, bounded in bytes; the least recently used leave first.

    The folder belongs to its user alone (0700): what another user could have written is refused.
    An entry that cannot be read is described again; a full disk or a locked file only means that
    nothing is kept. Entries are arrays with a checksum; reading them runs no code.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
        self.folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._pending: dict[bytes, bytes] = {}
        self._found: set[bytes] = set()
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        path = self.folder / FILE_NAME
        try:
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise CacheError(f"{path}: the cache cannot be opened: {error}") from error
            path.unlink()  # not such a database: it holds nothing that could not be computed again
            return _connect(path)

    def _replace(self) -> None:
        """Begin with an empty file in place of a damaged one."""
        self._connection.close()
        (self.folder / FILE_NAME).unlink(missing_ok=True)
        self._connection = self._open()

    def get(self, key: bytes) -> Arrays | None:
        """Return the arrays of an entry; None where there is none that can be read."""
        with self._lock:
            try:
                row = self._connection.execute(
                    "SELECT value FROM entries WHERE key = ?", (key,)
                ).fetchone()
            except sqlite3.Error:
                return None
            if row is not None:
                self._found.add(key)
        if row is None:
            return None
        return _unpacked(row[0])

    def put(self, key: bytes, arrays: Arrays) -> None:
        """Keep an entry; it is written with others, at the latest by `close`."""
        value = _packed(arrays)
        with self._lock:
            self._pending[key] = value
            if len(self._pending) >= FLUSHED_ENTRIES:
                self._flush()

    def _flush(self) -> None:
        now = time.time_ns()
        new = [(key, value, len(value), now) for key, value in self._pending.items()]
        seen = [(now, key) for key in self._found]
        self._pending, self._found = {}, set()
        try:
            with self._connection:
                self._connection.executemany(
                    "INSERT OR REPLACE INTO entries (key, value, size, used) VALUES (?, ?, ?, ?)",
                    new,
                )
                self._connection.executemany("UPDATE entries SET used = ? WHERE key = ?", seen)
                self._prune()
            self._connection.execute("PRAGMA incremental_vacuum")
        except sqlite3.OperationalError:
            return  # a full disk, or a file that another process keeps locked
        except sqlite3.DatabaseError:  # damaged, as after a power cut
            with suppress(OSError, CacheError, sqlite3.Error):
                self._replace()

    def _prune(self) -> None:
        """Delete the least recently used entries beyond the bound."""
        if self.bytes <= self._max_bytes:
            return
        self._connection.execute(
            "DELETE FROM entries WHERE key IN (SELECT key FROM (SELECT key, SUM(size) OVER "
            "(ORDER BY used DESC, key) AS total FROM entries) WHERE total > ?)",
            (self._max_bytes,),
        )

    @property
    def bytes(self) -> int:
        """Size of all entries."""
        (total,) = self._connection.execute("SELECT TOTAL(size) FROM entries").fetchone()
        return int(total)

    def described(self) -> str:
        """Return how much it holds, in words."""
        try:
            return f"{len(self)} entries, {self.bytes / 1e6:.1f} MB"
        except sqlite3.DatabaseError as error:
            return f"entries that cannot be counted ({error})"

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT COUNT(*) FROM entries").fetchone()
        return int(count)

    def clear(self) -> None:
        """Delete all entries and give their space back."""
        with self._lock:
            self._pending.clear()
            try:
                with self._connection:
                    self._connection.execute("DELETE FROM entries")
                self._connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                raise CacheError(f"{self.folder}: the cache cannot be cleared: {error}") from error
            except sqlite3.DatabaseError:
                self._replace()

    def close(self) -> None:
        """Write what is pending."""
        with self._lock:
            self._flush()
            self._connection.close()


class NewEntries:
    """Collects `entries` for the cache of another process; of those there it knows none."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, Arrays]] = []

    def get(self, key: bytes) -> None:
        """Find nothing."""

    def put(self, key: bytes, arrays: Arrays) -> None:
        self.entries.append((key, arrays))


@dataclass(frozen=True)
class CachedDescriber:
    """Describes images as `describer` does; those described before come from the `cache`."""

    describer: ImageDescriber
    cache: DescriptionCache | NewEntries

    def knows(self, image: Image) -> bool:
        """Tell whether the image's description is in the cache."""
        return self.cache.get(self._key(_content(image))) is not None

    def describe(self, image: Image) -> tuple[ImageDescription, float]:
        """Return the description with the milliseconds that it took when it was made."""
        content = _content(image)
        described, milliseconds = self._described(image, content)
        described = replace(described, tiny=tiny_image(image))
        if not self.describer.detect:
            return described, milliseconds
        keypoints, more = self._keypoints(image, content)
        size = (image.shape[1], image.shape[0])
        return replace(described, keypoints=keypoints, image_size=size), milliseconds + more

    def _key(self, content: bytes) -> bytes:
        describer = self.describer.describer
        return _key("description", content, identity_of(describer).encode(), _words(describer))

    def _described(self, image: Image, content: bytes) -> tuple[ImageDescription, float]:
        key = self._key(content)
        found = self.cache.get(key)
        if found is not None and {"features", "ms"} <= set(found):
            return ImageDescription(found["features"], found.get("words")), float(found["ms"])  # type: ignore[arg-type]
        start = time.perf_counter()
        described = self.describer.describer.describe(image)
        milliseconds = 1e3 * (time.perf_counter() - start)
        words = {} if described.words is None else {"words": described.words}
        kept = {"features": described.features, "ms": np.array(milliseconds), **words}
        self.cache.put(key, kept)
        return described, milliseconds

    def _keypoints(self, image: Image, content: bytes) -> tuple[Keypoints, float]:
        key = _key("keypoints halved by area", content)
        found = self.cache.get(key)
        if found is not None and {"pixels", "descriptors", "ms"} <= set(found):
            return Keypoints(found["pixels"], found["descriptors"]), float(found["ms"])  # type: ignore[arg-type]
        start = time.perf_counter()
        keypoints = detect_keypoints(as_grey(image))
        milliseconds = 1e3 * (time.perf_counter() - start)
        self.cache.put(
            key,
            {
                "pixels": keypoints.pixels,
                "descriptors": keypoints.descriptors,
                "ms": np.array(milliseconds),
            },
        )
        return keypoints, milliseconds


def describe(describer: ImageDescriber | CachedDescriber, image: Image | None) -> Outcome:
    """Describe one image."""
    if image is None:
        return None, 0.0
    if isinstance(describer, CachedDescriber):
        return describer.describe(image)
    start = time.perf_counter()
    description = describer.describe(image)
    return description, 1e3 * (time.perf_counter() - start)


def describe_for_cache(
    describer: ImageDescriber, image: Image | None
) -> tuple[Outcome, list[tuple[bytes, Arrays]]]:
    """Describe one image, also as the entries of another process's cache."""
    new = NewEntries()
    return describe(CachedDescriber(describer, new), image), new.entries


def _content(image: Image) -> bytes:
    """Return a digest of the image's pixels."""
    pixels = hashlib.blake2b(f"{image.shape} ".encode(), digest_size=32)
    pixels.update(np.ascontiguousarray(image).data)
    return pixels.digest()


def _words(describer: object) -> bytes:
    pyramid = getattr(describer, "pyramid", None)
    return b"" if pyramid is None else np.ascontiguousarray(pyramid.vocabulary.words).tobytes()


def _key(kind: str, *parts: bytes) -> bytes:
    digest = hashlib.blake2b(f"{kind} {_FORMAT} {__version__}".encode(), digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _packed(arrays: Arrays) -> bytes:
    """Return a checksum, a line of JSON with names, types and shapes, and the arrays' bytes."""
    head = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    body = b"".join(
        (json.dumps(head).encode(), b"\n", *(array.tobytes() for array in arrays.values()))
    )
    return zlib.crc32(body).to_bytes(4, "little") + body


def _unpacked(value: object) -> Arrays | None:
    """Return what `_packed` was given; None for anything else."""
    if not isinstance(value, bytes) or zlib.crc32(value[4:]).to_bytes(4, "little") != value[:4]:
        return None
    arrays, (head, _, body) = {}, value[4:].partition(b"\n")
    try:
        for name, dtype, shape in json.loads(head):
            count = math.prod(shape)
            # `frombuffer` takes -1 for all that is left.
            if dtype not in _TYPES or count < 0 or len(shape) != _DIMENSIONS.get(name, len(shape)):
                return None
            array = np.frombuffer(body, dtype, count).reshape(shape)
            arrays[str(name)], body = array, body[array.nbytes :]
    except (ArithmeticError, RecursionError, TypeError, ValueError):
        return None
    return arrays


def _check_private(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ParameterError(
            f"{folder}: others may write there, so its descriptions are not trusted; "
            f"`chmod 700` it, or name another folder by {FOLDER_VARIABLE}"
        )


def _connect(path: Path) -> sqlite3.Connection:
    # One connection for all threads: each use of it is behind the cache's lock.
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA synchronous = OFF")  # what a crash loses is computed again
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE}")
        # A view of this name, or a table that computes what it holds, could take for ever.
        ask = "SELECT type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        if connection.execute(ask).fetchall() != [("table", f"CREATE TABLE {_TABLE}")]:
            raise sqlite3.DatabaseError("its tables are others")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
