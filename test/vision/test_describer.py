"""Images of all sizes and channels become histograms."""

import cv2
import numpy as np
import pytest

from kbf_localization.vision.dense_sift import dense_sift
from kbf_localization.vision.describer import ImageDescriber
from kbf_localization.vision.pyramid_kernel import PyramidKernel
from kbf_localization.vision.settings import DescriberSettings
from kbf_localization.vision.vocabulary import learn_vocabulary

SETTINGS = DescriberSettings(image_width=160, image_height=120, words=50)


@pytest.fixture
def image() -> np.ndarray:
    noise = np.random.default_rng(0).uniform(size=(120, 160))
    smooth = cv2.GaussianBlur(noise, (0, 0), 3.0)
    return cv2.normalize(smooth, None, 20, 220, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture
def describer(image: np.ndarray) -> ImageDescriber:
    return ImageDescriber(learn_vocabulary(dense_sift(image, SETTINGS), 50), SETTINGS)


def test_grey_and_colour_of_the_same_image_are_described_alike(
    describer: ImageDescriber, image: np.ndarray
) -> None:
    grey = describer.describe(image)
    for channels in (1, 3, 4):
        stacked = np.repeat(image[:, :, None], channels, axis=2)
        np.testing.assert_array_equal(describer.describe(stacked), grey)


def test_an_image_of_another_size_is_resized_and_said_once(
    describer: ImageDescriber, image: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    own = describer.describe(image)
    assert describer.resized_from is None
    larger = describer.describe(cv2.resize(image, (320, 240), interpolation=cv2.INTER_CUBIC))
    assert describer.resized_from == (320, 240)
    describer.describe(np.zeros((240, 320), dtype=np.uint8))
    assert [record.getMessage() for record in caplog.records] == [
        "images of 320x240 are resized to the map's 160x120"
    ]
    assert larger.shape == (SETTINGS.bins,)
    assert PyramidKernel(SETTINGS).similarities(own, larger[None])[0] > 0.8


def test_a_black_image_is_described_finitely(describer: ImageDescriber) -> None:
    histogram = describer.describe(np.zeros((120, 160), dtype=np.uint8))
    assert PyramidKernel(SETTINGS).similarities(histogram, histogram[None])[0] == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((120, 160), dtype=np.uint16),
        np.zeros((120, 160, 2), dtype=np.uint8),
        np.zeros((0, 160), dtype=np.uint8),
        np.zeros(160, dtype=np.uint8),
    ],
)
def test_what_is_no_image_is_refused(describer: ImageDescriber, bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="image must"):
        describer.describe(bad)


def test_a_vocabulary_of_another_size_is_refused(describer: ImageDescriber) -> None:
    with pytest.raises(ValueError, match="50 words"):
        ImageDescriber(describer.vocabulary, DescriberSettings())


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
