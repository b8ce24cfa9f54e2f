"""Dense SIFT, visual words, spatial pyramid: the describer that needs nothing but the images."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Counts, Image, Rows
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import Describer, Gallery, ImageDescription
from kbf_localization.vision.prepare import prepare_image
from kbf_localization.vision.pyramid import pyramid_histogram
from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary

_log = logging.getLogger(__name__)


class PyramidDescriber(Describer):
    """Describes images of any size, grey or colour, as the map's images were described.

    A row is the pyramid's histogram. Images of another size than the map's are resized, which is
    logged once; `resized_from` is the size (width, height) of the last such image, None while there
    was none.
    """

    name = "sift"
    version = 1

    def __init__(self, vocabulary: Vocabulary, layout: DescriberSettings) -> None:
        if vocabulary.words.shape[0] != layout.words:
            raise ValueError(
                f"vocabulary has {vocabulary.words.shape[0]} words, settings say {layout.words}"
            )
        self.vocabulary = vocabulary
        self.layout = layout
        self.resized_from: tuple[int, int] | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """All but the vocabulary, which a map keeps as an array."""
        return asdict(self.layout)

    @property
    def image_size(self) -> tuple[int, int]:
        return self.layout.image_width, self.layout.image_height

    @property
    def width(self) -> int:
        return self.layout.bins

    @property
    def pyramid(self) -> PyramidDescriber:
        return self

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        return [self.describe(image) for image in images]

    def describe(self, image: Image) -> ImageDescription:
        """The description of an image (h, w), (h, w, 1), (h, w, 3) BGR or (h, w, 4) BGRA."""
        height, width = image.shape[:2] if image.ndim in (2, 3) else (0, 0)
        grey = prepare_image(image, self.image_size)
        if (width, height) != self.image_size:
            if self.resized_from is None:
                _log.warning(
                    "images of %dx%d are resized to the map's %dx%d",
                    width,
                    height,
                    *self.image_size,
                )
            self.resized_from = (width, height)
        words = self.vocabulary.assign(dense_sift(grey, self.layout))
        step = self.layout.reduced_grid_step
        grid = words.reshape(self.layout.grid_shape)[::step, ::step]
        return ImageDescription(
            features=pyramid_histogram(words, self.layout),
            words=grid.reshape(-1).astype(self.layout.word_type),
        )

    def gallery(self, features: Counts) -> PyramidGallery:
        return PyramidGallery(PyramidKernel(self.layout), features)

    def kernel(self, compared: Array) -> Array:
        return np.asarray(compared[0])


class PyramidGallery(Gallery):
    """Histograms (n, bins) with what need not be computed for every query anew."""

    def __init__(self, kernel: PyramidKernel, histograms: Counts) -> None:
        self._kernel = kernel
        self._histograms = histograms

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        wanted = slice(None) if rows is None else rows
        return self._kernel.similarities(
            query, self._histograms[wanted], self._self_similarities[wanted]
        )[None]

    def glance(self, query: Counts) -> Array:
        """By the words of the whole image alone, a twentieth of a row."""
        return self._kernel.top_level_similarities(query, self._top_level, self._top_level_sums)[
            None
        ]

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        columns = rows_a if rows_b is None else rows_b
        return self._kernel.gram(
            self._histograms[rows_a],
            None if rows_b is None else self._histograms[rows_b],
            self._self_similarities[columns],
        )[None]

    def check(self) -> None:
        if not (self._self_similarities > 0.0).all():
            raise ValueError("a histogram is empty")

    @cached_property
    def _self_similarities(self) -> Array:
        """Unnormalized k(Z_i, Z_i) (n,), so that a query need not touch rows for it."""
        return self._kernel.self_similarities(self._histograms)

    @cached_property
    def _top_level(self) -> Counts:
        """The whole-image bins (n, words) side by side."""
        return self._kernel.top_level(self._histograms)

    @cached_property
    def _top_level_sums(self) -> Array:
        return self._kernel.top_level_sums(self._top_level)
