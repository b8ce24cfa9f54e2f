"""What a camera gives when something is wrong with it or before it: image to image."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image

NOISE = 4.0
"""Standard deviation, in grey levels, of the sensor's noise in little light."""

BLOBS = 400
TEXTURE_SIDE = 512


def covered(image: Image, _: float, rng: np.random.Generator) -> Image:
    """A hand before the lens: dark, without contours, with the sensor's noise."""
    return _noisy(np.full(image.shape, 12.0), rng)


def in_the_dark(image: Image, _: float, rng: np.random.Generator) -> Image:
    """A hundredth of the light, which the camera amplifies with its noise."""
    return _noisy(0.01 * image.astype(np.float64), rng, 3.0)


def dimmed(image: Image, _: float, rng: np.random.Generator) -> Image:
    """A quarter of the light, with noise."""
    return _noisy(0.25 * image.astype(np.float64), rng)


def mirrored(image: Image, _: float, __: np.random.Generator) -> Image:
    """Left and right exchanged by a wrong setting of the driver."""
    return np.ascontiguousarray(image[:, ::-1])


def upside_down(image: Image, _: float, __: np.random.Generator) -> Image:
    """A camera mounted head down."""
    return np.ascontiguousarray(image[::-1, ::-1])


def crowd(share: float, image: Image, seconds: float, _: np.random.Generator) -> Image:
    """Opaque textured blobs that move and together hide `share` of the pixels."""
    height, width = image.shape
    within = np.ix_(np.arange(height) % TEXTURE_SIDE, np.arange(width) % TEXTURE_SIDE)
    rng = np.random.default_rng(1)
    seen, hidden = image.copy(), np.zeros(image.shape, dtype=np.uint8)
    for number in range(BLOBS):
        place, speed = rng.uniform(0, 1, 2), rng.uniform(-0.25, 0.25)
        reach = rng.uniform(0.08, 0.2, 2) * height
        x = int(((place[0] + speed * seconds) % 1.0) * width)
        y = int(place[1] * height)
        blob = np.zeros(image.shape, dtype=np.uint8)
        cv2.ellipse(blob, (x, y), (int(reach[0]), int(1.6 * reach[1])), 0, 0, 360, 1, -1)
        # The texture moves with its blob.
        shifted = np.roll(_texture(), (y + 37 * number, x + 91 * number), (0, 1))
        seen = np.where(blob > 0, shifted[within], seen)
        hidden |= blob
        if hidden.mean() >= share:
            break
    return np.asarray(seen)


@cache
def _texture() -> Image:
    """Coarse and fine patterns of a crowd's clothes."""
    rng = np.random.default_rng(0)
    side = (TEXTURE_SIDE, TEXTURE_SIDE)
    coarse = rng.uniform(0, 255, (64, 64)).astype(np.float32)
    fine = rng.uniform(-60, 60, side).astype(np.float32)
    both = cv2.resize(coarse, side, interpolation=cv2.INTER_NEAREST) + fine
    return np.clip(cv2.GaussianBlur(both, (0, 0), 1.5), 0, 255).astype(np.uint8)


def _noisy(image: Array, rng: np.random.Generator, gain: float = 1.0) -> Image:
    noisy = gain * (image + rng.normal(0.0, NOISE, image.shape))
    return np.asarray(np.clip(np.round(noisy), 0, 255), dtype=np.uint8)
