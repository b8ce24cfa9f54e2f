"""Grey images from the pixel layouts that sensor_msgs carries, the same for node and offline."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Image
from kbf_localization.datasets.image_headers import MAX_PIXELS, format_of, read_header

Bytes = bytes | bytearray | memoryview | Image

# encoding -> (channels, OpenCV's conversion to grey or None where it is grey already).
# OpenCV names a Bayer pattern by its second row's second and third pixel, ROS by its first two.
_COLOUR: dict[str, tuple[int, int | None]] = {
    "mono": (1, None),
    "bgr": (3, cv2.COLOR_BGR2GRAY),
    "rgb": (3, cv2.COLOR_RGB2GRAY),
    "bgra": (4, cv2.COLOR_BGRA2GRAY),
    "rgba": (4, cv2.COLOR_RGBA2GRAY),
    "bayer_rggb": (1, cv2.COLOR_BayerBG2GRAY),
    "bayer_bggr": (1, cv2.COLOR_BayerRG2GRAY),
    "bayer_gbrg": (1, cv2.COLOR_BayerGR2GRAY),
    "bayer_grbg": (1, cv2.COLOR_BayerGB2GRAY),
}
_PACKED_YUV = {
    "yuv422": cv2.COLOR_YUV2GRAY_UYVY,
    "uyvy": cv2.COLOR_YUV2GRAY_UYVY,
    "yuv422_yuy2": cv2.COLOR_YUV2GRAY_YUY2,
    "yuyv": cv2.COLOR_YUV2GRAY_YUY2,
}
# Brightness first, a byte a pixel, then colour: (bytes of all planes) / (bytes of the first).
_PLANAR_YUV = {"nv12": 1.5, "nv21": 1.5, "nv24": 3.0}


# encoding -> (channels, bytes a channel, conversion).
_LAYOUTS: dict[str, tuple[int, int, int | None]] = {
    **{f"{name}8": (item[0], 1, item[1]) for name, item in _COLOUR.items()},
    **{f"{name}16": (item[0], 2, item[1]) for name, item in _COLOUR.items()},
    **{name: (2, 1, conversion) for name, conversion in _PACKED_YUV.items()},
}
# OpenCV's own names say nothing about colours; cv_bridge takes them for blue, green, red.
for _channels, _name in (("C1", "mono"), ("C3", "bgr"), ("C4", "bgra")):
    _LAYOUTS[f"8U{_channels}"] = _LAYOUTS[f"{_name}8"]
    _LAYOUTS[f"16U{_channels}"] = _LAYOUTS[f"{_name}16"]
ENCODINGS = (*_LAYOUTS, *_PLANAR_YUV)


def grey_from_raw(
    data: Bytes, *, encoding: str, width: int, height: int, step: int, is_bigendian: bool = False
) -> Image:
    """Return the grey image (height, width) of a sensor_msgs/Image with rows of `step` bytes.

    Raises ValueError, naming the encoding and what is wrong, for what cannot be decoded.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"unknown image encoding '{encoding}'")
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise ValueError(f"{encoding} image of {width}x{height} pixels")
    buffer = np.frombuffer(data, dtype=np.uint8)
    if encoding in _PLANAR_YUV:
        # A message's `step` is the first plane's row for some drivers, of all planes for others.
        if len(buffer) < int(step * height * _PLANAR_YUV[encoding]):
            step = width
        _check(encoding, len(buffer), int(step * height * _PLANAR_YUV[encoding]), step, width)
        return np.array(_rows(buffer, height, step, width), dtype=np.uint8)
    channels, size, conversion = _LAYOUTS[encoding]
    row_bytes = width * channels * size
    # The last row's padding may be missing, as cv_bridge allows too.
    _check(encoding, len(buffer), step * (height - 1) + row_bytes, step, row_bytes)
    pixels = np.ascontiguousarray(_rows(buffer, height, step, row_bytes))
    if size == 2:
        pixels = pixels.view(">u2" if is_bigendian else "<u2").astype(np.uint16)
    if channels > 1:
        pixels = pixels.reshape(height, width, channels)
    if conversion is not None:
        try:
            pixels = np.asarray(cv2.cvtColor(pixels, conversion))
        except cv2.error as error:
            raise ValueError(f"an image of {width}x{height} cannot be {encoding}") from error
    if size == 2:
        pixels = np.asarray(cv2.convertScaleAbs(pixels, alpha=255.0 / 65535.0))
    return pixels.copy() if pixels.base is not None else pixels


def grey_from_message(message: Any) -> Image | None:
    """Return the grey image of a sensor_msgs/Image or CompressedImage of whatever library.

    None for compressed bytes that cannot be decoded, ValueError as `grey_from_raw` raises it.
    """
    if not hasattr(message, "encoding"):
        return grey_from_compressed(message.data)
    return grey_from_raw(
        message.data,
        encoding=message.encoding,
        width=message.width,
        height=message.height,
        step=message.step,
        is_bigendian=bool(message.is_bigendian),
    )


def _check(encoding: str, given: int, needed: int, step: int, row_bytes: int) -> None:
    if step < row_bytes:
        raise ValueError(f"{encoding} image: step of {step} bytes for rows of {row_bytes}")
    if given < needed:
        raise ValueError(f"{encoding} image: {given} bytes of image data, {needed} expected")


def _rows(buffer: Image, height: int, step: int, row_bytes: int) -> Image:
    return np.lib.stride_tricks.as_strided(
        buffer, shape=(height, row_bytes), strides=(step, 1), writeable=False
    )


def grey_from_compressed(data: Bytes) -> Image | None:
    """Return the grey image of JPEG, PNG, TIFF or WebP bytes; None where they cannot be decoded."""
    return decode(data, cv2.IMREAD_GRAYSCALE)


def decode(data: Bytes, mode: int) -> Image | None:
    """Decode an image by OpenCV if its header bounds the work; the only call of its decoders."""
    content = bytes(data)
    header = read_header(content)
    if header is None or not header.is_bounded:
        return None
    try:
        image = cv2.imdecode(np.frombuffer(content, dtype=np.uint8), mode)
    except cv2.error:
        return None
    return None if image is None else np.asarray(image, dtype=np.uint8)


def why_refused(data: Bytes) -> str:
    """Return why `grey_from_compressed` gave None, naming the image's encoding."""
    content = bytes(data)
    header = read_header(content)
    kind = format_of(content)
    if header is None:
        return f"{kind} image is damaged, incomplete or of a kind that is not decoded"
    if not header.is_bounded:
        return f"{kind} image claims {header.width}x{header.height} pixels, or too many scans"
    return f"{kind} image of {header.width}x{header.height} pixels cannot be decoded"
