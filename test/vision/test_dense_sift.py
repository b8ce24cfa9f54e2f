"""Dense SIFT against a descriptor written out pixel by pixel, and against OpenCV's."""

import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from kbf_localization.vision.dense_sift import (
    DescriberSettings,
    dense_sift,
    write_gradient_votes,
)

SETTINGS = DescriberSettings(image_width=96, image_height=80)


@pytest.fixture
def image() -> np.ndarray:
    noise = np.random.default_rng(3).uniform(size=(80, 96))
    smooth = cv2.GaussianBlur(noise, (0, 0), 2.0)
    return cv2.normalize(smooth, None, 40, 200, cv2.NORM_MINMAX).astype(np.uint8)


def descriptor_pixel_by_pixel(image: np.ndarray, left: int, top: int, flat: float) -> np.ndarray:
    """Lowe's descriptor of one 16-pixel patch, with loops over pixels and cells."""
    cells = np.zeros((4, 4, 8))
    pixels = image.astype(float)
    for y in range(1, image.shape[0] - 1):
        for x in range(1, image.shape[1] - 1):
            gx = pixels[y, x + 1] - pixels[y, x - 1]
            gy = pixels[y + 1, x] - pixels[y - 1, x]
            turns = (np.arctan2(gy, gx) / (2 * np.pi) * 8) % 8
            for row in range(4):
                for column in range(4):
                    far_x = abs(x - (left + 4 * column + 1.5)) / 4
                    far_y = abs(y - (top + 4 * row + 1.5)) / 4
                    if far_x >= 1 or far_y >= 1:
                        continue
                    vote = np.hypot(gx, gy) * (1 - far_x) * (1 - far_y)
                    low = int(turns)
                    cells[row, column, low % 8] += vote * (1 - (turns - low))
                    cells[row, column, (low + 1) % 8] += vote * (turns - low)
    offsets = np.array([-0.75, -0.25, 0.25, 0.75])
    cells *= np.exp(-0.5 * (offsets[:, None] ** 2 + offsets**2))[..., None]
    length = np.linalg.norm(cells)
    bounded = np.minimum(cells / length, 0.2).ravel()
    return bounded / np.linalg.norm(bounded) * min(1.0, length / flat)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (3, 4), (8, 10)])
def test_descriptor_is_lowes_written_out(image: np.ndarray, row: int, column: int) -> None:
    descriptors = dense_sift(image, SETTINGS).reshape(*SETTINGS.grid_shape, 128)
    flat = SETTINGS.flat_gradient * 16**2 / 128**0.5
    expected = descriptor_pixel_by_pixel(image, 8 * column, 8 * row, flat)
    np.testing.assert_allclose(descriptors[row, column], expected, atol=2e-6)


def test_descriptors_point_in_the_direction_of_opencvs(image: np.ndarray) -> None:
    rows, columns = SETTINGS.grid_shape
    keypoints = [
        cv2.KeyPoint(8.0 * column + 7.5, 8.0 * row + 7.5, 16 / 6, 0.0)
        for row in range(rows)
        for column in range(columns)
    ]
    _, reference = cv2.SIFT_create().compute(image, keypoints)
    # OpenCV counts orientations in the other direction, since its y axis points up.
    reference = reference.reshape(-1, 16, 8)[:, :, [0, 7, 6, 5, 4, 3, 2, 1]].reshape(-1, 128)
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    cosines = (dense_sift(image, SETTINGS) * reference).sum(axis=1)
    # OpenCV blurs the image first, so the two are alike and not equal.
    assert cosines.mean() > 0.9


@pytest.mark.parametrize(("gain", "offset"), [(0.5, 0), (1.0, 50), (0.5, 100), (1.2, -30)])
def test_descriptor_does_not_change_with_the_light(
    image: np.ndarray, gain: float, offset: float
) -> None:
    # Even pixel values, so that half of them are whole: the light alone changes, not the rounding.
    even = image // 2 * 2
    lit = even * gain + offset
    assert lit.min() >= 0
    assert lit.max() <= 255
    before, after = dense_sift(even, SETTINGS), dense_sift(np.rint(lit).astype(np.uint8), SETTINGS)
    rounding = 1e-5 if float(gain * 2).is_integer() else 0.05
    assert np.linalg.norm(before - after, axis=1).max() < rounding


