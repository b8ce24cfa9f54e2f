"""What an image goes through while tracking, timed by pytest-benchmark to compare two versions.

`pytest benchmarks --benchmark-save before`, then `--benchmark-compare`. Ratios against named
references are measured by `kbf bench`.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kbf_localization.embeddings import block_posterior_weights
from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import ImageDescriber
from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import Vocabulary

SETTINGS = DescriberSettings()


@pytest.fixture(scope="module")
def image() -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (60, 80)).astype(np.uint8)
    return np.kron(coarse, np.ones((8, 8), np.uint8))


@pytest.fixture(scope="module")
def histograms() -> NDArray[np.uint8]:
    return np.random.default_rng(1).poisson(2.0, (1000, SETTINGS.bins)).astype(np.uint8)


def test_dense_sift(benchmark: Any, image: NDArray[np.uint8]) -> None:
    benchmark(dense_sift, image, SETTINGS)


def test_image_to_pyramid(benchmark: Any, image: NDArray[np.uint8]) -> None:
    descriptors = dense_sift(image, SETTINGS)
    rows = np.random.default_rng(2).choice(len(descriptors), SETTINGS.words, replace=False)
    describer = ImageDescriber(Vocabulary(descriptors[rows]), SETTINGS)
    benchmark(describer.describe, image)


def test_similarities_with_a_thousand_images(benchmark: Any, histograms: NDArray[np.uint8]) -> None:
    kernel = PyramidKernel(SETTINGS)
    known = kernel.self_similarities(histograms)
    benchmark(kernel.similarities, histograms[0], histograms, known)


def test_bayes_update_of_two_hundred_poses(benchmark: Any) -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(200, 3))
    gram = np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=-1))
    prior = np.full(200, 1.0 / 200)
    benchmark(block_posterior_weights, prior, gram, gram[0], 1e-4)
