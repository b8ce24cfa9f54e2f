"""Grey images from every pixel layout: padded rows, big-endian values, Bayer patterns, bombs."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.image_decoding import (
    ENCODINGS,
    MAX_PIXELS,
    grey_from_compressed,
    grey_from_raw,
    read_header,
    why_refused,
)

RNG = np.random.default_rng(3)
COLOUR = RNG.integers(0, 256, size=(6, 8, 3), dtype=np.uint8)  # B, G, R


def padded(rows: np.ndarray, padding: int) -> tuple[bytes, int]:
    flat = rows.reshape(len(rows), -1)
    wide = np.full((len(flat), flat.shape[1] + padding), 77, dtype=np.uint8)
    wide[:, : flat.shape[1]] = flat
    return wide.tobytes(), wide.shape[1]


def luma(bgr: np.ndarray) -> np.ndarray:
    """ITU-R BT.601, the weights that cvtColor documents."""
    return bgr[..., 2] * 0.299 + bgr[..., 1] * 0.587 + bgr[..., 0] * 0.114


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize(
    ("encoding", "channels"),
    [("bgr8", [0, 1, 2]), ("rgb8", [2, 1, 0]), ("bgra8", [0, 1, 2, 0]), ("rgba8", [2, 1, 0, 0])],
)
def test_colour_becomes_bt601_luma_whatever_the_order_and_padding(
    encoding: str, channels: list[int], padding: int
) -> None:
    data, step = padded(COLOUR[..., channels], padding)
    grey = grey_from_raw(data, encoding=encoding, width=8, height=6, step=step)
    assert grey.shape == (6, 8) and grey.dtype == np.uint8
    assert np.abs(grey - luma(COLOUR.astype(float))).max() <= 1.0


@pytest.mark.parametrize("padding", [0, 3])
def test_mono8_is_kept_bit_for_bit(padding: int) -> None:
    data, step = padded(COLOUR[..., 0], padding)
    grey = grey_from_raw(data, encoding="mono8", width=8, height=6, step=step)
    assert np.array_equal(grey, COLOUR[..., 0])


@pytest.mark.parametrize("big", [False, True])
def test_mono16_is_scaled_to_8_bits_in_both_byte_orders(big: bool) -> None:
    values = RNG.integers(0, 65536, size=(4, 6)).astype(">u2" if big else "<u2")
    data, step = padded(values.view(np.uint8), 4)
    grey = grey_from_raw(data, encoding="mono16", width=6, height=4, step=step, is_bigendian=big)
    assert np.array_equal(grey, np.rint(values.astype(float) * 255.0 / 65535.0))


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    ("encoding", "channels"),
    [("bgr16", [0, 1, 2]), ("rgb16", [2, 1, 0]), ("bgra16", [0, 1, 2, 0]), ("16UC3", [0, 1, 2])],
)
def test_16_bit_colour_becomes_bt601_luma_in_both_byte_orders(
    encoding: str, channels: list[int], big: bool, padding: int
) -> None:
    bgr = RNG.integers(0, 65536, size=(6, 8, 3))
    values = np.ascontiguousarray(bgr[..., channels], dtype=">u2" if big else "<u2")
    data, step = padded(values.view(np.uint8), padding)
    grey = grey_from_raw(data, encoding=encoding, width=8, height=6, step=step, is_bigendian=big)
    assert np.abs(grey - luma(bgr.astype(float)) * 255.0 / 65535.0).max() <= 1.0


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize(("encoding", "planes"), [("nv12", 1.5), ("nv21", 1.5), ("nv24", 3.0)])
def test_planar_yuv_gives_its_first_plane(encoding: str, planes: float, padding: int) -> None:
    y_plane = RNG.integers(0, 256, size=(6, 8), dtype=np.uint8)
    first, step = padded(y_plane, padding)
    data = first + bytes(int((planes - 1) * len(first)))
    grey = grey_from_raw(data, encoding=encoding, width=8, height=6, step=step)
    assert np.array_equal(grey, y_plane)
    if encoding == "nv12" and not padding:
        stacked = np.frombuffer(data, np.uint8).reshape(9, 8)
        assert np.array_equal(grey, cv2.cvtColor(stacked, cv2.COLOR_YUV2GRAY_NV12))


def test_planar_yuv_whose_step_counts_all_planes() -> None:
    y_plane = RNG.integers(0, 256, size=(6, 8), dtype=np.uint8)
    data = y_plane.tobytes() + bytes(24)
    assert np.array_equal(grey_from_raw(data, encoding="nv21", width=8, height=6, step=12), y_plane)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_a_bayer_image_of_one_colour_has_that_colours_luma(pattern: str, bits: int) -> None:
    red, green, blue = 200, 120, 40
    tile = np.array([{"r": red, "g": green, "b": blue}[c] for c in pattern], dtype=np.uint8)
    mosaic = np.tile(tile.reshape(2, 2), (8, 8))
    if bits == 16:
        mosaic = mosaic.astype("<u2") * 257  # 65535 / 255
    data = mosaic.tobytes()
    grey = grey_from_raw(
        data, encoding=f"bayer_{pattern}{bits}", width=16, height=16, step=2 * bits
    )
    expected = luma(np.array([blue, green, red], dtype=float))
    assert np.abs(grey[2:-2, 2:-2] - expected).max() <= 1.0


@pytest.mark.parametrize(("encoding", "first"), [("yuv422", 1), ("yuv422_yuy2", 0)])
def test_yuv422_gives_its_own_luma(encoding: str, first: int) -> None:
    packed = RNG.integers(0, 256, size=(4, 6, 2), dtype=np.uint8)
    grey = grey_from_raw(packed.tobytes(), encoding=encoding, width=6, height=4, step=12)
    assert np.array_equal(grey, packed[..., first])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encoding": "64FC9"}, "unknown image encoding '64FC9'"),
        ({"step": 7}, "mono8 image: step of 7 bytes for rows of 8"),
        ({"height": 7}, "mono8 image: 48 bytes of image data"),
        ({"width": 0}, "mono8 image of 0x6 pixels"),
        ({"encoding": "nv12"}, "nv12 image: 48 bytes of image data, 72 expected"),
        ({"encoding": "bayer_rggb16"}, "bayer_rggb16 image: step of 8 bytes for rows of 16"),
        ({"width": MAX_PIXELS, "height": 2, "step": 2**31}, "pixels"),
    ],
)
def test_an_impossible_layout_is_refused_with_its_reason(
    changes: dict[str, object], says: str
) -> None:
    layout: dict[str, object] = {"encoding": "mono8", "width": 8, "height": 6, "step": 8}
    with pytest.raises(ValueError, match=says):
        grey_from_raw(bytes(48), **(layout | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_result_never_aliases_the_message(encoding: str) -> None:
    data = bytearray(16 * 16 * 8)
    grey = grey_from_raw(data, encoding=encoding, width=16, height=16, step=128)
    before = grey.copy()
    data[:] = b"\xff" * len(data)
    assert np.array_equal(grey, before)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tiff", ".webp"])
def test_compressed_images_decode_as_opencv_does(suffix: str) -> None:
    encoded = cv2.imencode(suffix, COLOUR)[1].tobytes()
    expected = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_GRAYSCALE)
    grey = grey_from_compressed(encoded)
    assert grey is not None and np.array_equal(grey, expected)


# Hostile images: what the header walk reads must be what libjpeg reads, and bound its work.


def jpeg(width: int = 32, height: int = 16, *, progressive: bool = False) -> bytes:
    image = RNG.integers(0, 256, (height, width), dtype=np.uint8)
    options = [cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive)]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def enlarged(data: bytes) -> bytes:
    """The same JPEG with 32000 x 32000 pixels in its frame's header."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + (32000).to_bytes(2, "big") * 2 + data[at + 4 :]


