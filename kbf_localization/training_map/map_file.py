"""The map file `*.kbfmap`: a seal of 512 bytes, then HDF5.

It is written whole or not at all. Everything that is read is checked before it is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import stat
import struct
import zlib
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.atomic_write import atomic_write
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.errors import DescriberError, MapError
from kbf_localization.geometry import difference
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import COLUMNS, FileRows, HeldFile, LandmarkTable
from kbf_localization.limits import MAX_COORDINATE_M, MAX_MAP_BYTES, MAX_PLAN_PIXELS, check_scale
from kbf_localization.training_map.map_description import (
    OLD_ARRAYS,
    Description,
    PlanPlace,
    parse_description,
    to_keys,
)
from kbf_localization.training_map.training_map import (
    MIN_SPACING_M,
    FileThumbnails,
    TrainingMap,
)
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import Describer, specification
from kbf_localization.vision.registry import make_describer, use_network
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary

VERSION = 4
"""Version 1 has no word grids and no calibration; 2 and 3 have the calibration under older keys."""

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
    "trajectories": ("<f8", ("trajectory poses", 3)),
    "trajectory_ends": ("<i8", ("sources",)),
    "thumbnails": ("|u1", ("thumbnail bytes",)),
    "reference_poses": ("<f8", ("n", 3)),
    "landmark_starts": ("<i8", ("landmark starts",)),
    "landmark_attitudes": ("<f4", ("n", 3)),
    "landmark_descriptors": ("|u1", ("landmarks", 128)),
    "landmark_offsets_mm": ("<i2", ("landmarks", 3)),
    "landmark_factors": ("<f2", ("landmarks", 6)),
}
"""Type and shape of every array; n poses, other named lengths as the description says.

`histograms` are the images' feature rows, for the pyramid its histograms. A `word` has eight bits
or, of more than 256 words, sixteen. `trajectories` are the poses of all sources, source after
source, and `trajectory_ends` the index at which each ends. The floor plan's place is in the
description.
"""

LANDMARK_COLUMNS = {name: f"landmark_{name}" for name in COLUMNS}

OPTIONAL = {
    "vocabulary",
    "word_grids",
    "floor_plan",
    "trajectories",
    "trajectory_ends",
    "reference_poses",
    "landmark_starts",
    "landmark_attitudes",
    *LANDMARK_COLUMNS.values(),
}
"""What not every map has: only one with a pyramid has words."""

_PLAIN_TYPES = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)

DESCRIPTION = "description"
"""Settings, sources, parameters, calibration and the plan's place, as JSON text."""

MAX_DESCRIPTION_BYTES = 1 << 24


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
        raise MapError(f"{name}: truncated; copy it again or build it again")
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
            f"{name}: truncated to {actual} of {length} bytes; copy it again or build it again"
        )
    if actual > MAX_MAP_BYTES:
        raise MapError(f"{name}: has {actual / 1e9:.0f} GB, more than {MAX_MAP_BYTES / 1e9:.0f}")
    if actual != length or any(head[_SEAL.size :]) or _measure(file, version)[1] != digest:
        raise MapError(f"{name}: damaged (wrong checksum); copy it again or build it again")


def _measure(file: BinaryIO, version: int) -> tuple[int, bytes]:
    """Return the file's length, and the checksum of the version and all that follows the seal."""
    digest = hashlib.blake2b(struct.pack("<I", version), digest_size=32)
    block = np.empty(_BLOCK, dtype=np.uint8)
    length = file.seek(SEAL_LENGTH)
    while count := file.readinto(block.data):  # type: ignore[attr-defined]
        digest.update(block[:count].data)
        length += count
    return length, digest.digest()


def save_map(training_map: TrainingMap, path: Path | str, *, replace: bool = True) -> None:
    """Store the map at `path`, in place of a file that may be there unless `replace` is false.

    The new file is made beside it and takes its name when it is complete and on the disk.
    """
    path = Path(path)
    try:
        _check_extent(training_map.poses)
        # HDF5 does not survive a full disk: it would crash when the interpreter ends. So the file
        # is made in memory, which has held the map already.
        image = io.BytesIO()
        with h5py.File(image, "w", userblock_size=SEAL_LENGTH) as content:
            _write(content, training_map)
        seal(image)
        with atomic_write(path, replace=replace) as temporary:
            temporary.write_bytes(image.getbuffer())
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MapError(f"{path}: the map cannot be written: {reason}") from error


