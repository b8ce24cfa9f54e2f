"""Grey images from the pixel layouts that sensor_msgs carries, the same for node and offline."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Image

MAX_PIXELS = 50_000_000
"""A camera gives less; a header that claims more is refused before anything is allocated."""

# encoding -> (bytes a pixel, OpenCV's conversion to grey or None where it is grey already).
# OpenCV names a Bayer pattern by its second row's second and third pixel, ROS by its first two.
_EIGHT_BIT: dict[str, tuple[int, int | None]] = {
    "mono8": (1, None),
    "8UC1": (1, None),
    "bgr8": (3, cv2.COLOR_BGR2GRAY),
    "8UC3": (3, cv2.COLOR_BGR2GRAY),
    "rgb8": (3, cv2.COLOR_RGB2GRAY),
    "bgra8": (4, cv2.COLOR_BGRA2GRAY),
    "8UC4": (4, cv2.COLOR_BGRA2GRAY),
    "rgba8": (4, cv2.COLOR_RGBA2GRAY),
    "bayer_rggb8": (1, cv2.COLOR_BayerBG2GRAY),
    "bayer_bggr8": (1, cv2.COLOR_BayerRG2GRAY),
    "bayer_gbrg8": (1, cv2.COLOR_BayerGR2GRAY),
    "bayer_grbg8": (1, cv2.COLOR_BayerGB2GRAY),
    "yuv422": (2, cv2.COLOR_YUV2GRAY_UYVY),
    "uyvy": (2, cv2.COLOR_YUV2GRAY_UYVY),
    "yuv422_yuy2": (2, cv2.COLOR_YUV2GRAY_YUY2),
    "yuyv": (2, cv2.COLOR_YUV2GRAY_YUY2),
}
_SIXTEEN_BIT = ("mono16", "16UC1")

ENCODINGS = (*_EIGHT_BIT, *_SIXTEEN_BIT)


def grey_from_raw(
    data: bytes | bytearray | memoryview | NDArray[np.uint8],
    *,
    encoding: str,
    width: int,
    height: int,
    step: int,
    is_bigendian: bool = False,
) -> Image:
    """The grey image (height, width) of a sensor_msgs/Image; rows may be padded to `step` bytes.

    Raises ValueError, saying what is wrong, for an encoding or a layout that cannot be.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"unknown image encoding '{encoding}'")
    wide = encoding in _SIXTEEN_BIT
    pixel_bytes, conversion = (2, None) if wide else _EIGHT_BIT[encoding]
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise ValueError(f"image of {width}x{height} pixels")
    row_bytes = width * pixel_bytes
    if step < row_bytes:
        raise ValueError(f"step of {step} bytes for rows of {row_bytes}")
    buffer = np.frombuffer(data, dtype=np.uint8)
    # The last row's padding may be missing, as cv_bridge allows too.
    if len(buffer) < step * (height - 1) + row_bytes:
        raise ValueError(f"{len(buffer)} bytes of image data, {step * height} expected")
    rows = np.lib.stride_tricks.as_strided(
        buffer, shape=(height, row_bytes), strides=(step, 1), writeable=False
    )
    if wide:
        order = ">u2" if is_bigendian else "<u2"
        values = np.ascontiguousarray(rows).view(order).astype(np.uint16)
        return np.asarray(cv2.convertScaleAbs(values, alpha=255.0 / 65535.0), dtype=np.uint8)
    if pixel_bytes == 1:
        pixels = np.ascontiguousarray(rows)
    else:
        pixels = np.ascontiguousarray(rows).reshape(height, width, pixel_bytes)
    if conversion is None:
        return pixels.copy() if pixels.base is not None else pixels
    try:
        return np.asarray(cv2.cvtColor(pixels, conversion), dtype=np.uint8)
    except cv2.error as error:
        raise ValueError(f"an image of {width}x{height} cannot be {encoding}") from error


def grey_from_compressed(data: bytes | bytearray | memoryview | NDArray[np.uint8]) -> Image | None:
    """The grey image of JPEG or PNG bytes; None where they cannot be decoded."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    size = claimed_size(buffer)
    if size is None or not 0 < size[0] * size[1] <= MAX_PIXELS or not _is_whole(buffer):
        return None
    try:
        image = cv2.imdecode(buffer, cv2.IMREAD_GRAYSCALE)
    except cv2.error:
        return None
    return None if image is None else np.asarray(image, dtype=np.uint8)


def _is_whole(data: Image) -> bool:
    """Whether the image's end is there; older OpenCV fills what a truncated one lacks with grey."""
    content = data.tobytes()
    if content.startswith(b"\x89PNG"):
        return b"IEND" in content[-64:]
    end_of_image, start_of_scan = b"\xff\xd9", b"\xff\xda"
    return content.rfind(end_of_image) > content.rfind(start_of_scan)


def claimed_size(data: Image) -> tuple[int, int] | None:
    """Width and height as a JPEG's or PNG's header claims them, without decoding."""
    if data[:8].tobytes() == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return _number(data[16:20]), _number(data[20:24])
    if data[:2].tobytes() != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data):
        marker = int(data[at + 1])
        if data[at] != 0xFF:
            return None
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(data[at + 7 : at + 9]), _number(data[at + 5 : at + 7])
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
        else:
            at += 2 + _number(data[at + 2 : at + 4])
    return None


def _number(data: Image) -> int:
    return int.from_bytes(data.tobytes(), "big")
