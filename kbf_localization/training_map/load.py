"""Reads a map file, trusting nothing in it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.datasets.floor_plan_image import FloorPlanImage
from kbf_localization.errors import DescriberError, MapError
from kbf_localization.limits import FARTHEST_M, MAX_PLAN_PIXELS, check_scale
from kbf_localization.training_map.description_text import Description, PlanPlace, parse_description
from kbf_localization.training_map.file_format import (
    ARRAYS,
    DESCRIPTION,
    FLOOR_PLAN,
    LONGEST_DESCRIPTION,
    VOCABULARY,
    WAY_ENDS,
    WAYS,
    WORD_GRIDS,
    verify_seal,
)
from kbf_localization.training_map.thumbnails import FileThumbnails
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import Describer
from kbf_localization.vision.pyramid_describer import PyramidDescriber
from kbf_localization.vision.registry import make_describer, with_networks
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary


def load_map(path: Path | str, model: Path | str | None = None) -> TrainingMap:
    """The map stored at `path`; runs nothing from it, and allocates no more than its length.

    `model` is the network that the map was made with, which a map of learned descriptors needs to
    describe further images; another file is refused.
    """
    path = Path(path)
    training_map = _load(path)
    if model is not None:
        with_networks(training_map.described_by, [Path(model)])
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
        raise MapError(f"{path}: not a valid map: {error}; build it anew") from error


def _read(content: h5py.File, path: Path) -> TrainingMap:
    length = path.stat().st_size
    description = _description(content, length)
    layout = description.layout
    pyramid = None
    if layout is not None:
        words = _values(_dataset(content, VOCABULARY, length, {"words": layout.words}))
        if not np.isfinite(words).all() or np.abs(words).max() > 1e3:
            raise ValueError(f"'{VOCABULARY}' is not finite")
        pyramid = PyramidDescriber(Vocabulary(words), layout)
    describer = _describer(description, pyramid)
    sizes = {"bins": describer.width}
    datasets = {
        name: _dataset(content, name, length, sizes) for name in ARRAYS if name != VOCABULARY
    }
    # Histograms and thumbnails are the bulk: all else is checked before they are touched.
    arrays = {
        name: _values(dataset)
        for name, dataset in datasets.items()
        if name not in ("histograms", "thumbnails")
    }
    _check(arrays, datasets["thumbnails"].shape[0], len(description.sources))
    training_map = TrainingMap(
        poses=arrays["poses"],
        features=_values(datasets["histograms"]),
        next_poses=arrays["next_poses"],
        motions=arrays["motions"],
        described_by=describer,
        motion_variances=arrays["motion_variances"],
        sources=description.sources,
        source_of=arrays["source_of"].astype(np.intp),
        thumbnails=FileThumbnails(
            path.resolve(),
            int(datasets["thumbnails"].id.get_offset() or 0),
            arrays["thumbnail_ends"],
            arrays["thumbnail_checksums"],
        ),
        parameters=description.parameters,
        warnings=description.warnings,
        word_grids=_word_grids(content, length, len(arrays["poses"]), layout),
        known=description.learned,
        floor_plan=_floor_plan(content, length, description.plan),
        ways=_ways(content, length, len(description.sources)),
    )
    training_map.gallery.check()
    return training_map


def _describer(description: Description, pyramid: PyramidDescriber | None) -> Describer:
    """What described the map's images; the pyramid, where the description names no other."""
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


def _word_grids(
    content: h5py.File, length: int, poses: int, layout: DescriberSettings | None
) -> NDArray[Any] | None:
    """The grids of words, where the map has them."""
    if layout is None or content.get(WORD_GRIDS, getlink=True) is None:
        return None
    dataset = _plain(content, WORD_GRIDS, length)
    rows, columns = layout.reduced_grid_shape
    if dataset.dtype != np.dtype(layout.word_type) or dataset.shape != (poses, rows * columns):
        raise ValueError(f"'{WORD_GRIDS}' has shape {dataset.shape} of {dataset.dtype}")
    grids = _values(dataset)
    if poses and int(grids.max()) >= layout.words:
        raise ValueError(f"'{WORD_GRIDS}' has a word that is not in the vocabulary")
    return grids


def _floor_plan(content: h5py.File, length: int, place: PlanPlace | None) -> FloorPlanImage | None:
    """The floor plan, where the map has one."""
    if place is None:
        return None
    dataset = _plain(content, FLOOR_PLAN, length)
    pixels = int(np.prod(dataset.shape, dtype=object))
    if dataset.dtype != np.uint8 or len(dataset.shape) != 2 or not 0 < pixels <= MAX_PLAN_PIXELS:
        raise ValueError(f"'{FLOOR_PLAN}' has shape {dataset.shape} of {dataset.dtype}")
    return FloorPlanImage(_values(dataset), place.resolution, place.origin)


