"""Dense SIFT, visual words, spatial pyramid: the describer that needs nothing but the images."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Counts, Image
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import Describer, ImageDescription
from kbf_localization.vision.prepare import prepare_image
from kbf_localization.vision.pyramid import PyramidGallery, pyramid_histogram
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary

_log = logging.getLogger(__name__)


class PyramidDescriber(Describer):
    """Describes images of any size, grey or colour, as the map's images were described.

    A row is the pyramid's histogram. Images of another size than the map's are resized, which is
    logged once.
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
        self._resizes = False

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
        """Return the description of an image (h, w), (h, w, 1), (h, w, 3) BGR or (h, w, 4) BGRA."""
        grey = prepare_image(image, self.image_size)
        if image.shape[:2] != grey.shape and not self._resizes:
            self._resizes = True
            sizes = (*image.shape[1::-1], *self.image_size)
            _log.warning("images of %dx%d are resized to the map's %dx%d", *sizes)
        words = self.vocabulary.assign(dense_sift(grey, self.layout))
        step = self.layout.reduced_grid_step
        grid = words.reshape(self.layout.grid_shape)[::step, ::step]
        return ImageDescription(
            features=pyramid_histogram(words, self.layout),
            words=grid.reshape(-1).astype(self.layout.word_type),
        )

    def gallery(self, features: Counts) -> PyramidGallery:
        return PyramidGallery(self.layout, features)

    def kernel(self, compared: Array) -> Array:
        return np.asarray(compared[0])