def test_patches_of_sensor_noise_are_not_blown_up() -> None:
    noise = np.random.default_rng(0).integers(100, 102, (80, 96)).astype(np.uint8)
    plain = np.full((80, 96), 77, dtype=np.uint8)
    assert np.linalg.norm(dense_sift(noise, SETTINGS), axis=1).max() < 0.5
    assert not dense_sift(plain, SETTINGS).any()


def test_textured_patches_have_unit_length(image: np.ndarray) -> None:
    np.testing.assert_allclose(np.linalg.norm(dense_sift(image, SETTINGS), axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "height", "patch", "step"),
    [(97, 83, 16, 8), (64, 48, 8, 4), (120, 100, 12, 3), (200, 64, 16, 4), (101, 99, 20, 10)],
)
def test_any_size_gives_one_finite_descriptor_a_patch(
    width: int, height: int, patch: int, step: int
) -> None:
    settings = DescriberSettings(width, height, patch_size=patch, grid_step=step)
    noise = np.random.default_rng(1).integers(0, 256, (height, width)).astype(np.uint8)
    descriptors = dense_sift(noise, settings)
    assert descriptors.shape == (settings.patches, 128)
    assert np.isfinite(descriptors).all()
    assert (np.linalg.norm(descriptors, axis=1) < 1.0 + 1e-5).all()


def test_extreme_gradients_are_in_the_table() -> None:
    stripes = np.tile(np.array([0, 0, 255, 255], dtype=np.uint8), (80, 24))
    checks = np.kron(np.indices((20, 24)).sum(axis=0) % 2, np.ones((4, 4))).astype(np.uint8) * 255
    for image in (stripes, stripes.T[:80, :], checks):
        settings = DescriberSettings(image.shape[1], image.shape[0])
        assert np.isfinite(dense_sift(np.ascontiguousarray(image), settings)).all()


def test_a_gradient_votes_to_the_bit_by_its_distance_to_each_orientation() -> None:
    """A length's share is one less the distance round the circle, in eighths of a turn."""
    rng = np.random.default_rng(2)
    gx, gy = rng.integers(-255, 256, (2, 10_000)).astype(np.float64)
    gx[:4], gy[:4] = [-1, 0, 0, -255], [0, -1, 0, 255]
    turns = np.arctan2(gy, gx) * (8 / (2 * np.pi))
    distance = np.abs(turns[:, None] - np.arange(8)) % 8
    distance = np.minimum(distance, 8 - distance)
    expected = (np.hypot(gx, gy)[:, None] * np.maximum(0.0, 1.0 - distance)).astype(np.float32)
    # The middle pixel of 3 by 3 has this gradient.
    left, right = np.maximum(-gx, 0), np.maximum(gx, 0)
    above, below = np.maximum(-gy, 0), np.maximum(gy, 0)
    for number in range(len(gx)):
        image = np.zeros((3, 3), dtype=np.uint8)
        image[1, ::2] = left[number], right[number]
        image[::2, 1] = above[number], below[number]
        votes = np.empty((3, 3, 8), dtype=np.float32)
        write_gradient_votes(image, out=votes)
        assert np.array_equal(votes[1, 1], expected[number])


FAULTS = """
import resource
import numpy as np
from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.describer import ImageDescriber
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary

words = Vocabulary(np.random.default_rng(1).random((200, 128), dtype=np.float32))
describer = ImageDescriber(PyramidDescriber(words, DescriberSettings()))
images = np.random.default_rng(2).integers(0, 256, (12, 480, 640), dtype=np.uint8)
faults = []
for image in images:
    describer.describe(image)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print((faults[-1] - faults[3]) / 8)
"""


def test_a_further_image_takes_no_memory_from_the_system() -> None:
    """Its descriptors alone are 2.4 MB, 580 pages."""
    # Whoever sets these says how memory is kept, as Dask's nanny does for all that it starts.
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert float(done.stdout) < 100.0