def hidden_behind(marker: bytes) -> bytes:
    """A JPEG of 32000 x 32000 whose own header hides behind a segment that libjpeg skips.

    A walk that takes the two bytes after `marker` for a length jumps over the true frame header to
    a decoy of 16 x 16 at the end, which libjpeg never reaches.
    """
    true = enlarged(jpeg())[2:]
    decoy = b"\xff\xc0\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00\xff\xd9"
    return b"\xff\xd8" + marker + (2 + len(true)).to_bytes(2, "big") + true + decoy


@pytest.mark.parametrize("marker", [b"\xff\x00", b"\xff\x02", b"\x00\x00", b"\xff\xd8"])
def test_a_size_that_hides_from_the_header_walk_is_refused(marker: bytes) -> None:
    assert read_header(hidden_behind(marker)) is None
    assert grey_from_compressed(hidden_behind(marker)) is None


def test_two_frames_are_refused() -> None:
    data = jpeg()
    at = data.index(b"\xff\xc0")
    frame = data[at : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")]
    assert read_header(data) is not None
    assert read_header(data[:at] + frame + data[at:]) is None


def test_opencv_itself_refuses_what_is_too_large() -> None:
    """Its limits are read when it is loaded: in a process that imports this package first."""
    code = (
        "import sys, kbf_localization, cv2, numpy as np\n"
        "data = np.frombuffer(sys.stdin.buffer.read(), np.uint8)\n"
        "try: image = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)\n"
        "except cv2.error as error: image = None\n"
        "print(None if image is None else image.shape)"
    )
    for data, says in ((jpeg(), "(16, 32)"), (enlarged(jpeg()), "None")):
        done = subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, check=True
        )
        assert done.stdout.decode().strip() == says


def test_scans_without_end_are_refused_and_usual_ones_are_not() -> None:
    data = jpeg(640, 480, progressive=True)
    header = read_header(data)
    assert header is not None and header.work > 640 * 480 and header.is_bounded
    last = data.rindex(b"\xff\xda")
    bomb = data[:last] + 200 * data[last:-2] + data[-2:]
    assert read_header(bomb) is None
    assert grey_from_compressed(bomb) is None


