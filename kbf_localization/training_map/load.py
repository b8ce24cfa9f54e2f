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
from kbf_localization.training_map.file_format import (
    ARRAYS,
    DESCRIPTION,
    LONGEST_DESCRIPTION,
    OPTIONAL,
    verify_seal,
)
from kbf_localization.training_map.metadata import Description, PlanPlace, parse_description
from kbf_localization.training_map.thumbnails import FileThumbnails
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.vision.describer import Describer
from kbf_localization.vision.pyramid_describer import PyramidDescriber
from kbf_localization.vision.registry import make_describer, use_network
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
        raise MapError(f"{path}: not a valid map: {error}; build it anew") from error


def _read(content: h5py.File, path: Path) -> TrainingMap:
    arrays = _Arrays(content, path.stat().st_size)
    description = parse_description(arrays.text(DESCRIPTION))
    arrays.sizes["sources"] = len(description.sources)
    pyramid = None
    if description.layout is not None:
        pyramid = _pyramid(arrays, description.layout)
    describer = _describer(description, pyramid)
    arrays.sizes["bins"] = describer.width
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
        known=description.learned,
        floor_plan=None if description.plan is None else _floor_plan(arrays, description.plan),
        ways=_ways(arrays),
    )
    training_map.gallery.check()
    return training_map


def _pyramid(arrays: _Arrays, layout: DescriberSettings) -> PyramidDescriber:
    rows, columns = layout.reduced_grid_shape
    arrays.sizes.update(words=layout.words, cells=rows * columns)
    arrays.word_type = layout.word_type
    words = arrays.read("vocabulary")
    if not np.isfinite(words).all() or np.abs(words).max() > 1e3:
        raise ValueError("'vocabulary' is not finite")
    return PyramidDescriber(Vocabulary(words), layout)


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


def _word_grids(arrays: _Arrays, layout: DescriberSettings) -> NDArray[Any] | None:
    """The grids of words, where the map has them."""
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


def _ways(arrays: _Arrays) -> tuple[Array, ...]:
    """Where each source went, where the map knows it."""
    if "ways" not in arrays:
        return ()
    poses, ends = arrays.read("ways"), arrays.read("way_ends")
    _check_poses("ways", poses)
    _check_ends("way_ends", ends, len(poses), least=1)
    return tuple(np.split(poses, ends[:-1]))


class _Arrays:
    """The arrays of a file of `length` bytes, each as `ARRAYS` says before it is read.

    `sizes` are the lengths that have names; those that are unknown become known.
    """

    def __init__(self, content: h5py.File, length: int) -> None:
        self._content = content
        self._length = length
        self.sizes: dict[str, int] = {}
        self.word_type = ""

    def __contains__(self, name: str) -> bool:
        return self._content.get(name, getlink=True) is not None

    def text(self, name: str) -> bytes:
        dataset = self._plain(name)
        if dataset.shape != () or dataset.dtype.kind != "S":
            raise ValueError(f"'{name}' is not a text")
        if dataset.dtype.itemsize > LONGEST_DESCRIPTION:
            raise ValueError(f"'{name}' is absurdly long")
        return bytes(dataset[()])

    def read(self, name: str) -> NDArray[Any]:
        return np.asarray(self.dataset(name)[()])

    def dataset(self, name: str) -> h5py.Dataset:
        """The array called `name`, of the format's type and shape."""
        dataset = self._plain(name)
        kind, shape = ARRAYS[name]
        dtype = np.dtype(self.word_type if kind == "word" else kind)
        if dataset.dtype != dtype:
            raise ValueError(f"'{name}' has type {dataset.dtype}, not {dtype}")
        if len(dataset.shape) != len(shape):
            raise ValueError(f"'{name}' has shape {dataset.shape}")
        for found, expected in zip(dataset.shape, shape, strict=True):
            wanted = (
                expected if isinstance(expected, int) else self.sizes.setdefault(expected, found)
            )
            if found != wanted:
                raise ValueError(
                    f"'{name}' has shape {dataset.shape}, expected {wanted} for {expected}"
                )
        return dataset

    def _plain(self, name: str) -> h5py.Dataset:
        """A dataset that lies in this file in one piece, so that it cannot unpack into more."""
        if not isinstance(self._content.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"'{name}' is missing")
        dataset = self._content[name]
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
    """Refuse ends that do not divide `total` items into parts of at least so many."""
    # Within the total no difference can overflow.
    within = ends.min() >= 0 and ends.max() == ends[-1] == total
    if not within or (np.diff(ends, prepend=0) < least).any():
        raise ValueError(f"'{name}' do not divide what they end")
