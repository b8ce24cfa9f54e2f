"""Writes a map file: whole or not at all."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import asdict
from pathlib import Path

import h5py
import numpy as np

from kbf_localization.atomic_write import atomic_write
from kbf_localization.errors import MapError
from kbf_localization.limits import check_scale
from kbf_localization.training_map.file_format import (
    ARRAYS,
    DESCRIPTION,
    PYRAMIDS,
    SEAL_LENGTH,
    VERSION,
    seal,
)
from kbf_localization.training_map.metadata import parse_description
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import specification
from kbf_localization.vision.pyramid_describer import PyramidDescriber


def save_map(training_map: TrainingMap, path: Path | str) -> None:
    """Store the map at `path`, in place of a file that may be there.

    The new file is made beside it and takes its name when it is complete and on the disk.
    """
    path = Path(path)
    try:
        # HDF5 does not survive a full disk: it would crash when the interpreter ends. So the file
        # is made in memory, which has held the map already.
        image = io.BytesIO()
        with h5py.File(image, "w", userblock_size=SEAL_LENGTH) as content:
            _write(content, training_map)
        seal(image, _version(training_map))
        with atomic_write(path) as temporary:
            temporary.write_bytes(image.getbuffer())
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MapError(f"{path}: the map cannot be written: {reason}") from error


def _version(training_map: TrainingMap) -> int:
    """The oldest that holds the map, so that older programs read what they can."""
    return PYRAMIDS if isinstance(training_map.described_by, PyramidDescriber) else VERSION


def _write(file: h5py.File, training_map: TrainingMap) -> None:
    sizes, checksums = [], []
    for thumbnail in training_map.thumbnails:
        sizes.append(len(thumbnail))
        checksums.append(zlib.crc32(thumbnail))
    describer, pyramid = training_map.described_by, training_map.described_by.pyramid
    plan, ways = training_map.floor_plan, training_map.ways
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
        "ways": np.concatenate(ways) if ways else None,
        "way_ends": np.cumsum([len(way) for way in ways]) if ways else None,
    }
    for name, array in arrays.items():
        if array is not None:
            dtype = ARRAYS[name][0]
            if pyramid is not None and dtype == "word":
                dtype = pyramid.layout.word_type
            file.create_dataset(name, data=np.asarray(array, dtype=dtype))
    pictures = file.create_dataset("thumbnails", shape=(sum(sizes),), dtype=np.uint8)
    start = 0
    for size, thumbnail in zip(sizes, training_map.thumbnails, strict=True):
        if size:
            pictures[start : start + size] = np.frombuffer(thumbnail, dtype=np.uint8)
            start += size
    description = {
        "settings": None if pyramid is None else asdict(pyramid.layout),
        "sources": [asdict(source) for source in training_map.sources],
        "parameters": {name: float(value) for name, value in training_map.parameters.items()},
        "learned": asdict(training_map.learned),
        "warnings": list(training_map.warnings),
        "floor_plan": None
        if plan is None
        else {"resolution": plan.resolution, "origin": plan.origin},
    }
    if describer is not pyramid:
        description["describer"] = {
            **specification(describer),
            "scales": [check_scale(scale) for scale in describer.scales],
        }
    text = json.dumps(description, indent=1, allow_nan=False).encode()
    parse_description(text)  # a map that could not be read again is not written
    file.create_dataset(DESCRIPTION, data=np.bytes_(text))
