"""Image messages to grey images."""

import array

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensor_msgs.msg import CompressedImage, Image

from kbf_localization.datasets.image_decoding import ENCODINGS
from kbf_localization.ros import conversions

CHANNELS = {"bgr8": 3, "rgb8": 3, "bgra8": 4, "rgba8": 4}


def message(pixels: np.ndarray, encoding: str, padding: int = 0, big_endian: bool = False) -> Image:
    height, width = pixels.shape[:2]
    if pixels.dtype == np.uint16:
        pixels = pixels.astype(">u2" if big_endian else "<u2")
    rows = pixels.reshape(height, -1).view(np.uint8)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    result = Image(encoding=encoding, height=height, width=width, is_bigendian=int(big_endian))
    result.step = padded.shape[1]
    result.data = array.array("B", padded.tobytes())
    return result


@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("encoding", CHANNELS)
def test_colour_becomes_grey_by_the_weights_of_bt601(encoding: str, padding: int) -> None:
    random = np.random.default_rng(3)
    pixels = random.integers(0, 256, (6, 8, CHANNELS[encoding]), dtype=np.uint8)
    red, blue = (0, 2) if encoding.startswith("rgb") else (2, 0)
    expected = 0.299 * pixels[..., red] + 0.587 * pixels[..., 1] + 0.114 * pixels[..., blue]
    grey = conversions.decode(message(pixels, encoding, padding))
    assert np.abs(grey - expected).max() <= 1.0


@pytest.mark.parametrize("big_endian", [False, True])
def test_sixteen_bit_grey_is_scaled_whatever_the_byte_order(big_endian: bool) -> None:
    pixels = np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)
    grey = conversions.decode(message(pixels, "mono16", padding=4, big_endian=big_endian))
    np.testing.assert_allclose(grey, pixels / 257.0, atol=0.5)


@pytest.mark.parametrize("encoding", ["yuv422", "uyvy", "yuv422_yuy2", "yuyv"])
def test_yuv_gives_its_luminance(encoding: str) -> None:
    luminance = np.arange(48, dtype=np.uint8).reshape(6, 8)
    pixels = np.full((6, 8, 2), 128, dtype=np.uint8)
    pixels[..., 1 if encoding in ("yuv422", "uyvy") else 0] = luminance
    np.testing.assert_array_equal(conversions.decode(message(pixels, encoding)), luminance)


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_of_a_plain_colour_gives_its_grey(pattern: str) -> None:
    colour = {"r": 200, "g": 120, "b": 40}
    cell = np.array([colour[letter] for letter in pattern], dtype=np.uint8).reshape(2, 2)
    grey = conversions.decode(message(np.tile(cell, (8, 8)), f"bayer_{pattern}8"))
    expected = 0.299 * 200 + 0.587 * 120 + 0.114 * 40
    np.testing.assert_allclose(grey[2:-2, 2:-2], expected, atol=1.5)


def test_jpeg_and_png_are_decoded() -> None:
    pixels = np.tile(np.arange(64, dtype=np.uint8) * 3, (48, 1))
    for extension in (".jpg", ".png"):
        data = cv2.imencode(extension, pixels)[1].tobytes()
        grey = conversions.decode(CompressedImage(format=extension, data=array.array("B", data)))
        np.testing.assert_allclose(grey, pixels, atol=3)


def test_bomb_is_refused_before_it_is_decoded() -> None:
    data = bytearray(cv2.imencode(".png", np.zeros((8, 8), np.uint8))[1].tobytes())
    data[16:24] = (60000).to_bytes(4, "big") * 2
    with pytest.raises(ValueError, match="image claims 6[05]000x6[05]000 pixels"):
        conversions.decode(CompressedImage(format="png", data=array.array("B", data)))
    data = bytearray(cv2.imencode(".jpg", np.zeros((8, 8), np.uint8))[1].tobytes())
    start = data.index(b"\xff\xc0")
    data[start + 5 : start + 9] = (65000).to_bytes(2, "big") * 2
    with pytest.raises(ValueError, match="image claims 6[05]000x6[05]000 pixels"):
        conversions.decode(CompressedImage(format="jpeg", data=array.array("B", data)))


@settings(max_examples=300, deadline=None)
@given(
    encoding=st.sampled_from([*ENCODINGS, "32FC1", "", "jpeg"]),
    width=st.integers(0, 2**32 - 1) | st.integers(0, 9),
    height=st.integers(0, 2**32 - 1) | st.integers(0, 9),
    step=st.integers(0, 2**32 - 1) | st.integers(0, 40),
    big_endian=st.integers(0, 255),
    data=st.binary(max_size=400),
)
def test_any_raw_message_gives_an_image_of_its_size_or_a_reason(
    encoding: str, width: int, height: int, step: int, big_endian: int, data: bytes
) -> None:
    hostile = Image(
        encoding=encoding, width=width, height=height, step=step, is_bigendian=big_endian
    )
    hostile.data = array.array("B", data)
    try:
        grey = conversions.decode(hostile)
    except ValueError:
        return
    assert grey.shape == (height, width)
    assert grey.dtype == np.uint8


JPEG = cv2.imencode(".jpg", np.random.default_rng(1).integers(0, 255, (32, 48)).astype("u1"))[1]


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=200)
    | st.tuples(st.integers(0, len(JPEG) - 1), st.integers(0, 255)).map(
        lambda change: bytes([*JPEG[: change[0]], change[1], *JPEG[change[0] + 1 :]])
    )
    | st.integers(0, len(JPEG)).map(lambda length: JPEG[:length].tobytes())
)
def test_any_compressed_bytes_give_an_image_or_a_reason(data: bytes) -> None:
    try:
        grey = conversions.decode(CompressedImage(format="jpeg", data=array.array("B", data)))
    except ValueError:
        return
    assert grey.ndim == 2
    assert grey.dtype == np.uint8


@pytest.mark.skipif(conversions.CvBridge is None, reason="cv_bridge is not installed")
@pytest.mark.parametrize("encoding", ["mono8", "mono16", *CHANNELS, "bayer_rggb8", "bayer_gbrg8"])
def test_own_decoder_agrees_with_cv_bridge(encoding: str) -> None:
    random = np.random.default_rng(5)
    if encoding == "mono16":
        pixels = random.integers(0, 65536, (24, 32), dtype=np.uint16)
    else:
        channels = CHANNELS.get(encoding, 1)
        pixels = random.integers(0, 256, (24, 32, channels), dtype=np.uint8)
    padded = message(pixels, encoding, padding=6)
    own, theirs = conversions.decode(padded), conversions.decode_by_cv_bridge(padded)
    np.testing.assert_allclose(own, theirs, atol=1)
