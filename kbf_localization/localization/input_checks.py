"""Refusals, by name, of inputs in another unit or shape than what is documented."""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Image
from kbf_localization.errors import ParameterError

LARGEST_HEADING = 2.0 * np.pi


def check_stamp(stamp_ns: int) -> int:
    """The stamp as an int; a float would be too coarse, and seconds most likely."""
    try:
        return index(stamp_ns)
    except TypeError:
        raise ParameterError(
            f"stamp_ns is {stamp_ns!r}, a {type(stamp_ns).__name__}: give whole nanoseconds, such "
            "as int(seconds * 1e9)"
        ) from None


def check_heading(pose: ArrayLike) -> None:
    """Refuse a pose (x, y, heading) whose heading can only be in degrees."""
    values = np.asarray(pose, dtype=np.float64)
    if values.shape == (3,) and abs(values[2]) > LARGEST_HEADING:
        raise ParameterError(
            f"the heading is {values[2]:g}, beyond 2 pi: give radians, in (-pi, pi]"
        )


def check_grey(image: Image) -> None:
    """Refuse an image that is not (h, w) of uint8."""
    array = np.asarray(image)
    if array.ndim == 3:
        raise ParameterError(
            f"the image has the shape {array.shape}, a colour image: give a grey one, such as "
            "cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)"
        )
    if array.ndim != 2 or array.dtype != np.uint8 or 0 in array.shape:
        raise ParameterError(
            f"the image is {array.dtype} of the shape {array.shape}: give uint8 of (height, width)"
        )
