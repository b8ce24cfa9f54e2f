"""Pyramid counts against counting patch by patch, their kernel against its definition."""

import numpy as np
import pytest

from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.visual_words import PyramidGallery, pyramid_histogram

SETTINGS = DescriberSettings()
SMALL = DescriberSettings(image_width=96, image_height=80, words=7)


def test_counts_are_those_of_the_words_in_each_region() -> None:
    words = np.random.default_rng(0).integers(0, 7, SMALL.patches)
    rows, columns = SMALL.grid_shape
    expected = []
    for side in (1, 2, 4):
        counts = np.zeros((side, side, 7), dtype=int)
        for patch, word in enumerate(words):
            # A coarse region is four fine ones, so a patch's fine region decides.
            fine_row = (patch // columns) * 4 // rows
            fine_column = (patch % columns) * 4 // columns
            counts[fine_row * side // 4, fine_column * side // 4, word] += 1
        expected.append(counts.ravel())
    np.testing.assert_array_equal(pyramid_histogram(words, SMALL), np.concatenate(expected))
    assert SMALL.level_divisors() == [1, 1, 1]


def test_default_histograms_have_4200_bins_with_the_whole_image_first() -> None:
    assert SETTINGS.bins == 4200
    assert SETTINGS.patches == 4661
    words = np.random.default_rng(0).integers(0, 200, SETTINGS.patches)
    histogram = pyramid_histogram(words, SETTINGS)
    divisor = SETTINGS.level_divisors()[0]
    counts = np.bincount(words, minlength=200)
    np.testing.assert_array_equal(histogram[:200], (counts + divisor // 2) // divisor)
    assert histogram.dtype == np.uint8


def test_a_word_that_fills_the_image_saturates() -> None:
    histogram = pyramid_histogram(np.zeros(SETTINGS.patches, dtype=np.intp), SETTINGS)
    regions = histogram.reshape(21, 200)
    np.testing.assert_array_equal(regions[:, 0], 255)
    assert not regions[:, 1:].any()


def some_histograms(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(0.5, 4.0, (count, SETTINGS.bins))).clip(0, 255).astype(np.uint8)


def similarities(query: np.ndarray, histograms: np.ndarray) -> np.ndarray:
    return PyramidGallery(SETTINGS, histograms).compare(query)[0]


def gram(histograms: np.ndarray) -> np.ndarray:
    return PyramidGallery(SETTINGS, histograms).compare_rows(np.arange(len(histograms)))[0]


def kernel_by_definition(a: np.ndarray, b: np.ndarray) -> float:
    """Σ over levels of weight times intersection, over the roots of the same with themselves."""

    def intersection(x: np.ndarray, y: np.ndarray) -> float:
        total = 0.0
        levels = zip(SETTINGS.level_columns(), (0.25, 0.25, 0.5), strict=True)
        for (columns, weight), divisor in zip(levels, SETTINGS.level_divisors(), strict=True):
            smaller = np.minimum(x[columns], y[columns]).astype(int)
            total += weight * divisor * smaller.sum()
        return total

    return intersection(a, b) / np.sqrt(intersection(a, a) * intersection(b, b))


def test_similarities_are_the_definition() -> None:
    histograms = some_histograms(70)
    query = some_histograms(1, seed=9)[0]
    expected = [kernel_by_definition(query, histogram) for histogram in histograms]
    np.testing.assert_allclose(similarities(query, histograms), expected, rtol=1e-12)


@pytest.mark.parametrize("power", [1, 8, 16])
@pytest.mark.parametrize("saturated", [False, True])
def test_kernel_matrix_is_positive_semi_definite(power: int, saturated: bool) -> None:
    histograms = some_histograms(120)
    histograms[100:] = histograms[:20]
    if saturated:
        histograms[::2, ::200] = 255
    matrix = gram(histograms) ** power
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(np.diag(matrix), 1.0, rtol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > -1e-10


def test_rows_are_compared_with_rows_as_queries_are() -> None:
    gallery = PyramidGallery(SETTINGS, some_histograms(8))
    rows, columns = np.array([6, 1, 3]), np.array([0, 3, 7, 6])
    found = gallery.compare_rows(rows, columns)[0]
    for row, expected in zip(rows, found, strict=True):
        query = some_histograms(8)[row]
        np.testing.assert_array_equal(gallery.compare(query, columns)[0], expected)


def test_coarse_scores_are_the_kernel_of_the_first_200_bins() -> None:
    """Of more rows than are compared at a time."""
    histograms = np.zeros((2300, SETTINGS.bins), dtype=np.uint8)
    top = np.random.default_rng(1).integers(1, 60, (2300, 200), dtype=np.uint8)
    histograms[:, :200] = top
    query = some_histograms(1)[0]
    own = query[:200].astype(float)
    expected = np.minimum(top, own).sum(axis=1) / np.sqrt(own.sum() * top.sum(axis=1))
    found = PyramidGallery(SETTINGS, histograms).coarse_scores(query)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_no_rows_give_no_similarities() -> None:
    none = np.empty((0, SETTINGS.bins), np.uint8)
    assert similarities(some_histograms(1)[0], none).shape == (0,)
    assert gram(none).shape == (0, 0)


def test_an_empty_histogram_is_similar_to_nothing() -> None:
    empty = np.zeros(SETTINGS.bins, dtype=np.uint8)
    np.testing.assert_array_equal(similarities(empty, some_histograms(3)), 0.0)