def _write(file: h5py.File, training_map: TrainingMap) -> None:
    sizes, checksums = [], []
    for thumbnail in training_map.thumbnails:
        sizes.append(len(thumbnail))
        checksums.append(zlib.crc32(thumbnail))
    describer, pyramid = training_map.described_by, training_map.described_by.pyramid
    plan, trajectories = training_map.floor_plan, training_map.trajectories
    arrays = {
        "poses": training_map.poses,
        "next_poses": training_map.next_poses,
        "motions": training_map.motions,
        "histograms": training_map.features,
        "vocabulary": None if pyramid is None else pyramid.vocabulary.words,
        "motion_variances": training_map.motion_variances,
        "source_of": training_map.source_of,
        "thumbnail_ends": np.cumsum(sizes),
        "thumbnail_checksums": np.array(checksums),
        "word_grids": None if pyramid is None else training_map.word_grids,
        "floor_plan": None if plan is None else plan.image,
        "trajectories": np.concatenate(trajectories) if trajectories else None,
        "trajectory_ends": np.cumsum([len(t) for t in trajectories]) if trajectories else None,
        "reference_poses": training_map.reference_poses,
    }
    landmarks = training_map.landmarks
    if landmarks is not None:
        arrays["landmark_starts"] = landmarks.table.starts
        arrays["landmark_attitudes"] = landmarks.table.attitudes
        for name, key in LANDMARK_COLUMNS.items():
            arrays[key] = landmarks.table.columns[name][:]
    for name, array in arrays.items():
        if array is not None:
            dtype = ARRAYS[name][0]
            if pyramid is not None and dtype == "word":
                dtype = pyramid.layout.word_type
            file.create_dataset(name, data=np.asarray(array, dtype=dtype))
    joined = file.create_dataset("thumbnails", shape=(sum(sizes),), dtype=np.uint8)
    start = 0
    for size, thumbnail in zip(sizes, training_map.thumbnails, strict=True):
        if size:
            joined[start : start + size] = np.frombuffer(thumbnail, dtype=np.uint8)
            start += size
    description = {
        "settings": None if pyramid is None else to_keys(pyramid.layout),
        "sources": [to_keys(source) for source in training_map.sources],
        "parameters": {
            name: value if isinstance(value, str) else float(value)
            for name, value in training_map.parameters.items()
        },
        "calibration": to_keys(training_map.calibration),
        "warnings": list(training_map.warnings),
        "floor_plan": None if plan is None else to_keys(PlanPlace(plan.resolution, plan.origin)),
    }
    if training_map.own_frame:
        description["own_frame"] = True
    if landmarks is not None:
        description["landmarks"] = landmarks.to_dict()
    if describer is not pyramid:
        description["describer"] = {
            **specification(describer),
            "scales": [check_scale(scale) for scale in describer.scales],
        }
    text = json.dumps(description, indent=1, allow_nan=False).encode()
    parse_description(text)  # no map is written that cannot be read
    file.create_dataset(DESCRIPTION, data=np.bytes_(text))


def read_map(path: Path | str, model: Path | str | None = None) -> TrainingMap:
    """Read the map stored at `path`; run nothing from it, and allocate no more than its length.

    `model` is the network that the map was made with, which a map of learned descriptors needs to
    describe further images; another file is refused.
    """
    path = Path(path)
    training_map = _load(path)
    if model is not None:
        use_network(training_map.described_by, Path(model))
    return training_map


