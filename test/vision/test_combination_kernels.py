"""Kernels of vectors, and kernels made of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kbf_localization.errors import DescriberError, ParameterError
from kbf_localization.vision.combination import Product, WeightedSum
from kbf_localization.vision.dense_sift import DescriberSettings, dense_sift
from kbf_localization.vision.describer import specification
from kbf_localization.vision.recipe import Recipe
from kbf_localization.vision.registry import make_describer
from kbf_localization.vision.vectors import VectorDescriber, VectorGallery, to_rows
from kbf_localization.vision.visual_words import PyramidDescriber, learn_vocabulary

LAYOUT = DescriberSettings(image_width=96, image_height=80, words=12)


class Columns(VectorDescriber):
    """The mean of each of eight stripes, less the image's."""

    name, version, length = "columns", 1, 8

    def vectors(self, images: Sequence[np.ndarray]) -> np.ndarray:
        means = np.stack(
            [image.reshape(-1, 8, image.shape[1] // 8).mean((0, 2)) for image in images]
        )
        return (means - means.mean(axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    blocks = generator.integers(0, 256, (30, 10, 12), dtype=np.uint8)
    some = [np.kron(block, np.ones((8, 8), np.uint8)) for block in blocks]
    return [*some, *some[:6]]  # repeated images, which make a Gram matrix singular


@pytest.fixture(scope="module")
def pyramid(images: list[np.ndarray]) -> PyramidDescriber:
    return PyramidDescriber(learn_vocabulary(dense_sift(images[0], LAYOUT), 12), LAYOUT)


def gram_of(describer, images) -> np.ndarray:
    features = np.stack([item.features for item in describer.describe_all(images)])
    return describer.kernel(describer.gallery(features).compare_rows(np.arange(len(images))))


COSINE = Columns()
COSINE.image_kernel = "cosine"


@pytest.mark.parametrize("make", [
    lambda pyramid: Columns(),
    lambda pyramid: COSINE,
    lambda pyramid: Product([pyramid, Columns()]),
    lambda pyramid: Product([pyramid, COSINE]),
    lambda pyramid: WeightedSum([pyramid, Columns()]),
    lambda pyramid: WeightedSum([pyramid, COSINE], [0.2, 0.8]),
    lambda pyramid: WeightedSum([Product([pyramid, Columns()]), COSINE], [1.0, 3.0]),
])  # fmt: skip
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("power", [1, 12])
def test_the_kernel_is_positive_definite_and_one_for_an_image_with_itself(
    make, scale, power, images, pyramid
) -> None:
    describer = make(pyramid)
    describer = describer.with_scales([scale * item for item in describer.scales])
    gram = gram_of(describer, images)
    np.testing.assert_allclose(np.diag(gram), 1.0, atol=1e-12)
    np.testing.assert_allclose(gram, gram.T, atol=1e-12)
    assert (gram >= 0.0).all()
    assert np.linalg.eigvalsh(gram**power).min() > -1e-10


def test_combinations_are_of_what_the_parts_give(images, pyramid) -> None:
    columns = Columns()
    a, b = gram_of(pyramid, images), gram_of(columns, images)
    np.testing.assert_allclose(gram_of(Product([pyramid, columns]), images), a * b, rtol=1e-6)
    weighted = WeightedSum([columns, pyramid], [1.0, 3.0])
    np.testing.assert_allclose(gram_of(weighted, images), 0.25 * b + 0.75 * a, rtol=1e-6)


def test_a_query_is_compared_as_rows_are(images, pyramid) -> None:
    describer = Product([pyramid, Columns()])
    described = describer.describe_all(images)
    features = np.stack([item.features for item in described])
    gallery, rows = describer.gallery(features), np.array([7, 2, 30])
    expected = gram_of(describer, images)
    np.testing.assert_allclose(
        describer.kernel(gallery.compare(features[3])), expected[3], rtol=1e-5
    )
    np.testing.assert_allclose(
        describer.kernel(gallery.compare(features[3], rows)), expected[3, rows], rtol=1e-5
    )
    assert gallery.coarse_scores(features[3]).shape == (2, len(images))
    np.testing.assert_array_equal(described[4].words, pyramid.describe(images[4]).words)


def test_eight_bits_keep_the_angle() -> None:
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(3000, 256)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = to_rows(vectors)
    found = VectorGallery(rows).compare(rows[5])[0]
    np.testing.assert_allclose(found, unit @ unit[5], atol=3e-3)
    np.testing.assert_array_equal(found, VectorGallery(rows).compare(to_rows(7.0 * vectors)[5])[0])


def test_a_vector_of_zeros_has_a_direction_still() -> None:
    rows = to_rows(np.zeros((2, 5), np.float32))
    np.testing.assert_allclose(VectorGallery(rows).compare(rows[0]), 1.0, rtol=1e-6)


def test_the_learned_weights_are_scales(images, pyramid) -> None:
    free = WeightedSum([pyramid, Columns()]).with_scales([0.5, 3.0])
    np.testing.assert_allclose(free.weights, [0.25, 0.75])
    assert free.scales == (0.5, 3.0)
    assert WeightedSum([pyramid, Columns()], [1, 1]).scales == Columns().scales


def test_recipes(pyramid) -> None:
    known = {"columns": Columns()}
    made = {
        text: Recipe(text, known).make(lambda: pyramid)
        for text in ("sift", "sift*columns", "sift + columns", "0.3*sift+0.7*columns")
    }
    assert made["sift"] is pyramid
    assert isinstance(made["sift*columns"], Product) and made["sift*columns"].pyramid is pyramid
    assert made["sift + columns"].fixed is None
    np.testing.assert_allclose(made["0.3*sift+0.7*columns"].weights, [0.3, 0.7])
    for text in ("", "sift*", "surf", "-1*sift+2*columns"):
        with pytest.raises(ParameterError):
            Recipe(text, known)
    for text in ("0.3*sift+columns", "sift*sift"):
        with pytest.raises((ParameterError, DescriberError)):
            Recipe(text, known).make(lambda: pyramid)


def test_a_specification_of_what_is_not_installed_or_broken_is_refused(pyramid) -> None:
    content = specification(Product([pyramid, Columns()]))
    with pytest.raises(DescriberError, match="no describer is called 'columns'"):
        make_describer(content, pyramid)
    for broken in (
        {},
        {**content, "settings": {}},
        {**content, "version": 9, "settings": {"parts": []}},
    ):
        with pytest.raises(ValueError, match="describer|combination"):
            make_describer(broken, pyramid)
