"""The map file `*.kbfmap`: a seal of 512 bytes, then HDF5.

It is written whole or not at all. Everything that is read is checked before it is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args, get_type_hints, overload

import h5py
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.atomic_write import atomic_write
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.errors import DescriberError, MapError
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import COLUMNS, LandmarkTable
from kbf_localization.limits import (
    CALIBRATION,
    COUNTS,
    FARTHEST_M,
    LAST_STAMP_NS,
    MAX_MAP_BYTES,
    MAX_MAP_SOURCES,
    MAX_PLAN_PIXELS,
    OTHER_CALIBRATION,
    PLAN_RESOLUTIONS,
    Range,
    check_count,
    check_number,
    check_parameter,
    check_scale,
    shortened,
)
from kbf_localization.motion.noise import MotionNoise
from kbf_localization.training_map.calibration import (
    Calibration,
    LikelihoodRatioModel,
    RelativePoseModel,
    SimilarityModel,
)
from kbf_localization.training_map.training_map import Source, TrainingMap
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import Describer, specification
from kbf_localization.vision.pyramid import PyramidDescriber, Vocabulary
from kbf_localization.vision.registry import make_describer, use_network

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

OLD_ARRAYS = {"trajectories": "ways", "trajectory_ends": "way_ends"}
"""Names of arrays in versions 2 and 3."""

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


LIMITS: dict[str, Range] = {
    **CALIBRATION,
    "resolution": PLAN_RESOLUTIONS,
    "origin": (-FARTHEST_M, FARTHEST_M),
    "stamps_ns": (0, LAST_STAMP_NS - 1),
}
"""Ranges of the numbers with these names; other whole numbers are counts."""

T = TypeVar("T")

KEYS: dict[type[Any], dict[str, str]] = {}
"""The format's key of each field: a renamed field keeps its key."""

OLD_KEYS: dict[type[Any], dict[str, str]] = {}
"""Keys of versions 2 and 3, and the keys that have replaced them."""


@dataclass(frozen=True)
class PlanPlace:
    """The place of a map's floor plan, as in `FloorPlanImage`."""

    resolution: float
    origin: tuple[float, float, float]


@dataclass(frozen=True)
class Description:
    """The content of a map file besides its arrays.

    `layout` is the pyramid's, None without a pyramid; `describer` is what
    `describer.specification` returns, with the scales of its kernel, None for the pyramid;
    `calibration` is None in a map of version 1.
    """

    layout: DescriberSettings | None
    describer: Mapping[str, Any] | None
    sources: tuple[Source, ...]
    parameters: Mapping[str, float]
    calibration: Calibration | None
    warnings: tuple[str, ...]
    plan: PlanPlace | None
    landmarks: LandmarkDescription | None
    own_frame: bool = False


KEYS |= {
    Calibration: {
        "similarity": "similarity",
        "likelihood_ratio": "place_evidence",
        "continuity": "continuity_evidence",
        "relative_pose": "relative_pose",
        "motion_noise": "motion_noise",
        "drives": "drives",
        "probes": "probes",
        "revisits": "revisits",
    },
    SimilarityModel: {
        "amplitude": "amplitude",
        "distance_m": "distance_m",
        "angle_rad": "angle_rad",
        "exponent": "exponent",
    },
    LikelihoodRatioModel: {
        "contrast": "contrast_coefficient",
        "prominence": "prominence_coefficient",
        "expected": "coverage_coefficient",
        "bias": "intercept",
        "limit": "limit",
        "correlation": "correlation_length",
        "median": "median",
        "q005": "q005",
        "bias_fraction": "bias_fraction",
    },
    RelativePoseModel: {
        "coefficients": "coefficients",
        "log_variance": "log_variance",
        "prominence": "prominence_range",
        "apparent": "separation_range",
        "least_variance": "variance_floor",
        "correlation": "correlation_length",
        "bias_fraction": "bias_fraction",
    },
    MotionNoise: {
        "per_metre": "variance_per_m",
        "per_radian": "variance_per_rad",
        "set_aside": "outliers",
    },
    Source: {
        "name": "name",
        "kind": "kind",
        "condition": "condition",
        "frames": "images",
        "chosen": "chosen",
        "stamps_ns": "stamps_ns",
    },
    PlanPlace: {"resolution": "resolution", "origin": "origin"},
    DescriberSettings: {
        "image_width": "image_width",
        "image_height": "image_height",
        "patch_size": "patch_size",
        "grid_step": "grid_step",
        "levels": "levels",
        "words": "vocabulary_size",
        "flat_gradient": "flat_gradient",
    },
}
OLD_KEYS |= {
    Calibration: {
        "resemblance": "similarity",
        "evidence": "place_evidence",
        "film": "continuity_evidence",
        "readout": "relative_pose",
    },
    LikelihoodRatioModel: {
        "contrast": "contrast_coefficient",
        "prominence": "prominence_coefficient",
        "expected": "coverage_coefficient",
        "bias": "intercept",
        "correlation": "correlation_length",
        "usual": "median",
        "low": "q005",
        "lasting": "bias_fraction",
    },
    RelativePoseModel: {
        "prominence": "prominence_range",
        "apparent": "separation_range",
        "least_variance": "variance_floor",
        "correlation": "correlation_length",
        "lasting": "bias_fraction",
    },
    MotionNoise: {
        "per_metre": "variance_per_m",
        "per_radian": "variance_per_rad",
        "set_aside": "outliers",
    },
    Source: {"frames": "images"},
    DescriberSettings: {"words": "vocabulary_size"},
}


