"""All textures of a scene in one image with its halved copies, so that one remap draws a frame."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from kbf_localization.arrays import Image

LEVELS = 4
_PAD = 8


class Atlas:
    """Packs images into shelves; level k is the whole atlas reduced by 2^k, to the right of it.

    `corners` (n, 2) are the x, y of each image's upper left pixel at level 0, `pixels`
    (h, w, 3) the colours, `shift` (LEVELS, 2) where each level lies in `pixels`.
    """

    def __init__(self, images: Sequence[Image]) -> None:
        width = max(4096, max(image.shape[1] for image in images) + 2 * _PAD)
        order = sorted(range(len(images)), key=lambda k: -images[k].shape[0])
        self.corners = np.zeros((len(images), 2), dtype=np.float32)
        x, y, shelf = 0, 0, 0
        for k in order:
            high, wide = images[k].shape[0] + 2 * _PAD, images[k].shape[1] + 2 * _PAD
            if x + wide > width:
                x, y, shelf = 0, y + shelf, 0
            self.corners[k] = (x + _PAD, y + _PAD)
            x, shelf = x + wide, max(shelf, high)
        height = -(-(y + shelf) // 16) * 16
        width = -(-width // 16) * 16
        self.pixels = np.zeros((height, width + width // 2, 3), dtype=np.uint8)
        self.shift = np.zeros((LEVELS, 2), dtype=np.float32)
        self._base = self.pixels[:, :width]
        for image, corner in zip(images, self.corners):
            self._place(image, int(corner[0]), int(corner[1]))
        self._reduce(height, width)

    def _place(self, image: Image, x: int, y: int) -> None:
        padded = cv2.copyMakeBorder(image, _PAD, _PAD, _PAD, _PAD, cv2.BORDER_REPLICATE)
        self._base[y - _PAD : y - _PAD + padded.shape[0], x - _PAD : x - _PAD + padded.shape[1]] = (
            padded
        )

    def _reduce(self, height: int, width: int) -> None:
        source, top = self._base, 0
        for level in range(1, LEVELS):
            size = (width >> level, height >> level)
            source = cv2.resize(source, size, interpolation=cv2.INTER_AREA)
            self.pixels[top : top + size[1], width : width + size[0]] = source
            self.shift[level] = (width, top)
            top += size[1]
