"""Images as describers want them: grey, and of one size."""

from __future__ import annotations

import cv2
import numpy as np

from kbf_localization.arrays import Image


def prepare_image(image: Image, size: tuple[int, int]) -> Image:
    """The image in grey and of this width and height."""
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
    if image.shape != size[::-1]:
        shrinks = size[0] < image.shape[1]
        image = np.asarray(
            cv2.resize(image, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR),
            dtype=np.uint8,
        )
    return image
