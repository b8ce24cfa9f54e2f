"""Words are cluster centres, the same for the same seed."""

import numpy as np
import pytest

from kbf_localization.vision.visual_words import Vocabulary, learn_vocabulary


@pytest.fixture
def clusters() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.uniform(-10, 10, (6, 128))
    points = np.repeat(centres, 50, axis=0) + rng.normal(0, 0.1, (300, 128))
    return centres, points.astype(np.float32)


def test_words_are_the_means_of_well_separated_clusters(
    clusters: tuple[np.ndarray, np.ndarray],
) -> None:
    _, points = clusters
    means = points.reshape(6, 50, 128).mean(axis=1)
    words = learn_vocabulary(points, 6, seed=2).words
    order = Vocabulary(words).assign(means.astype(np.float32))
    assert sorted(order) == list(range(6))
    np.testing.assert_allclose(words[order], means, atol=1e-4)


def test_a_descriptor_gets_its_nearest_word() -> None:
    rng = np.random.default_rng(1)
    words = rng.normal(size=(20, 128)).astype(np.float32)
    descriptors = rng.normal(size=(100, 128)).astype(np.float32)
    distances = np.linalg.norm(descriptors[:, None] - words, axis=2)
    np.testing.assert_array_equal(Vocabulary(words).assign(descriptors), distances.argmin(axis=1))


def test_the_same_seed_gives_the_same_words(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    _, points = clusters
    first, second = (learn_vocabulary(points, 10, seed=5).words for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_more_words_than_different_descriptors_are_finite() -> None:
    words = learn_vocabulary(np.zeros((5, 128), dtype=np.float32), 8).words
    assert words.shape == (8, 128)
    assert np.isfinite(words).all()


def test_no_descriptors_are_refused() -> None:
    with pytest.raises(ValueError, match="descriptors"):
        learn_vocabulary(np.empty((0, 128), dtype=np.float32), 8)