def _ways(content: h5py.File, length: int, sources: int) -> tuple[Array, ...]:
    """Where each source went, where the map knows it."""
    if content.get(WAYS, getlink=True) is None:
        return ()
    datasets = {name: _plain(content, name, length) for name in (WAYS, WAY_ENDS)}
    shapes = {WAYS: ((*datasets[WAYS].shape[:1], 3), "<f8"), WAY_ENDS: ((sources,), "<i8")}
    for name, (shape, dtype) in shapes.items():
        dataset = datasets[name]
        if dataset.shape != shape or dataset.dtype != np.dtype(dtype):
            raise ValueError(f"'{name}' has shape {dataset.shape} of {dataset.dtype}")
    poses, ends = _values(datasets[WAYS]), _values(datasets[WAY_ENDS])
    if not np.isfinite(poses).all() or (np.abs(poses) > FARTHEST_M).any():
        raise ValueError(f"'{WAYS}' are not finite or absurdly large")
    if ends[0] < 1 or (np.diff(ends) < 1).any() or ends[-1] != len(poses):
        raise ValueError(f"'{WAY_ENDS}' do not divide the ways")
    return tuple(np.split(poses, ends[:-1]))


def _description(content: h5py.File, length: int) -> Description:
    dataset = _plain(content, DESCRIPTION, length)
    if dataset.shape != () or dataset.dtype.kind != "S":
        raise ValueError(f"'{DESCRIPTION}' is not a text")
    if dataset.dtype.itemsize > LONGEST_DESCRIPTION:
        raise ValueError(f"'{DESCRIPTION}' is absurdly long")
    return parse_description(bytes(dataset[()]))


def _dataset(content: h5py.File, name: str, length: int, sizes: dict[str, int]) -> h5py.Dataset:
    """The array called `name`, of the format's type and shape; unknown sizes become known."""
    dataset = _plain(content, name, length)
    dtype, shape = ARRAYS[name]
    if dataset.dtype != np.dtype(dtype):
        raise ValueError(f"'{name}' has type {dataset.dtype}, not {np.dtype(dtype)}")
    if len(dataset.shape) != len(shape):
        raise ValueError(f"'{name}' has shape {dataset.shape}")
    for found, expected in zip(dataset.shape, shape, strict=True):
        wanted = expected if isinstance(expected, int) else sizes.setdefault(expected, found)
        if found != wanted:
            raise ValueError(
                f"'{name}' has shape {dataset.shape}, expected {wanted} for {expected}"
            )
    return dataset


def _plain(content: h5py.File, name: str, length: int) -> h5py.Dataset:
    """A dataset that lies in this file in one piece, so that it cannot unpack into more."""
    if not isinstance(content.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"'{name}' is missing")
    dataset = content[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise ValueError(f"'{name}' is not an array")
    if dataset.chunks is not None or dataset.is_virtual or dataset.external:
        raise ValueError(f"'{name}' is not stored in one piece")
    offset = dataset.id.get_offset()
    bytes_needed = int(np.prod(dataset.shape, dtype=object)) * dataset.dtype.itemsize
    if bytes_needed and (offset is None or not 0 <= offset <= length - bytes_needed):
        raise ValueError(f"'{name}' has shape {dataset.shape}, more than the file holds")
    return dataset


def _values(dataset: h5py.Dataset) -> NDArray[Any]:
    return np.asarray(dataset[()])


def _check(arrays: dict[str, NDArray[Any]], thumbnail_bytes: int, sources: int) -> None:
    poses, variances = arrays["poses"], arrays["motion_variances"]
    if len(poses) == 0:
        raise ValueError("it has no poses")
    if not np.isfinite(poses).all() or np.abs(poses).max() > FARTHEST_M:
        raise ValueError("'poses' are not finite or absurdly large")
    for name in ("next_poses", "motions"):
        values = arrays[name]
        missing = np.isnan(values).all(axis=1)
        known = values[~missing]
        if not np.isfinite(known).all() or (np.abs(known) > FARTHEST_M).any():
            raise ValueError(f"'{name}' are not finite or absurdly large")
    if (np.isnan(arrays["next_poses"]) != np.isnan(arrays["motions"])).any():
        raise ValueError("'next_poses' and 'motions' are missing at different poses")
    if not (np.isfinite(variances).all() and (variances > 0.0).all() and variances.max() < 1e6):
        raise ValueError("'motion_variances' are not positive numbers")
    if arrays["source_of"].min() < 0 or arrays["source_of"].max() >= sources:
        raise ValueError("'source_of' names a source that is not there")
    ends = arrays["thumbnail_ends"]
    if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != thumbnail_bytes:
        raise ValueError("'thumbnail_ends' do not divide the thumbnails")
