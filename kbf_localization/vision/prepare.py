"""Images as describers want them: grey, and of one size."""

from __future__ import annotations

import cv2
import numpy as np

from kbf_localization.arrays import Image


def prepare_image(image: Image, size: tuple[int, int]) -> Image:
    """Return the image in grey and of this width and height."""
    image = as_grey(image)
    if image.shape != size[::-1]:
        method = cv2.INTER_AREA if size[0] < image.shape[1] else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(image, size, interpolation=method), dtype=np.uint8)
    return image


def as_grey(image: Image) -> Image:
    """Return the image (h, w) in grey."""
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or 0 in image.shape:
        raise ValueError(
            f"image must be a non-empty uint8 array (h, w[, channels]), "
            f"not {image.dtype} of shape {image.shape}"
        )
    channels = 1 if image.ndim == 2 else image.shape[2]
    if channels == 1:
        image = image.reshape(image.shape[:2])
    elif channels in (3, 4):
        code = cv2.COLOR_BGR2GRAY if channels == 3 else cv2.COLOR_BGRA2GRAY
        image = np.asarray(cv2.cvtColor(image, code), dtype=np.uint8)
    else:
        raise ValueError(f"image must have 1, 3 or 4 channels, not {channels}")
    return image
