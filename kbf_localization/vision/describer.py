"""What every describer of images does: make a row of bytes of an image, and compare such rows.

A describer is a plug-in (`vision/registry.py`). The map keeps one row of bytes an image, and beside
them the describer's name, version and settings; only the describer knows what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Counts, Image, Rows

if TYPE_CHECKING:
    from kbf_localization.vision.pyramid_describer import PyramidDescriber

WordGrid = NDArray[np.integer[Any]]

D = TypeVar("D", bound="Describer")


@dataclass(frozen=True)
class ImageDescription:
    """`features` (width,), a row of bytes, and `words` (cells,), the reduced grid of visual words.

    `words` is None where it is not known: for the images of an old map, and from a describer that
    has no visual words.
    """

    features: Counts
    words: WordGrid | None = None


class Gallery(Protocol):
    """The rows of a map, made ready to be compared with queries and with each other.

    A describer that combines several compares once for each of its parts: results have a first axis
    of `parts`, from which `Describer.kernel` makes one similarity.
    """

    def compare(self, query: Counts, rows: Rows | None = None) -> Array:
        """A query (width,) with these rows (None: with all): (parts, m)."""

    def glance(self, query: Counts) -> Array:
        """A quicker look at all rows, (parts, n), good enough to choose those worth a close one."""

    def compare_rows(self, rows_a: Rows, rows_b: Rows | None = None) -> Array:
        """Rows with rows (None: with `rows_a` itself): (parts, len rows_a, len rows_b)."""

    def check(self) -> None:
        """Raise ValueError where a row cannot be this describer's, as in a hostile map."""


class Describer(Protocol):
    """Turns images into rows of bytes and compares them by a positive definite kernel k_Z.

    k_Z(z, z) = 1. `name` is the one under which it is registered; `version` changes when the same
    settings begin to give other rows.
    """

    name: str
    version: int

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that fixes what a description is, as JSON knows it; the registry makes it again."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height to which images are brought."""

    @property
    def width(self) -> int:
        """Bytes of a row."""

    def describe_all(self, images: Sequence[Image]) -> list[ImageDescription]:
        """Images (h, w) of any size, grey, or (h, w, channels) with BGR or BGRA; one by one the
        same as together.
        """

    def describe(self, image: Image) -> ImageDescription:
        return self.describe_all([image])[0]

    def gallery(self, features: Counts) -> Gallery:
        """Rows (n, width), to be compared."""

    def kernel(self, compared: Array) -> Array:
        """k_Z (…) from what a gallery gave, (parts, …)."""

    @property
    def scales(self) -> tuple[float, ...]:
        """Positive numbers of the kernel that a map learns from its own images; () for none."""
        return ()

    def with_scales(self: D, scales: Sequence[float]) -> D:
        """The same with other scales."""
        return self

    @property
    def pyramid(self) -> PyramidDescriber | None:
        """The spatial pyramid, where it is this describer or one of its parts."""
        return None


def specification(describer: Describer) -> dict[str, Any]:
    """What a map keeps to make the describer again, but for a pyramid's vocabulary."""
    return {
        "name": describer.name,
        "version": describer.version,
        "settings": dict(describer.settings),
    }
