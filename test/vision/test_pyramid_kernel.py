"""The kernel against its definition, and its positive definiteness."""

import numpy as np
import pytest

from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings

SETTINGS = DescriberSettings()


def some_histograms(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(0.5, 4.0, (count, SETTINGS.bins))).clip(0, 255).astype(np.uint8)


def kernel_by_definition(a: np.ndarray, b: np.ndarray) -> float:
    """Σ over levels of weight times intersection, over the roots of the same with themselves."""

    def intersection(x: np.ndarray, y: np.ndarray) -> float:
        total = 0.0
        levels = zip(SETTINGS.level_columns(), (0.25, 0.25, 0.5), strict=True)
        for (columns, weight), divisor in zip(levels, SETTINGS.level_divisors(), strict=True):
            smaller = [min(int(p), int(q)) for p, q in zip(x[columns], y[columns], strict=True)]
            total += weight * divisor * sum(smaller)
        return total

    return intersection(a, b) / np.sqrt(intersection(a, a) * intersection(b, b))


def test_similarities_are_the_definition() -> None:
    histograms = some_histograms(70)
    query = some_histograms(1, seed=9)[0]
    expected = [kernel_by_definition(query, histogram) for histogram in histograms]
    np.testing.assert_allclose(
        PyramidKernel(SETTINGS).similarities(query, histograms), expected, rtol=1e-12
    )


def test_an_image_is_wholly_similar_to_itself() -> None:
    histograms = some_histograms(10)
    np.testing.assert_allclose(np.diag(PyramidKernel(SETTINGS).gram(histograms)), 1.0, rtol=1e-12)


@pytest.mark.parametrize("power", [1, 8, 16])
def test_kernel_matrix_is_positive_semi_definite(power: int) -> None:
    histograms = some_histograms(120)
    histograms[100:] = histograms[:20]
    gram = PyramidKernel(SETTINGS).gram(histograms) ** power
    np.testing.assert_array_equal(gram, gram.T)
    assert np.linalg.eigvalsh(gram).min() > -1e-10


def test_saturated_counts_keep_it_positive_semi_definite() -> None:
    histograms = some_histograms(60)
    histograms[::2, ::200] = 255
    assert np.linalg.eigvalsh(PyramidKernel(SETTINGS).gram(histograms)).min() > -1e-10


def test_gram_of_two_sets_is_made_of_similarities() -> None:
    a, b = some_histograms(5), some_histograms(8, seed=1)
    kernel = PyramidKernel(SETTINGS)
    gram = kernel.gram(a, b)
    assert gram.shape == (5, 8)
    for row in range(5):
        np.testing.assert_array_equal(gram[row], kernel.similarities(a[row], b))


def test_known_self_similarities_change_nothing() -> None:
    kernel, histograms = PyramidKernel(SETTINGS), some_histograms(130)
    known = kernel.self_similarities(histograms)
    np.testing.assert_array_equal(
        kernel.similarities(histograms[3], histograms, known),
        kernel.similarities(histograms[3], histograms),
    )


def test_top_level_is_the_kernel_of_the_first_200_bins() -> None:
    kernel, histograms = PyramidKernel(SETTINGS), some_histograms(30)
    query = histograms[4]
    top = kernel.top_level(histograms)
    a, b = query[:200].astype(float), histograms[:, :200].astype(float)
    expected = np.minimum(a, b).sum(axis=1) / np.sqrt(a.sum() * b.sum(axis=1))
    np.testing.assert_allclose(kernel.top_level_similarities(query, top), expected, rtol=1e-12)


def test_known_sums_and_more_rows_than_fit_the_cache_change_no_first_look() -> None:
    kernel = PyramidKernel(SETTINGS)
    top = np.random.default_rng(1).integers(1, 60, (2300, SETTINGS.words), dtype=np.uint8)
    query = some_histograms(1)[0]
    own = query[: SETTINGS.words].astype(float)
    expected = np.minimum(top, own).sum(axis=1) / np.sqrt(own.sum() * top.sum(axis=1))
    for sums in (None, kernel.top_level_sums(top)):
        np.testing.assert_allclose(
            kernel.top_level_similarities(query, top, sums), expected, rtol=1e-12
        )


def test_known_self_similarities_change_no_gram_matrix() -> None:
    kernel = PyramidKernel(SETTINGS)
    a, b = some_histograms(4), some_histograms(3, seed=1)
    np.testing.assert_array_equal(kernel.gram(a, b, kernel.self_similarities(b)), kernel.gram(a, b))
    np.testing.assert_array_equal(kernel.gram(a, None, kernel.self_similarities(a)), kernel.gram(a))


def test_no_rows_give_no_similarities() -> None:
    kernel, query = PyramidKernel(SETTINGS), some_histograms(1)[0]
    assert kernel.similarities(query, np.empty((0, SETTINGS.bins), np.uint8)).shape == (0,)
    assert kernel.gram(np.empty((0, SETTINGS.bins), np.uint8)).shape == (0, 0)


def test_an_empty_histogram_is_similar_to_nothing() -> None:
    kernel = PyramidKernel(SETTINGS)
    empty = np.zeros(SETTINGS.bins, dtype=np.uint8)
    np.testing.assert_array_equal(kernel.similarities(empty, some_histograms(3)), 0.0)
