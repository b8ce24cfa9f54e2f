import cv2
import numpy as np
import pytest
from scipy.ndimage import maximum_filter, minimum_filter

from kbf_localization.vision import keypoints as keypoints_module
from kbf_localization.vision.keypoints import (
    Keypoints,
    detect_keypoints,
    mutual_matches,
    squared_distances,
    upright_sift,
)


def scene(width=320, height=240, seed=1):
    rng = np.random.default_rng(seed)
    image = np.full((height, width), 120, np.uint8)
    for _ in range(150):
        x, y, size = rng.integers(0, width), rng.integers(0, height), rng.integers(4, 30)
        cv2.rectangle(image, (x, y), (x + size, y + size), int(rng.integers(0, 255)), -1)
    return cv2.GaussianBlur(image, (0, 0), 1.0)


def test_a_shifted_image_has_shifted_keypoints():
    image = scene()
    first, second = detect_keypoints(image[:-6, :-10]), detect_keypoints(image[6:, 10:])
    rows, columns, _ = mutual_matches(squared_distances(first.descriptors, second.descriptors))
    moved = first.pixels[rows] - second.pixels[columns]
    right = np.abs(moved - [10.0, 6.0]).max(axis=1) < 0.5
    assert right.sum() > 60 and right.mean() > 0.9


def test_keypoints_of_a_large_image_are_in_its_own_pixels():
    small = scene()
    large = cv2.resize(small, (640, 480), interpolation=cv2.INTER_NEAREST)
    first, second = detect_keypoints(small), detect_keypoints(large)
    rows, columns, _ = mutual_matches(squared_distances(first.descriptors, second.descriptors))
    expected = (first.pixels[rows] + 0.5) * 2 - 0.5
    off = np.abs(expected - second.pixels[columns]).max(axis=1)
    assert np.median(off) < 0.05 and len(rows) > 100


@pytest.mark.parametrize("size", [(620, 188), (240, 320)])
def test_wide_images_and_portraits_are_halved_once_where_they_are_as_large_as_others(
    size: tuple[int, int],
) -> None:
    small = cv2.resize(scene(), size)
    large = cv2.resize(small, (2 * size[0], 2 * size[1]), interpolation=cv2.INTER_NEAREST)
    halved = upright_sift(small, 800).pixels
    assert len(halved) > 100
    np.testing.assert_array_equal(detect_keypoints(large).pixels, (halved + 0.5) * 2 - 0.5)


def test_a_blank_image_has_no_keypoints():
    for shape in ((240, 320), (1, 1), (3, 600), (17, 9)):
        found = detect_keypoints(np.full(shape, 100, np.uint8))
        assert isinstance(found, Keypoints) and len(found) == 0


def test_matches_are_opencvs_cross_check_and_ratio_test():
    rng = np.random.default_rng(2)
    first = rng.integers(0, 256, (80, 128)).astype(np.uint8)
    second = np.clip(first[rng.permutation(80)[:60]] + rng.normal(0, 60, (60, 128)), 0, 255).astype(
        np.uint8
    )
    rows, columns, ratios = mutual_matches(squared_distances(first, second), 0.9)
    crossed = cv2.BFMatcher(cv2.NORM_L2, crossCheck=True).match(first, second)
    mutual = {(match.queryIdx, match.trainIdx) for match in crossed}
    expected = {
        (near.queryIdx, near.trainIdx): near.distance / far.distance
        for near, far in cv2.BFMatcher(cv2.NORM_L2).knnMatch(first, second, k=2)
        if near.distance < 0.9 * far.distance and (near.queryIdx, near.trainIdx) in mutual
    }
    assert set(zip(rows.tolist(), columns.tolist())) == set(expected)
    for row, column, ratio in zip(rows.tolist(), columns.tolist(), ratios):
        np.testing.assert_allclose(ratio, expected[row, column], rtol=1e-4)


def test_nothing_matches_nothing():
    none = np.empty((0, 128), np.uint8)
    some = np.ones((3, 128), np.uint8)
    for first, other in ((none, some), (some, none), (some, some[:1])):
        assert len(mutual_matches(squared_distances(first, other))[0]) == 0


def test_distances_are_those_of_whole_numbers() -> None:
    """Whole numbers by int64, with the longest descriptors that bytes can make."""
    rng = np.random.default_rng(8)
    first, second = (rng.integers(0, 256, (n, 128)).astype(np.uint8) for n in (30, 20))
    first[0], first[1], second[0], second[1] = 255, 0, 255, 0
    differences = first[:, None].astype(np.int64) - second[None]
    np.testing.assert_array_equal(squared_distances(first, second), (differences**2).sum(axis=2))


@pytest.mark.parametrize("values", [4, 1000])
def test_mutual_matches_are_the_first_of_equals(values: int) -> None:
    rng = np.random.default_rng(9)
    for _ in range(30):
        distances = rng.integers(1, values, (9, 7)).astype(np.float32)
        expected = [
            (row, column)
            for row, column in enumerate(distances.argmin(axis=1))
            if distances[:, column].argmin() == row
        ]
        rows, columns, _ = mutual_matches(distances, max_ratio=1.1)
        assert list(zip(rows, columns)) == expected


def test_one_window_is_two_boxes_in_a_row() -> None:
    """To single precision, at the border too: both reflect the image there."""
    rng = np.random.default_rng(10)
    votes = rng.uniform(0, 300, (20, 30, 8)).astype(np.float32)
    window = keypoints_module._window()
    found = cv2.sepFilter2D(votes, -1, window, window)
    boxes = cv2.blur(cv2.blur(votes, (5, 5)), (5, 5))
    np.testing.assert_allclose(found, boxes, rtol=1e-5)


def test_extrema_exceed_all_neighbours_in_place_and_scale() -> None:
    rng = np.random.default_rng(11)
    planes = cv2.GaussianBlur(rng.normal(0, 9, (40, 50, 5)).astype(np.float32), (0, 0), 1.0)
    planes = np.ascontiguousarray(planes.transpose(2, 0, 1))
    first = keypoints_module._peaks(planes[1:4]) + planes[0].size
    found = set(keypoints_module._peaks_in_scale(planes, first).tolist())
    high, low = maximum_filter(planes, 3), minimum_filter(planes, 3)
    peaks = ((planes == high) & (planes >= 1.0)) | ((planes == low) & (planes <= -1.0))
    peaks[[0, 4]] = peaks[:, :4] = peaks[:, -4:] = peaks[:, :, :4] = peaks[:, :, -4:] = False
    assert found == set(np.flatnonzero(peaks).tolist()) and len(found) > 20
