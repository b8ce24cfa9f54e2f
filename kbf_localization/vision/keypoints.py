"""Local features of an image: where they are, and bytes that tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Floats, Image, Rows
from kbf_localization.vision.settings import DESCRIPTOR_LENGTH
from kbf_localization.vision.upright_sift import bound_components, upright_sift

WIDEST_PX = 480
"""Wider images are halved: on real images half the size matched more precisely than all of it."""

CONTRAST = 0.015
"""SIFT's contrast threshold; lower than Lowe's 0.04, since the strongest are taken anyway."""

MAX_RATIO = 0.85
"""Lowe's ratio of the distances to the nearest and the second nearest descriptor."""

_BYTE_SCALE = 512.0
"""A RootSIFT component is at most 1; those that occur are below 0.5."""


@dataclass(frozen=True)
class Keypoints:
    """Keypoints of an image: `pixels` (k, 2) x, y in that image, `descriptors` (k, 128) bytes."""

    pixels: Floats
    descriptors: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pixels)

    @classmethod
    def none(cls) -> Keypoints:
        return cls(np.empty((0, 2), np.float32), np.empty((0, 128), np.uint8))


def detect_keypoints(image: Image) -> Keypoints:
    """Return the strongest upright keypoints of a grey image.

    400, or 800 where it had to be halved.
    """
    small, halvings = _halved(image)
    found = upright_sift(small, 800 if halvings else 400)
    pixels = (found.pixels + np.float32(0.5)) * np.float32(2**halvings) - np.float32(0.5)
    return Keypoints(pixels, root_sift(bound_components(found.descriptors)))


def detect_rotated_keypoints(image: Image) -> Keypoints:
    """OpenCV's SIFT keypoints, turned to their dominant orientation: for cameras that roll."""
    small, halvings = _halved(image)
    found, raw = _sift(800 if halvings else 400).detectAndCompute(small, None)
    if not found:
        return Keypoints.none()
    pixels = np.asarray(cv2.KeyPoint.convert(found), dtype=np.float32)
    # A halved pixel covers 2 by 2: its centre lies between theirs.
    pixels = (pixels + np.float32(0.5)) * np.float32(2**halvings) - np.float32(0.5)
    return Keypoints(pixels, root_sift(raw))


def root_sift(descriptors: Floats) -> NDArray[np.uint8]:
    """Square roots of the L1-normalized descriptors (Arandjelović and Zisserman 2012), in bytes."""
    total = np.maximum(descriptors.sum(axis=1, keepdims=True), np.float32(1e-6))
    rooted = np.sqrt(descriptors / total)
    scaled = np.minimum(rooted * np.float32(_BYTE_SCALE) + np.float32(0.5), np.float32(255.0))
    return np.asarray(scaled, dtype=np.uint8)


def _halved(image: Image) -> tuple[Image, int]:
    halvings = 0
    while image.shape[1] > WIDEST_PX and min(image.shape[:2]) >= 2:
        size = (image.shape[1] // 2, image.shape[0] // 2)
        image = np.asarray(
            cv2.resize(image[: 2 * size[1], : 2 * size[0]], size, interpolation=cv2.INTER_AREA),
            dtype=np.uint8,
        )
        halvings += 1
    return image, halvings


@lru_cache(maxsize=4)
def _sift(features: int) -> Any:
    create: Any = getattr(cv2, "SIFT_create")  # noqa: B009
    try:
        return create(features, 3, CONTRAST, 10, 1.6, enable_precise_upscale=True)
    except (TypeError, cv2.error):  # OpenCV before 4.8
        return create(features, 3, CONTRAST, 10, 1.6)


def squared_distances(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> Floats:
    """(k, l) squared distances of descriptors (k, 128) and (l, 128), by one matrix product."""
    found: Floats = distance_rows(one) @ distance_columns(other).T
    return found


def distance_rows(descriptors: NDArray[np.uint8]) -> Floats:
    """(k, 130): their products with those of `distance_columns` are squared distances.

    x · (−2 y) + |x|² · 1 + 1 · |y|²: whole numbers below 2²⁴, so exact in any order of summation.
    """
    found = np.ones((len(descriptors), DESCRIPTOR_LENGTH + 2), dtype=np.float32)
    values = found[:, :DESCRIPTOR_LENGTH]
    values[:] = descriptors
    np.einsum("ij,ij->i", values, values, out=found[:, DESCRIPTOR_LENGTH])
    return found


def distance_columns(descriptors: NDArray[np.uint8]) -> Floats:
    """(l, 130): see `distance_rows`."""
    found = distance_rows(descriptors)[:, [*range(DESCRIPTOR_LENGTH), -1, -2]]
    found[:, :DESCRIPTOR_LENGTH] *= np.float32(-2.0)
    return found


def mutual_matches(distances: Floats, max_ratio: float = MAX_RATIO) -> tuple[Rows, Rows, Floats]:
    """Rows and columns that are each other's nearest, with the ratio to the second nearest.

    `distances` (k, l) are squared; the ratio is of distances, and bounded by `max_ratio`.
    """
    count, others = distances.shape
    if count == 0 or others < 2:
        empty = np.empty(0, dtype=np.intp)
        return empty, empty, np.empty(0, dtype=np.float32)
    best = distances.argmin(axis=1)
    least = distances.min(axis=0)
    if np.count_nonzero(distances == least) == others:
        rows = np.flatnonzero(distances[np.arange(count), best] == least[best])
    else:  # Of equal distances the first counts.
        rows = np.flatnonzero(distances.argmin(axis=0)[best] == np.arange(count))
    part = distances[rows]
    columns = best[rows]
    nearest = part[np.arange(len(rows)), columns]
    part[np.arange(len(rows)), columns] = np.inf
    second = part.min(axis=1)
    ratio = np.sqrt(np.maximum(nearest, 0.0) / np.maximum(second, 1e-6))
    kept = ratio < max_ratio
    return rows[kept], columns[kept], np.asarray(ratio[kept], dtype=np.float32)
