"""From an image to what the map keeps of it: a pyramid histogram and a grid of visual words."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Counts, Image
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.pyramid import pyramid_histogram
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary

_log = logging.getLogger(__name__)

WordGrid = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class ImageDescription:
    """`histogram` (bins,) of the pyramid, and `words` (cells,), the reduced grid of visual words.

    `words` is None where it is not known, as for the images of an old map.
    """

    histogram: Counts
    words: WordGrid | None = None


class ImageDescriber:
    """Describes images of any size, grey or colour, as the map's images were described.

    Images of another size than the map's are resized, which is logged once; `resized_from` is the
    size (width, height) of the last such image, None while there was none.
    """

    def __init__(self, vocabulary: Vocabulary, settings: DescriberSettings) -> None:
        if vocabulary.words.shape[0] != settings.words:
            raise ValueError(
                f"vocabulary has {vocabulary.words.shape[0]} words, settings say {settings.words}"
            )
        self.vocabulary = vocabulary
        self.settings = settings
        self.resized_from: tuple[int, int] | None = None

    def describe(self, image: Image) -> ImageDescription:
        """The description of an image (h, w), (h, w, 1), (h, w, 3) BGR or (h, w, 4) BGRA."""
        height, width = image.shape[:2] if image.ndim in (2, 3) else (0, 0)
        grey = prepare_image(image, self.settings)
        size = (self.settings.image_width, self.settings.image_height)
        if (width, height) != size:
            if self.resized_from is None:
                _log.warning("images of %dx%d are resized to the map's %dx%d", width, height, *size)
            self.resized_from = (width, height)
        words = self.vocabulary.assign(dense_sift(grey, self.settings))
        step = self.settings.reduced_grid_step
        grid = words.reshape(self.settings.grid_shape)[::step, ::step]
        return ImageDescription(
            histogram=pyramid_histogram(words, self.settings),
            words=grid.reshape(-1).astype(self.settings.word_type),
        )


def prepare_image(image: Image, settings: DescriberSettings) -> Image:
    """The image in grey and of the settings' size."""
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(
            f"image must be a non-empty uint8 array (h, w[, channels]), "
            f"not {image.dtype} of shape {image.shape}"
        )
    if image.ndim == 3:
        if image.shape[2] == 1:
            image = image[:, :, 0]
        elif image.shape[2] in (3, 4):
            code = cv2.COLOR_BGR2GRAY if image.shape[2] == 3 else cv2.COLOR_BGRA2GRAY
            image = np.asarray(cv2.cvtColor(image, code), dtype=np.uint8)
        else:
            raise ValueError(f"image must have 1, 3 or 4 channels, not {image.shape[2]}")
    size = (settings.image_width, settings.image_height)
    if image.shape != size[::-1]:
        shrinks = size[0] < image.shape[1]
        image = np.asarray(
            cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR),
            dtype=np.uint8,
        )
    return image
