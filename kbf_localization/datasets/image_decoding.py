"""Grey images from the pixel layouts that sensor_msgs carries and from image files' bytes.

What compressed images claim about themselves is read before they are decoded. Only files that the
decoders read alike pass: a size that this walk does not see is a size that a decoder must not find.
OpenCV's own limits (`kbf_localization/__init__.py`) stand behind it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Image

Bytes = bytes | bytearray | memoryview | Image

MAX_PIXELS = 50_000_000
"""A camera gives less; a header that claims more is refused before anything is allocated."""

MAX_SCAN_PIXELS = 4 * MAX_PIXELS
"""Each scan of a progressive JPEG goes over all its pixels: so many in all."""
MAX_SCANS = 32
"""Encoders write about ten."""

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_HUFFMAN, _END, _SCAN, _QUANTIZATION, _RESTART_INTERVAL = 0xC4, 0xD9, 0xDA, 0xDB, 0xDD
_SKIPPED = (*range(0xE0, 0xF0), 0xFE)  # application data and comments
MAX_PIECES = 20_000
"""Segments of a JPEG with the bytes that fill between them, or chunks of a PNG."""
MAX_UNPACKED_TEXTS = 8
"""Compressed texts and profiles of a PNG, each of which may unpack to 8 MB; editors write a few."""
_UNPACKED, _ANIMATION = (b"zTXt", b"iTXt", b"iCCP"), (b"acTL", b"fcTL", b"fdAT")
_TIFF_TYPES = {1: "B", 3: "H", 4: "I"}
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_SAMPLES, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 277, 322, 323
_TIFF_COMPRESSION = 259
_TIFF_READ = (
    _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_SAMPLES, _TILE_WIDTH, _TILE_HEIGHT, _TIFF_COMPRESSION,
)  # fmt: skip
_TIFF_COMPRESSIONS = (1, 5, 8, 32773, 32946)
"""None, LZW, Deflate, PackBits: of a JPEG within a TIFF no walk would see the scans."""


@dataclass(frozen=True)
class ImageHeader:
    """The format, the claimed size in pixels, and over how many pixels a decoder will go."""

    format: str
    width: int
    height: int
    work: int

    @property
    def is_bounded(self) -> bool:
        return 0 < self.width * self.height <= MAX_PIXELS and self.work <= MAX_SCAN_PIXELS


def format_of(data: bytes) -> str:
    """Return JPEG, PNG, TIFF, WebP, or what the first bytes are."""
    if data[:2] == b"\xff\xd8":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] in (b"II*\0", b"MM\0*"):
        return "TIFF"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return f"unknown ({data[:4].hex(' ')})" if data else "empty"


def read_header(data: bytes) -> ImageHeader | None:
    """Return the header of a whole JPEG, PNG, TIFF or WebP image; None for anything else."""
    readers = {"JPEG": _jpeg, "PNG": _png, "TIFF": _tiff, "WebP": _webp}
    kind = format_of(data)
    try:
        return readers[kind](data) if kind in readers else None
    except (struct.error, IndexError):
        return None  # it ends within its header


def _png(data: bytes) -> ImageHeader | None:
    """Chunks up to the image's end, which must be there: older OpenCV fills up with grey."""
    size: tuple[int, int] | None = None
    at, unpacked = 8, 0
    for _ in range(MAX_PIECES):
        length, kind = struct.unpack_from(">I4s", data, at)
        if (kind == b"IHDR") != (size is None) or kind in _ANIMATION:
            return None
        if size is None:
            size = struct.unpack_from(">II", data, at + 8)
        unpacked += kind in _UNPACKED
        if unpacked > MAX_UNPACKED_TEXTS:
            return None
        if kind == b"IEND":
            return ImageHeader("PNG", *size, size[0] * size[1])
        at += 12 + length
    return None


def _jpeg(data: bytes) -> ImageHeader | None:
    """Segments as libjpeg reads them: a marker where one must be, one frame, then scans."""
    content = np.frombuffer(data, dtype=np.uint8)
    size: tuple[int, int] | None = None
    at, scans = 2, 0
    for _ in range(MAX_PIECES):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker == _END:
            break
        (length,) = struct.unpack_from(">H", data, at + 2)
        after = at + 2 + length
        if length < 2 or after > len(data):
            return None
        if marker in (_BASELINE, _EXTENDED, _PROGRESSIVE):
            if size is not None:
                return None
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = (width, height)
        elif marker == _SCAN:
            scans += 1
            if size is None or scans > MAX_SCANS:
                return None
            after = _end_of_scan(content, after)
        elif marker not in (_HUFFMAN, _QUANTIZATION, _RESTART_INTERVAL, *_SKIPPED):
            return None
        at = after
    else:
        return None
    if size is None or not scans:
        return None
    return ImageHeader("JPEG", *size, scans * size[0] * size[1])


def _end_of_scan(content: Image, at: int) -> int:
    """Return where the next marker stands that ends the entropy-coded bytes from `at` on."""
    marks = at + np.flatnonzero(content[at:-1] == 0xFF)
    following = content[marks + 1]
    # Within a scan: 0xFF as data is followed by 0, restart markers are D0 to D7, FF may fill.
    inside = (following == 0x00) | ((following >= 0xD0) & (following <= 0xD7)) | (following == 0xFF)
    ends = marks[~inside]
    return int(ends[0]) if len(ends) else len(content)


def _webp(data: bytes) -> ImageHeader | None:
    (riff_bytes,) = struct.unpack_from("<I", data, 4)
    kind = data[12:16]
    if riff_bytes + 8 > len(data):
        return None
    if kind == b"VP8X":
        width = 1 + int.from_bytes(data[24:27], "little")
        height = 1 + int.from_bytes(data[27:30], "little")
    elif kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", data, 26))
    elif kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    else:
        return None
    return ImageHeader("WebP", width, height, width * height)


def _tiff(data: bytes) -> ImageHeader | None:
    """Return the first image's size; tiles, which are decoded whole, count as pixels too."""
    order = "<" if data[:2] == b"II" else ">"
    (directory,) = struct.unpack_from(order + "I", data, 4)
    (entries,) = struct.unpack_from(order + "H", data, directory)
    tags: dict[int, int] = {}
    for entry in range(entries):
        at = directory + 2 + 12 * entry
        tag, kind, count = struct.unpack_from(order + "HHI", data, at)
        if tag in tags:
            return None
        if kind in _TIFF_TYPES and count == 1:
            (tags[tag],) = struct.unpack_from(order + _TIFF_TYPES[kind], data, at + 8)
        elif tag in _TIFF_READ:
            return None  # libtiff takes other types of numbers too
    if tags.get(_TIFF_COMPRESSION, 1) not in _TIFF_COMPRESSIONS:
        return None
    width, height = tags.get(_TIFF_WIDTH, 0), tags.get(_TIFF_HEIGHT, 0)
    tile = tags.get(_TILE_WIDTH, 0) * tags.get(_TILE_HEIGHT, 0)
    work = (width * height + tile) * tags.get(_TIFF_SAMPLES, 1)
    return ImageHeader("TIFF", width, height, work)


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