_FIELDS: dict[type[Any], tuple[dict[str, Any], frozenset[str]]] = {
    kind: (
        get_type_hints(kind),
        frozenset(item.name for item in fields(kind) if item.default is not MISSING),
    )
    for kind in KEYS
}
"""The types of each data class's fields, and the names of those with a default."""


def parse_description(text: bytes) -> Description:
    """Parse the description; ValueError for anything that is not as `save_map` writes it."""
    try:
        content = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError("its description is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("its description is not a table")
    sources, warnings = content.get("sources"), content.get("warnings")
    if not isinstance(sources, list) or not sources:
        raise ValueError("its description names no sources")
    if len(sources) > MAX_MAP_SOURCES:
        raise ValueError(f"it has {len(sources)} sources, more than {MAX_MAP_SOURCES}")
    if not isinstance(warnings, list) or not all(isinstance(line, str) for line in warnings):
        raise ValueError("the description's warnings are not lines")
    describer = content.get("describer")
    if not isinstance(describer, (dict, type(None))):
        raise ValueError("the description's describer is not a table")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict):
        raise ValueError("the description's parameters are not a table")
    layout, plan = content.get("settings"), content.get("floor_plan")
    landmarks = content.get("landmarks")
    calibration = content.get("calibration", content.get("learned"))
    has_pyramid = layout is not None or describer is None
    own_frame = content.get("own_frame", False)
    if not isinstance(own_frame, bool):
        raise ValueError("the description's own_frame is neither true nor false")
    return Description(
        layout=_from_keys(layout, DescriberSettings, complete=True) if has_pyramid else None,
        describer=describer,
        sources=tuple(_source(source) for source in sources),
        parameters={key: check_parameter(key, value) for key, value in parameters.items()},
        calibration=None if calibration is None else _from_keys(calibration, Calibration),
        warnings=tuple(warnings),
        plan=None if plan is None else _from_keys(plan, PlanPlace),
        landmarks=None if landmarks is None else LandmarkDescription.from_dict(landmarks),
        own_frame=own_frame,
    )


def _source(content: Any) -> Source:
    source = _from_keys(content, Source)
    if source.stamps_ns is not None and source.stamps_ns[0] > source.stamps_ns[1]:
        raise ValueError(f"the stamps of a source are {source.stamps_ns}")
    return source


def _from_keys(content: Any, kind: type[T], *, complete: bool = False) -> T:
    """Return the data class `kind` of a table, each value of its type and within its limits.

    Unless it must be `complete`, values with a default may be missing, as in older maps.
    """
    types, optional = _FIELDS[kind]
    keys, optional = KEYS[kind], frozenset() if complete else optional
    if not isinstance(content, dict):
        raise ValueError(f"the description's {kind.__name__} is not a table")
    older = OLD_KEYS.get(kind, {})
    content = {older.get(key, key): value for key, value in content.items()}
    named = {field: content[key] for field, key in keys.items() if key in content}
    if not types.keys() - optional <= named.keys() or len(named) != len(content):
        raise ValueError(f"the description's {kind.__name__} lacks something")
    return kind(
        **{
            name: _checked(value, types[name], f"the description's {kind.__name__}.{name}", name)
            for name, value in named.items()
        }
    )


