"""The layout of a `*.kbfmap` file: a seal of 512 bytes, then HDF5.

The seal is HDF5's user block, so that any HDF5 tool opens the file. It has the format's version,
the file's length and a checksum of all that follows, which are verified before HDF5 reads
anything: a damaged file never reaches HDF5's own parser.
"""

from __future__ import annotations

import hashlib
import struct
from os import SEEK_END
from typing import BinaryIO

import numpy as np

from kbf_localization.errors import MapError
from kbf_localization.limits import MAX_MAP_BYTES

VERSION = 3
"""Version 1 has no grids of words, and thresholds in the place of what the map learned. Version 3
is of a map with another describer than the pyramid alone."""

PYRAMIDS = 2
"""The version of a map whose describer is the pyramid."""

SEAL_LENGTH = 512

_MAGIC = b"KBFMAP\r\n\x1a\n"
_SEAL = struct.Struct("<10sIQ32s")
_BLOCK = 1 << 22

ARRAYS: dict[str, tuple[str, tuple[str | int, ...]]] = {
    "poses": ("<f8", ("n", 3)),
    "next_poses": ("<f8", ("n", 3)),
    "motions": ("<f8", ("n", 3)),
    "histograms": ("|u1", ("n", "bins")),
    "vocabulary": ("<f4", ("words", 128)),
    "motion_variances": ("<f8", (4,)),
    "source_of": ("<i4", ("n",)),
    "thumbnail_ends": ("<i8", ("n",)),
    "thumbnail_checksums": ("<u4", ("n",)),
    "word_grids": ("word", ("n", "cells")),
    "floor_plan": ("|u1", ("height", "width")),
    "ways": ("<f8", ("way poses", 3)),
    "way_ends": ("<i8", ("sources",)),
    "thumbnails": ("|u1", ("thumbnail bytes",)),
}
"""Type and shape of every array; n poses, all else that has a name as the description says.

`histograms` are the images' rows of bytes, which for the pyramid are its histograms. A `word` has
eight bits or, of more than 256 words, sixteen. `ways` are the poses of all sources' ways, one
source after the other, and `way_ends` where each ends. The floor plan's place is in the
description.
"""

OPTIONAL = {"vocabulary", "word_grids", "floor_plan", "ways", "way_ends"}
"""What not every map has: only one with a pyramid has words."""

DESCRIPTION = "description"
"""Settings, sources, parameters, what the map learned and the plan's place, as JSON text."""

LONGEST_DESCRIPTION = 1 << 24


def seal(file: BinaryIO, version: int = VERSION) -> None:
    """Write the seal of a finished file."""
    length, digest = _measure(file, version)
    file.seek(0)
    file.write(_SEAL.pack(_MAGIC, version, length, digest).ljust(SEAL_LENGTH, b"\0"))


def verify_seal(file: BinaryIO, name: str) -> None:
    """Raise a MapError unless the file is a whole, undamaged map of a version known here."""
    file.seek(0)
    head = file.read(SEAL_LENGTH)
    if head[: len(_MAGIC)] != _MAGIC[: len(head)] or not head:
        raise MapError(f"{name}: not a training map; make one with 'kbf map build'")
    if len(head) < SEAL_LENGTH:
        raise MapError(f"{name}: truncated; copy it again or build it anew")
    _, version, length, digest = _SEAL.unpack_from(head)
    if version > VERSION:
        raise MapError(
            f"{name}: of format version {version}, this program knows up to {VERSION}; "
            "update kbf_localization"
        )
    # Before anything is read on: a length need not be backed by content.
    actual = file.seek(0, SEEK_END)
    if actual < length:
        raise MapError(
            f"{name}: truncated to {actual} of {length} bytes; copy it again or build it anew"
        )
    if actual > MAX_MAP_BYTES:
        raise MapError(f"{name}: has {actual / 1e9:.0f} GB, more than {MAX_MAP_BYTES / 1e9:.0f}")
    if actual != length or any(head[_SEAL.size :]) or _measure(file, version)[1] != digest:
        raise MapError(f"{name}: damaged (wrong checksum); copy it again or build it anew")


def _measure(file: BinaryIO, version: int) -> tuple[int, bytes]:
    """Length of the file, and the checksum of its version and all that follows the seal."""
    digest = hashlib.blake2b(struct.pack("<I", version), digest_size=32)
    block = np.empty(_BLOCK, dtype=np.uint8)
    length = file.seek(SEAL_LENGTH)
    while count := file.readinto(block.data):  # type: ignore[attr-defined]
        digest.update(block[:count].data)
        length += count
    return length, digest.digest()
