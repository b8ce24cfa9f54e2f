"""Grey images from every pixel layout: padded rows, big-endian values, Bayer patterns, bombs."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.image_messages import (
    ENCODINGS,
    MAX_PIXELS,
    grey_from_compressed,
    grey_from_raw,
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


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_a_bayer_image_of_one_colour_has_that_colours_luma(pattern: str) -> None:
    red, green, blue = 200, 120, 40
    tile = np.array([{"r": red, "g": green, "b": blue}[c] for c in pattern], dtype=np.uint8)
    mosaic = np.tile(tile.reshape(2, 2), (8, 8))
    grey = grey_from_raw(
        mosaic.tobytes(), encoding=f"bayer_{pattern}8", width=16, height=16, step=16
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
        ({"step": 7}, "step of 7 bytes for rows of 8"),
        ({"height": 7}, "48 bytes of image data"),
        ({"width": 0}, "image of 0x6 pixels"),
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
    data = bytearray(16 * 16 * 4)
    grey = grey_from_raw(data, encoding=encoding, width=16, height=16, step=64)
    before = grey.copy()
    data[:] = b"\xff" * len(data)
    assert np.array_equal(grey, before)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_compressed_images_decode_as_opencv_does(suffix: str) -> None:
    encoded = cv2.imencode(suffix, COLOUR)[1].tobytes()
    expected = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_GRAYSCALE)
    grey = grey_from_compressed(encoded)
    assert grey is not None and np.array_equal(grey, expected)


def test_an_image_that_claims_enormous_dimensions_is_refused_before_decoding() -> None:
    jpeg = bytearray(cv2.imencode(".jpg", COLOUR)[1].tobytes())
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = b"\xff\xff\xff\xff"
    png = bytearray(cv2.imencode(".png", COLOUR)[1].tobytes())
    png[16:24] = (2**31 - 1).to_bytes(4, "big") * 2
    assert grey_from_compressed(bytes(jpeg)) is None
    assert grey_from_compressed(bytes(png)) is None


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00\x00", b"text", b"GIF89a"]
)
def test_what_is_no_image_gives_none(data: bytes) -> None:
    assert grey_from_compressed(data) is None