def test_scans_of_large_images_are_limited_by_their_pixels() -> None:
    data = jpeg(640, 480, progressive=True)
    at = data.index(b"\xff\xc2") + 5
    large = data[:at] + (7000).to_bytes(2, "big") * 2 + data[at + 4 :]
    header = read_header(large)
    assert header is not None and not header.is_bounded


def test_a_tiff_with_enormous_tiles_is_refused() -> None:
    def entry(tag: int, value: int) -> bytes:
        return struct.pack("<HHII", tag, 4, 1, value)

    tags = entry(256, 16) + entry(257, 16) + entry(322, 32768) + entry(323, 32768)
    data = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 4) + tags + bytes(4)
    header = read_header(data)
    assert header is not None and not header.is_bounded


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(struct.pack("<HHIi", 322, 9, 1, 16384), id="tiles with a sign"),
        pytest.param(struct.pack("<HHII", 322, 4, 2, 8), id="two numbers"),
        pytest.param(struct.pack("<HHII", 259, 3, 1, 7), id="JPEG within"),
    ],
)
def test_a_tiff_that_libtiff_may_read_otherwise_is_refused(entry: bytes) -> None:
    tags = struct.pack("<HHII", 256, 4, 1, 16) + struct.pack("<HHII", 257, 4, 1, 16)
    start = b"II*\0" + struct.pack("<I", 8)
    assert read_header(start + struct.pack("<H", 2) + tags + bytes(4)) is not None
    assert read_header(start + struct.pack("<H", 3) + tags + entry + bytes(4)) is None


def png_with(*chunks: tuple[bytes, bytes]) -> bytes:
    """A small PNG with further chunks behind its header."""
    plain = cv2.imencode(".png", np.full((16, 32), 7, np.uint8))[1].tobytes()
    more = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return plain[:33] + more + plain[33:]


def test_a_png_whose_texts_unpack_to_much_is_refused_and_one_with_a_few_is_not() -> None:
    """A text of 8 kB unpacks to 8 MB, 30 ms of work: a thousand of them are half a minute."""
    text = (b"zTXt", b"a\0\0" + zlib.compress(bytes(100)))
    assert grey_from_compressed(png_with(text, text)) is not None
    assert read_header(png_with(*[text] * 9)) is None


@pytest.mark.parametrize("kind", [b"IHDR", b"acTL", b"fcTL"])
def test_a_png_with_a_second_header_or_frames_is_refused(kind: bytes) -> None:
    data = struct.pack(">II", 30000, 30000) + bytes(18)
    assert read_header(png_with((kind, data))) is None


def test_headers_of_endless_pieces_are_refused() -> None:
    """Each piece costs the walk some time, and a file may have millions."""
    data = jpeg()
    assert read_header(data[:2] + 100 * b"\xff\xfe\0\2" + 100 * b"\xff" + data[2:]) is not None
    assert read_header(data[:2] + 30_000 * b"\xff\xfe\0\2" + data[2:]) is None
    assert read_header(data[:2] + 30_000 * b"\xff" + data[2:]) is None
    assert read_header(png_with(*[(b"tEXt", b"a\0b")] * 30_000)) is None


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tiff", ".webp"])
def test_sizes_are_read_without_decoding(suffix: str) -> None:
    image = RNG.integers(0, 256, (37, 91, 3), dtype=np.uint8)
    for options in ([], [cv2.IMWRITE_WEBP_QUALITY, 50]) if suffix == ".webp" else ([],):
        header = read_header(cv2.imencode(suffix, image, options)[1].tobytes())
        assert header is not None and (header.width, header.height) == (91, 37)


PNG = png_with()


def test_a_png_with_odd_metadata_is_decoded_and_one_with_broken_pixels_is_not() -> None:
    odd = png_with((b"sRGB", b"\x09"), (b"iCCP", b"x\0\0garbage"))
    image = grey_from_compressed(odd)
    assert image is not None and (image == 7).all()
    broken = bytearray(PNG)
    broken[PNG.index(b"IDAT") + 6] ^= 0xFF
    assert grey_from_compressed(bytes(broken)) is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GIF89a....", r"unknown \(47 49 46 38\) image is damaged"),
        (b"text", r"unknown \(74 65 78 74\) image is damaged"),
        (b"", "empty image"),
        (b"\xff\xd8", "JPEG image is damaged, incomplete"),
        (b"\xff\xd8\xff\xe0\x00\x00", "JPEG image is damaged, incomplete"),
        (jpeg()[:-10], "JPEG image is damaged, incomplete"),
        (enlarged(jpeg()), "JPEG image claims 32000x32000 pixels"),
        (PNG[:16] + struct.pack(">II", 2**31 - 1, 2**31 - 1) + PNG[24:], "PNG image claims 2147"),
    ],
)
def test_a_refused_images_encoding_is_named(data: bytes, says: str) -> None:
    assert grey_from_compressed(data) is None
    assert re.match(says, why_refused(data))