def _to_keys(value: Any) -> Any:
    """Return a data class as a table with the format's keys."""
    if is_dataclass(value):
        keys = KEYS[type(value)]
        return {keys[item.name]: _to_keys(getattr(value, item.name)) for item in fields(value)}
    return value


def _checked(value: Any, kind: Any, what: str, name: str) -> Any:
    """Return the value if it is of a type such as `tuple[float, float] | None`; else ValueError."""
    if is_dataclass(kind):
        return _from_keys(value, kind)  # type: ignore[arg-type]
    parts = get_args(kind)
    if type(None) in parts:
        return None if value is None else _checked(value, parts[0], what, name)
    if parts:
        if not isinstance(value, list) or len(value) != len(parts):
            raise ValueError(f"{what} has another shape")
        return tuple(
            _checked(item, part, what, name) for item, part in zip(value, parts, strict=True)
        )
    if kind is float:
        return check_number(what, value, LIMITS.get(name, OTHER_CALIBRATION))
    if kind is int:
        check_count(what, value, LIMITS.get(name, COUNTS))
    elif not isinstance(value, kind):
        raise ValueError(f"{what} is {shortened(value)}")
    return value


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


def save_map(training_map: TrainingMap, path: Path | str, *, replace: bool = True) -> None:
    """Store the map at `path`, in place of a file that may be there unless `replace` is false.

    The new file is made beside it and takes its name when it is complete and on the disk.
    """
    path = Path(path)
    try:
        # HDF5 does not survive a full disk: it would crash when the interpreter ends. So the file
        # is made in memory, which has held the map already.
        image = io.BytesIO()
        with h5py.File(image, "w", userblock_size=SEAL_LENGTH) as content:
            _write(content, training_map)
        seal(image)
        with atomic_write(path, replace=replace) as temporary:
            temporary.write_bytes(image.getbuffer())
    except FileExistsError as error:
        raise MapError(
            f"{path}: is there by now; name another file, or replace it (--force)"
        ) from error
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
        "settings": None if pyramid is None else _to_keys(pyramid.layout),
        "sources": [_to_keys(source) for source in training_map.sources],
        "parameters": {name: float(value) for name, value in training_map.parameters.items()},
        "calibration": _to_keys(training_map.calibration),
        "warnings": list(training_map.warnings),
        "floor_plan": None if plan is None else _to_keys(PlanPlace(plan.resolution, plan.origin)),
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
            raise MapError(f"{path}: cannot be read: it is not a regular file")
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
            path.resolve(),
            int(thumbnails.id.get_offset() or 0),
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
        else _landmarks(arrays, description.landmarks, path.resolve(), values["poses"]),
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
    """Return the known poses (n, 3) of a map with estimated ones; None where it has none."""
    if "reference_poses" not in arrays:
        return None
    poses = arrays.read("reference_poses")
    _check_poses("reference_poses", poses[np.isfinite(poses).all(axis=1)])
    return poses


def _landmarks(
    arrays: _Arrays, description: LandmarkDescription, path: Path, poses: Array
) -> LandmarkMap:
    """Open the landmarks, whose columns stay in the file."""
    columns = {
        name: FileRows.of_dataset(path, arrays.dataset(key))
        for name, key in LANDMARK_COLUMNS.items()
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
    if not (np.abs(poses) <= FARTHEST_M).all():
        raise ValueError(f"'{name}' are not finite or absurdly large")


def _check_ends(name: str, ends: NDArray[np.int64], total: int, least: int) -> None:
    """Raise ValueError unless the ends divide `total` items into parts of at least `least`."""
    # Within the total no difference can overflow.
    within = ends.min() >= 0 and ends.max() == ends[-1] == total
    if not within or (np.diff(ends, prepend=0) < least).any():
        raise ValueError(f"'{name}' do not divide what they end")
