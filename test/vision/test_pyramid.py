"""Pyramid counts against counting patch by patch."""

import numpy as np

from kbf_localization.vision.pyramid import pyramid_histogram
from kbf_localization.vision.settings import DescriberSettings

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
    settings = DescriberSettings()
    assert settings.bins == 4200
    assert settings.patches == 4661
    words = np.random.default_rng(0).integers(0, 200, settings.patches)
    histogram = pyramid_histogram(words, settings)
    divisor = settings.level_divisors()[0]
    counts = np.bincount(words, minlength=200)
    np.testing.assert_array_equal(histogram[:200], (counts + divisor // 2) // divisor)
    assert histogram.dtype == np.uint8


def test_a_word_that_fills_the_image_saturates() -> None:
    settings = DescriberSettings()
    histogram = pyramid_histogram(np.zeros(settings.patches, dtype=np.intp), settings)
    regions = histogram.reshape(21, 200)
    np.testing.assert_array_equal(regions[:, 0], 255)
    assert not regions[:, 1:].any()
