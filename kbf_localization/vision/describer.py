"""The interface of describers: they turn an image into a row of bytes, and compare such rows.

A describer is a plug-in (`vision/registry.py`). The map keeps one row of bytes an image, and beside
them the describer's name, version and settings; only the describer knows what the bytes mean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Counts, Image, Rows
from kbf_localization.vision.keypoints import Keypoints, detect_keypoints

if TYPE_CHECKING:
    from kbf_localization.vision.visual_words import PyramidDescriber


MAX_DESCRIBED_PIXELS = 2 * 640 * 480
"""Of a map's images: larger images take longer to describe and distinguish places no better."""


def reduced_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height at which images of this size are described: halved, if large."""
    width, height = size
    while width * height > MAX_DESCRIBED_PIXELS and min(width, height) > 1:
        width, height = width // 2, height // 2
    return width, height


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


TINY_SIZE = (16, 12)
"""Width and height of tiny images, in which the noise of single pixels is averaged out."""

MIN_CORRELATION, MIN_DIFFERENCE = 0.95, 3.0
"""Of two tiny images of one view: unrelated images correlate less than 0.93 (two rendered offices),
images with noise of 8 grey levels or in a quarter of the light more than 0.995; and the difference
in grey levels below which there is only noise, as behind a covered lens."""


def tiny_image(image: Image) -> Image:
    """Return the image in grey at `TINY_SIZE`, to tell cheaply whether a view has changed."""
    tiny = cv2.resize(as_grey(image), TINY_SIZE, interpolation=cv2.INTER_AREA)
    return np.asarray(tiny, dtype=np.uint8)


def show_different_views(first: Image, second: Image) -> bool:
    """Tell whether two tiny images show different views, in whatever light."""
    a, b = (tiny.astype(np.float64).ravel() - tiny.mean() for tiny in (first, second))
    differs = float(np.sqrt(np.mean((a - b) ** 2))) > MIN_DIFFERENCE
    return differs and float(a @ b) < MIN_CORRELATION * float(np.sqrt((a @ a) * (b @ b)))


WordGrid = NDArray[np.integer[Any]]

D = TypeVar("D", bound="Describer")


@dataclass(frozen=True)
class ImageDescription:
    """`features` (width,), a row of bytes, and `words` (cells,), the reduced grid of visual words.

    `words` is None where it is not known: for the images of an old map, and from a describer that
    has no visual words. `keypoints` are in the pixels of the camera's image of `image_size` (width,
    height); None where no landmarks are matched. `tiny` is the tiny image of a camera's image.
    """

    features: Counts
    words: WordGrid | None = None
    keypoints: Keypoints | None = None
    image_size: tuple[int, int] = (0, 0)
    tiny: Image | None = None


@dataclass(frozen=True)
class ImageDescriber:
    """Describes camera images by a `describer` and, if asked, by their keypoints."""

    describer: Describer
    detect: bool = True

    def describe(self, image: Image) -> ImageDescription:
        """Describe one image (h, w[, channels])."""
        return self.describe_all([image])[0]

    def describe_in_parallel(self, image: Image, detect: bool = True) -> ImageDescription:
        """Describe one image, its keypoints on a second core where there is one.

        Without `detect` it has no keypoints, in half the time.
        """
        if not (detect and self.detect):
            return replace(self, detect=False).describe(image)
        if len(os.sched_getaffinity(0)) == 1:
            return self.describe(image)
        keypoints = _second_thread().submit(detect_keypoints, as_grey(image))
        description = replace(self, detect=False).describe(image)
        size = (image.shape[1], image.shape[0])
        return replace(description, keypoints=keypoints.result(), image_size=size)

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        """Describe images of any size."""
        described = [
            replace(description, tiny=tiny_image(image))
            for description, image in zip(self.describer.describe_all(images), images, strict=True)
        ]
        if not self.detect:
            return described
        return [
            replace(
                description,
                keypoints=detect_keypoints(as_grey(image)),
                image_size=(image.shape[1], image.shape[0]),
            )
            for description, image in zip(described, images, strict=True)
        ]


@lru_cache(maxsize=1)
def _second_thread() -> ThreadPoolExecutor:
    """Return the thread beside that which describes; it is kept from image to image."""
    return ThreadPoolExecutor(1, thread_name_prefix="keypoints")


class Gallery(Protocol):
    """The rows of a map, made ready to be compared with queries and with each other.

    A describer that combines several compares once for each of its parts: results have a first axis
    of `parts`, from which `Describer.kernel` makes one similarity.
    """

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        """Compare a query (width,) with these rows, or all; return (parts, m)."""

    def coarse_scores(self, query: Counts) -> Array:
        """Return cheap scores (parts, n) of all rows, good enough for retrieval."""

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        """Compare rows with rows (None: `rows_a`); return (parts, len rows_a, len rows_b)."""

    def check(self) -> None:
        """Raise ValueError where a row cannot be this describer's, as in a hostile map."""


class Describer(Protocol):
    """Turns images into rows of bytes and compares them by a positive definite kernel k_Z.

    k_Z(z, z) = 1. `name` is that under which it is registered; `version` changes when the same
    settings begin to give other rows.
    """

    name: str
    version: int

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return all that determines a description, as JSON; the registry makes it again."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Return width and height to which images are brought."""

    @property
    def width(self) -> int:
        """Return the number of bytes of a row."""

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        """Describe images (h, w) of any size, grey, or (h, w, channels) in BGR or BGRA.

        The result does not depend on how the images are grouped.
        """

    def describe(self, image: Image) -> ImageDescription:
        return self.describe_all([image])[0]

    def gallery(self, features: Counts) -> Gallery:
        """Prepare rows (n, width) for comparison."""

    def kernel(self, compared: Array) -> Array:
        """Return k_Z (…) from what a gallery gave, (parts, …)."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Return the kernel's positive parameters that a map fits to its images; () for none."""
        return ()

    def with_scales(self: D, scales: Sequence[float]) -> D:
        """Return the describer with other scales."""
        return self

    @property
    def pyramid(self) -> PyramidDescriber | None:
        """Return the spatial pyramid, where it is this describer or one of its parts."""
        return None


def specification(describer: Describer) -> dict[str, Any]:
    """Return what a map keeps to make the describer again, but for a pyramid's vocabulary."""
    return {
        "name": describer.name,
        "version": describer.version,
        "settings": dict(describer.settings),
    }
