"""Refusals, by name, of inputs in another unit or shape than what is documented."""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Image
from kbf_localization.errors import ParameterError
from kbf_localization.limits import LAST_STAMP_NS, MAX_COORDINATE_M, MAX_SIGMA_M, MAX_SIGMA_RAD

MAX_HEADING = 2.0 * np.pi


def check_stamp(stamp_ns: int) -> int:
    """Return the stamp as an int; a float would be too coarse, and most likely in seconds."""
    try:
        stamp = index(stamp_ns)
    except TypeError:
        raise ParameterError(
            f"stamp_ns is {stamp_ns!r}, a {type(stamp_ns).__name__}: give whole nanoseconds, such "
            "as int(seconds * 1e9)"
        ) from None
    if abs(stamp) >= LAST_STAMP_NS:
        raise ParameterError("stamp_ns is beyond 63 bits: give nanoseconds")
    return stamp


def check_stamps(stamps_ns: ArrayLike) -> None:
    """Refuse stamps (t,) that are no whole numbers."""
    stamps = np.asarray(stamps_ns)
    if stamps.ndim != 1 or stamps.dtype.kind not in "iu":
        raise ParameterError(
            f"stamps_ns is {stamps.dtype} of the shape {stamps.shape}: give whole nanoseconds, "
            "int64 of (t,)"
        )


def check_heading(pose: ArrayLike) -> None:
    """Refuse a pose (x, y, heading) whose heading can only be in degrees."""
    values = np.asarray(pose, dtype=np.float64)
    # A hundred times a second: the rest is for poses that are refused.
    if values.shape == (3,) and abs(values[2]) > MAX_HEADING:
        check_headings(values[None])


def check_headings(poses: ArrayLike) -> None:
    """Refuse poses (t, 3) of another shape, or with a heading that can only be in degrees."""
    values = np.asarray(poses, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 3:
        raise ParameterError(f"poses have the shape {values.shape}: give (t, 3), x, y and heading")
    headings = np.abs(values[:, 2])
    beyond = np.flatnonzero((headings > MAX_HEADING) & (headings < np.inf))
    if len(beyond):
        raise ParameterError(
            f"the heading is {values[beyond[0], 2]:g}, beyond 2 pi: give radians, in (-pi, pi]"
        )


def check_prior(pose: ArrayLike, covariance: ArrayLike) -> None:
    """Refuse a given pose (3,) far beyond any map, or whose covariance (3, 3) is none."""
    pose, covariance = np.asarray(pose), np.asarray(covariance)
    if pose.shape != (3,) or covariance.shape != (3, 3):
        raise ParameterError(
            f"a pose has the shape {pose.shape}, its covariance {covariance.shape}"
        )
    check_heading(pose)
    # A comparison with NaN is false.
    if not (np.abs(pose) <= MAX_COORDINATE_M).all():
        raise ParameterError(f"the given pose is not finite, or beyond {MAX_COORDINATE_M:g} m")
    sigmas = MAX_SIGMA_M, MAX_SIGMA_M, MAX_SIGMA_RAD
    if not (np.abs(covariance) <= np.outer(sigmas, sigmas) + 1.0).all():
        raise ParameterError(
            "the given pose's covariance is not finite, or beyond "
            f"{MAX_SIGMA_M:g} m and {MAX_SIGMA_RAD:g} rad squared"
        )
    symmetric = np.allclose(covariance, covariance.T, rtol=1e-6, atol=1e-9)
    if not symmetric or np.linalg.eigvalsh(covariance)[0] < -1e-9:
        raise ParameterError("the given pose's covariance is not one: not symmetric, or negative")


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
