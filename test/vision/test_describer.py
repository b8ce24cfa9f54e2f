"""Images of all sizes and channels become histograms."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from kbf_localization.vision.dense_sift import DescriberSettings, dense_sift
from kbf_localization.vision.describer import (
    TINY_SIZE,
    ImageDescriber,
    reduced_size,
    show_different_views,
    tiny_image,
)
from kbf_localization.vision.visual_words import (
    PyramidDescriber,
    learn_vocabulary,
    pyramid_histogram,
)

SETTINGS = DescriberSettings(image_width=160, image_height=120, words=50)


@pytest.fixture
def image() -> np.ndarray:
    noise = np.random.default_rng(0).uniform(size=(120, 160))
    smooth = cv2.GaussianBlur(noise, (0, 0), 3.0)
    return cv2.normalize(smooth, None, 20, 220, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def describer(image: np.ndarray) -> PyramidDescriber:
    return PyramidDescriber(learn_vocabulary(dense_sift(image, SETTINGS), 50), SETTINGS)


def test_grey_and_colour_of_the_same_image_are_described_alike(
    describer: PyramidDescriber, image: np.ndarray
) -> None:
    grey = describer.describe(image)
    for channels in (1, 3, 4):
        stacked = np.repeat(image[:, :, None], channels, axis=2)
        again = describer.describe(stacked)
        np.testing.assert_array_equal(again.features, grey.features)
        np.testing.assert_array_equal(again.words, grey.words)


def test_keypoints_on_a_second_thread_are_the_same(
    describer: PyramidDescriber, image: np.ndarray
) -> None:
    image_describer = ImageDescriber(describer)
    expected, described = (
        image_describer.describe(image),
        image_describer.describe_in_parallel(image),
    )
    assert expected.keypoints is not None and described.keypoints is not None
    assert len(described.keypoints) > 10 and described.image_size == expected.image_size
    np.testing.assert_array_equal(described.keypoints.pixels, expected.keypoints.pixels)
    np.testing.assert_array_equal(described.keypoints.descriptors, expected.keypoints.descriptors)
    without = image_describer.describe_in_parallel(image, detect=False)
    assert without.keypoints is None
    for other in (described, without):
        np.testing.assert_array_equal(other.features, expected.features)
        np.testing.assert_array_equal(other.words, expected.words)


def test_an_image_of_another_size_is_resized_and_said_once(
    describer: PyramidDescriber, image: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    own = describer.describe(image).features
    assert not caplog.records
    twice = cv2.resize(image, (320, 240), interpolation=cv2.INTER_CUBIC)
    larger = describer.describe(twice).features
    describer.describe(np.zeros((240, 320), dtype=np.uint8))
    assert [record.getMessage() for record in caplog.records] == [
        "images of 320x240 are resized to the map's 160x120"
    ]
    assert larger.shape == (SETTINGS.bins,)
    assert describer.gallery(larger[None]).compare(own) > 0.8


@pytest.mark.parametrize(
    ("size", "reduced"),
    [
        ((640, 480), (640, 480)),
        ((1241, 376), (1241, 376)),
        ((1280, 720), (640, 360)),
        ((1921, 1081), (960, 540)),
        ((3840, 2160), (960, 540)),
    ],
)
def test_large_images_are_described_halved(size: tuple[int, int], reduced: tuple[int, int]) -> None:
    assert reduced_size(size) == reduced


def test_the_images_of_a_large_camera_are_halved_without_a_word(
    describer: PyramidDescriber, caplog: pytest.LogCaptureFixture
) -> None:
    layout = replace(describer.layout, image_width=640, image_height=360)
    PyramidDescriber(describer.vocabulary, layout).describe(np.zeros((720, 1280), dtype=np.uint8))
    assert not caplog.records


def test_the_grid_of_words_is_what_the_histogram_counts(
    describer: PyramidDescriber, image: np.ndarray
) -> None:
    described = describer.describe(image)
    assert described.words is not None
    # Images of 160x120 have 19 by 14 patches, few enough for the grid to keep all of them.
    assert SETTINGS.reduced_grid_shape == SETTINGS.grid_shape == (14, 19)
    np.testing.assert_array_equal(
        pyramid_histogram(described.words.astype(np.int32), SETTINGS), described.features
    )


@pytest.mark.parametrize(
    ("width", "shape", "words", "kind"),
    [(640, (30, 40), 256, "|u1"), (328, (29, 40), 257, "<u2"), (336, (15, 21), 200, "|u1")],
)
def test_the_grid_kept_for_aligning_has_at_most_forty_columns(
    width: int, shape: tuple[int, int], words: int, kind: str
) -> None:
    settings = DescriberSettings(width, 480 if width == 640 else 240, words=words)
    assert settings.reduced_grid_shape == shape
    assert settings.word_type == kind


def test_a_black_image_is_described_finitely(describer: PyramidDescriber) -> None:
    histogram = describer.describe(np.zeros((120, 160), dtype=np.uint8)).features
    assert describer.gallery(histogram[None]).compare(histogram) == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((120, 160), dtype=np.uint16),
        np.zeros((120, 160, 2), dtype=np.uint8),
        np.zeros((0, 160), dtype=np.uint8),
        np.zeros(160, dtype=np.uint8),
    ],
)
def test_what_is_no_image_is_refused(describer: PyramidDescriber, bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="image must"):
        describer.describe(bad)


def test_a_vocabulary_of_another_size_is_refused(describer: PyramidDescriber) -> None:
    with pytest.raises(ValueError, match="50 words"):
        PyramidDescriber(describer.vocabulary, DescriberSettings())


@pytest.mark.parametrize(
    "wrong",
    [
        {"patch_size": 15},
        {"grid_step": 3},
        {"levels": 4},
        {"words": 0},
        {"image_width": 20},
        {"image_height": 20000},
        {"flat_gradient": float("nan")},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must|too small"):
        DescriberSettings(**wrong)  # type: ignore[arg-type]


def texture(seed: int, shape: tuple[int, int] = (120, 160)) -> np.ndarray:
    """A view: grey values that change over a tenth of the image."""
    noise = np.random.default_rng(seed).uniform(size=shape)
    smooth = cv2.GaussianBlur(noise, (0, 0), 0.1 * shape[0])
    return cv2.normalize(smooth, None, 20, 220, cv2.NORM_MINMAX).astype(np.uint8)


def noisy(image: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0.0, sigma, image.shape)
    return np.clip(np.round(image + noise), 0, 255).astype(np.uint8)


def test_a_tiny_image_has_the_mean_of_each_of_its_parts() -> None:
    columns, rows = TINY_SIZE
    image = np.random.default_rng(3).integers(0, 256, (10 * rows, 10 * columns), dtype=np.uint8)
    means = image.reshape(rows, 10, columns, 10).mean(axis=(1, 3))
    np.testing.assert_allclose(tiny_image(image), means, atol=0.5)
    np.testing.assert_array_equal(tiny_image(np.repeat(image[..., None], 3, 2)), tiny_image(image))


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_light_do_not_change_a_view(seed: int) -> None:
    seen = texture(seed)
    tiny = tiny_image(seen)
    assert not show_different_views(tiny, tiny_image(noisy(seen, 8.0, seed)))
    assert not show_different_views(tiny, tiny_image(noisy(0.25 * seen, 4.0, seed)))


@pytest.mark.parametrize("seed", range(5))
def test_another_place_is_another_view(seed: int) -> None:
    assert show_different_views(tiny_image(texture(seed)), tiny_image(texture(seed + 5)))


def test_noise_behind_a_covered_lens_is_one_view_and_another_than_before() -> None:
    dark = np.full((120, 160), 12.0)
    first, second = (tiny_image(noisy(dark, 4.0, seed)) for seed in (1, 2))
    assert not show_different_views(first, second)
    assert show_different_views(tiny_image(texture(0)), first)


def test_a_camera_image_is_described_with_its_tiny_image(
    describer: PyramidDescriber, image: np.ndarray
) -> None:
    """Also without keypoints, and where they are detected on another thread."""
    for detect in (False, True):
        whole = ImageDescriber(describer, detect=True)
        for found in (
            ImageDescriber(describer, detect).describe(image),
            whole.describe_in_parallel(image, detect),
        ):
            np.testing.assert_array_equal(found.tiny, tiny_image(image))
            assert (found.keypoints is not None) == detect