def _load(path: Path) -> TrainingMap:
    try:
        # To open a pipe would wait for whoever writes into it.
        if not stat.S_ISREG(path.stat().st_mode):
            what = "a folder" if path.is_dir() else "not a regular file"
            raise MapError(f"{path}: is {what}; a map is a file that kbf map build writes")
        with path.open("rb") as file:
            verify_seal(file, str(path))
        with h5py.File(path, "r") as content:
            return _read(content, path)
    except MapError:
        raise
    except DescriberError as error:
        raise MapError(f"{path}: {error}") from error
    except OSError as error:
        raise MapError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (RuntimeError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise MapError(f"{path}: not a valid map: {error}; build it again") from error


def _read(content: h5py.File, path: Path) -> TrainingMap:
    arrays = _Arrays(content, path.stat().st_size)
    file = HeldFile(path.resolve())
    description = parse_description(arrays.text(DESCRIPTION))
    arrays.expect(sources=len(description.sources))
    pyramid = None
    if description.layout is not None:
        pyramid = _pyramid(arrays, description.layout)
    describer = _describer(description, pyramid)
    arrays.expect(bins=describer.width)
    datasets = {name: arrays.dataset(name) for name in ARRAYS if name not in OPTIONAL}
    # Histograms and thumbnails are the bulk: all else is checked before they are touched.
    histograms, thumbnails = datasets.pop("histograms"), datasets.pop("thumbnails")
    values = {name: np.asarray(dataset[()]) for name, dataset in datasets.items()}
    _check(values, thumbnails.shape[0], len(description.sources))
    training_map = TrainingMap(
        poses=values["poses"],
        features=np.asarray(histograms[()]),
        next_poses=values["next_poses"],
        motions=values["motions"],
        described_by=describer,
        motion_variances=values["motion_variances"],
        sources=description.sources,
        source_of=values["source_of"].astype(np.intp),
        thumbnails=FileThumbnails(
            _file_rows(file, thumbnails),
            values["thumbnail_ends"],
            values["thumbnail_checksums"],
        ),
        parameters=description.parameters,
        warnings=description.warnings,
        word_grids=None if pyramid is None else _word_grids(arrays, pyramid.layout),
        fitted=description.calibration,
        floor_plan=None if description.plan is None else _floor_plan(arrays, description.plan),
        trajectories=_trajectories(arrays),
        landmarks=None
        if description.landmarks is None
        else _landmarks(arrays, description.landmarks, file, values["poses"]),
        own_frame=description.own_frame,
        reference_poses=_reference_poses(arrays),
    )
    training_map.gallery.check()
    return training_map


def _pyramid(arrays: _Arrays, layout: DescriberSettings) -> PyramidDescriber:
    rows, columns = layout.reduced_grid_shape
    arrays.expect(layout.word_type, words=layout.words, cells=rows * columns)
    words = arrays.read("vocabulary")
    if not np.isfinite(words).all() or np.abs(words).max() > 1e3:
        raise ValueError("'vocabulary' is not finite")
    return PyramidDescriber(Vocabulary(words), layout)


def _describer(description: Description, pyramid: PyramidDescriber | None) -> Describer:
    """Make the describer of the map's images: the pyramid unless the description names another."""
    if description.describer is None:
        if pyramid is None:
            raise ValueError("it has no describer")
        return pyramid
    content = dict(description.describer)
    scales = content.pop("scales", None)
    made = make_describer(content, pyramid)
    if not isinstance(scales, list) or len(scales) != len(made.scales):
        raise ValueError("its describer's scales are not there")
    return made.with_scales([check_scale(scale) for scale in scales])


def _word_grids(arrays: _Arrays, layout: DescriberSettings) -> NDArray[Any] | None:
    """Return the grids of words (n, cells); None where the map has none."""
    if "word_grids" not in arrays:
        return None
    grids = arrays.read("word_grids")
    if int(grids.max()) >= layout.words:
        raise ValueError("'word_grids' has a word that is not in the vocabulary")
    return grids


def _floor_plan(arrays: _Arrays, place: PlanPlace) -> FloorPlanImage:
    height, width = arrays.dataset("floor_plan").shape
    if not 0 < height * width <= MAX_PLAN_PIXELS:
        raise ValueError(f"'floor_plan' has {height} by {width} pixels")
    return FloorPlanImage(arrays.read("floor_plan"), place.resolution, place.origin)


def _trajectories(arrays: _Arrays) -> tuple[Array, ...]:
    """Return the trajectory of each source; () where the map has none."""
    if "trajectories" not in arrays:
        return ()
    poses, ends = arrays.read("trajectories"), arrays.read("trajectory_ends")
    _check_poses("trajectories", poses)
    _check_ends("trajectory_ends", ends, len(poses), least=1)
    return tuple(np.split(poses, ends[:-1]))


def _reference_poses(arrays: _Arrays) -> Array | None:
    """Return the known poses (n, 3) of a map with estimated poses; None where it has none."""
    if "reference_poses" not in arrays:
        return None
    poses = arrays.read("reference_poses")
    _check_poses("reference_poses", poses[np.isfinite(poses).all(axis=1)])
    return poses


def _file_rows(file: HeldFile, dataset: h5py.Dataset) -> FileRows:
    """Return the rows of a data set that lies in the file in one piece; they stay there."""
    return FileRows(file, int(dataset.id.get_offset() or 0), dataset.shape, dataset.dtype)


def _landmarks(
    arrays: _Arrays, description: LandmarkDescription, file: HeldFile, poses: Array
) -> LandmarkMap:
    """Open the landmarks, whose columns stay in the file."""
    columns = {
        name: _file_rows(file, arrays.dataset(key)) for name, key in LANDMARK_COLUMNS.items()
    }
    starts, attitudes = arrays.read("landmark_starts"), arrays.read("landmark_attitudes")
    if len(starts) != len(poses) + 1:
        raise ValueError("'landmark_starts' does not fit the map's poses")
    return description.with_table(LandmarkTable(starts, attitudes, columns), poses)


class _Arrays:
    """Reads the arrays of a file of `length` bytes, each checked against `ARRAYS` first.

    A named length that has no value yet is set by the first array with it.
    """

    def __init__(self, content: h5py.File, length: int) -> None:
        self._content = content
        self._length = length
        self._sizes: dict[str, int] = {}
        self._word_type = ""

    def expect(self, word_type: str | None = None, **sizes: int) -> None:
        """Set named lengths, and the type of arrays of visual words."""
        self._sizes.update(sizes)
        self._word_type = word_type or self._word_type

    def __contains__(self, name: str) -> bool:
        return self._content.get(self._stored(name), getlink=True) is not None

    def _stored(self, name: str) -> str:
        """Return the name under which the file has an array: an older name in an older file."""
        old = OLD_ARRAYS.get(name)
        return old if old is not None and old in self._content else name

    def text(self, name: str) -> bytes:
        dataset = self._plain(name)
        if dataset.shape != () or dataset.dtype.kind != "S":
            raise ValueError(f"'{name}' is not a text")
        if dataset.dtype.itemsize > MAX_DESCRIPTION_BYTES:
            raise ValueError(f"'{name}' is absurdly long")
        return bytes(dataset[()])

    def read(self, name: str) -> NDArray[Any]:
        return np.asarray(self.dataset(name)[()])

    def dataset(self, name: str) -> h5py.Dataset:
        """Return the array called `name`; ValueError unless of the format's type and shape."""
        dataset = self._plain(name)
        kind, shape = ARRAYS[name]
        dtype = np.dtype(self._word_type if kind == "word" else kind)
        if dataset.dtype != dtype:
            raise ValueError(f"'{name}' has type {dataset.dtype}, not {dtype}")
        if len(dataset.shape) != len(shape):
            raise ValueError(f"'{name}' has shape {dataset.shape}")
        for found, expected in zip(dataset.shape, shape, strict=True):
            wanted = (
                expected if isinstance(expected, int) else self._sizes.setdefault(expected, found)
            )
            if found != wanted:
                raise ValueError(
                    f"'{name}' has shape {dataset.shape}, expected {wanted} for {expected}"
                )
        return dataset

    def _plain(self, name: str) -> h5py.Dataset:
        """Return a dataset stored in this file in one piece, which cannot unpack into more."""
        stored = self._stored(name)
        if not isinstance(self._content.get(stored, getlink=True), h5py.HardLink):
            raise ValueError(f"'{name}' is missing")
        dataset = self._content[stored]
        if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
            raise ValueError(f"'{name}' is not an array")
        # Types within types take h5py a gigabyte for 60 kB; no array here has such.
        if dataset.id.get_type().get_class() not in _PLAIN_TYPES:
            raise ValueError(f"'{name}' is of no plain type")
        if dataset.chunks is not None or dataset.is_virtual or dataset.external:
            raise ValueError(f"'{name}' is not stored in one piece")
        offset = dataset.id.get_offset()
        bytes_needed = int(np.prod(dataset.shape, dtype=object)) * dataset.dtype.itemsize
        if bytes_needed and (offset is None or not 0 <= offset <= self._length - bytes_needed):
            raise ValueError(f"'{name}' has shape {dataset.shape}, more than the file holds")
        return dataset


def _check(arrays: dict[str, NDArray[Any]], thumbnail_bytes: int, sources: int) -> None:
    variances, source_of = arrays["motion_variances"], arrays["source_of"]
    if len(arrays["poses"]) == 0:
        raise ValueError("it has no poses")
    _check_poses("poses", arrays["poses"])
    _check_extent(arrays["poses"])
    for name in ("next_poses", "motions"):
        missing = np.isnan(arrays[name]).all(axis=1)
        _check_poses(name, arrays[name][~missing])
    if (np.isnan(arrays["next_poses"]) != np.isnan(arrays["motions"])).any():
        raise ValueError("'next_poses' and 'motions' are missing at different poses")
    if not (np.isfinite(variances).all() and (variances > 0.0).all() and variances.max() < 1e6):
        raise ValueError("'motion_variances' are not positive numbers")
    if source_of.min() < 0 or source_of.max() >= sources:
        raise ValueError("'source_of' names a source that is not there")
    _check_ends("thumbnail_ends", arrays["thumbnail_ends"], thumbnail_bytes, least=0)


def _check_poses(name: str, poses: Array) -> None:
    # A comparison with NaN is false.
    if not (np.abs(poses) <= MAX_COORDINATE_M).all():
        raise ValueError(f"'{name}' are not finite or absurdly large")


def _check_extent(poses: Array) -> None:
    """Raise ValueError for poses that are all equal: there any image would fit, from anywhere."""
    if len(poses) > 1 and (np.abs(difference(poses, poses[0])) < MIN_SPACING_M).all():
        raise ValueError(
            "all its poses are equal, so that it does not say where its images are from"
        )


def _check_ends(name: str, ends: NDArray[np.int64], total: int, least: int) -> None:
    """Raise ValueError unless the ends divide `total` items into parts of at least `least`."""
    # Within the total no difference can overflow.
    within = ends.min() >= 0 and ends.max() == ends[-1] == total
    if not within or (np.diff(ends, prepend=0) < least).any():
        raise ValueError(f"'{name}' do not divide what they end")
