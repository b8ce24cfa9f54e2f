"""Shifts and zooms of grids of words are found back."""

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from kbf_localization.vision.dense_sift import DescriberSettings
from kbf_localization.vision.visual_words import ZOOMS, Vocabulary, WordAligner

SETTINGS = DescriberSettings(image_width=328, image_height=240, words=60)
ROWS, COLUMNS = SETTINGS.reduced_grid_shape


@pytest.fixture(scope="module")
def aligner() -> WordAligner:
    words = np.random.default_rng(0).normal(size=(60, 128)).astype(np.float32)
    return WordAligner(Vocabulary(words), SETTINGS)


def scene(seed: int) -> np.ndarray:
    """A wide image in patches of 3 by 3 cells, so that a part of a cell shows."""
    coarse = np.random.default_rng(seed).integers(0, 60, (40, 60))
    return np.repeat(np.repeat(coarse, 3, axis=0), 3, axis=1)


def window(image: np.ndarray, left: float = 0.0, zoom: float = 0.0) -> np.ndarray:
    """What a camera in its middle sees, turned by `left` columns and magnified by exp(zoom)."""
    down = (np.arange(ROWS) - (ROWS - 1) / 2) * np.exp(-zoom) + (image.shape[0] - 1) / 2
    across = (np.arange(COLUMNS) - (COLUMNS - 1) / 2) * np.exp(-zoom) + (image.shape[1] - 1) / 2
    places = np.meshgrid(down, across - left, indexing="ij")
    return map_coordinates(image, places, order=0).astype(np.uint8).reshape(-1)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_image_lies_over_itself(aligner: WordAligner, seed: int) -> None:
    grid = window(scene(seed))
    found = aligner.align(aligner.view(grid), grid[None])
    # The grid of 3-cell patches is not symmetric about its middle: a tenth of a column is left.
    assert abs(found.shift[0]) * COLUMNS < 0.1
    assert abs(found.zoom[0]) < 0.25 * (ZOOMS[1] - ZOOMS[0])
    # Words agree everywhere, unit vectors give 1; elsewhere they agree by chance alone.
    assert found.prominence[0] > 0.8


@pytest.mark.parametrize("columns", [-11, -5, -2, -1, 1, 3, 8, 12])
def test_a_turn_is_found_as_a_shift(aligner: WordAligner, columns: int) -> None:
    """Content that lies further right in the other image has a positive shift."""
    for seed in range(4):
        image = scene(seed)
        other = window(image, left=columns)
        found = aligner.align(aligner.view(window(image)), other[None])
        assert found.shift[0] * COLUMNS == pytest.approx(columns, abs=0.3)


def test_parts_of_a_column_are_resolved(aligner: WordAligner) -> None:
    shifts = np.linspace(-4.0, 4.0, 33)
    image = scene(7)
    view = aligner.view(window(image))
    found = aligner.align(view, np.stack([window(image, left=shift) for shift in shifts]))
    assert np.sqrt(np.mean((found.shift * COLUMNS - shifts) ** 2)) < 0.35


@pytest.mark.parametrize("zoom", [-0.2, -0.1, 0.1, 0.2])
def test_a_step_forward_is_found_as_a_zoom(aligner: WordAligner, zoom: float) -> None:
    """The image is `zoom` smaller than the other, which was taken further ahead."""
    found = []
    for seed in range(8):
        image = scene(seed)
        aligned = aligner.align(aligner.view(window(image)), window(image, zoom=zoom)[None])
        found.append(aligned.zoom[0])
        assert abs(aligned.shift[0]) * COLUMNS < 1.0
    assert np.median(found) == pytest.approx(zoom, abs=0.6 * (ZOOMS[1] - ZOOMS[0]))


def test_another_scene_is_less_prominent_than_the_same(aligner: WordAligner) -> None:
    image = scene(1)
    view = aligner.view(window(image))
    same = aligner.align(view, window(image, left=4)[None]).prominence[0]
    others = aligner.align(view, np.stack([window(scene(seed)) for seed in range(2, 30)]))
    assert others.prominence.max() < 0.4 * same


def test_scores_are_the_mean_agreement_of_the_words_laid_over_each_other(
    aligner: WordAligner,
) -> None:
    """At zoom 0, by a plain loop over shifts, rows and columns."""
    image = scene(3)
    mine, other = (window(image, left=shift).reshape(ROWS, COLUMNS) for shift in (0, 6))
    words = np.random.default_rng(0).normal(size=(60, 128)).astype(np.float32)
    centred = words - words.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    reduced = centred @ axes[:, np.argsort(-values)[:8]]
    unit = reduced / np.linalg.norm(reduced, axis=1, keepdims=True)
    scores = {}
    for shift in range(-12, 13):
        pairs = [
            unit[mine[row, column]] @ unit[other[row, column + shift]]
            for row in range(0, ROWS, 2)
            for column in range(COLUMNS)
            if 0 <= column + shift < COLUMNS
        ]
        scores[shift] = np.mean(pairs)
    best = max(scores, key=lambda shift: scores[shift])
    found = aligner.align(aligner.view(mine.reshape(-1)), other.reshape(1, -1))
    assert best == round(found.shift[0] * COLUMNS) == 6


def test_a_view_has_the_zoomed_image_and_nothing_beyond_its_edges(aligner: WordAligner) -> None:
    """Each cell by itself: the word at the place that a zoom brings there, or zeros."""
    grid = window(scene(5)).reshape(ROWS, COLUMNS)
    view = aligner.view(grid.reshape(-1)).reshape(len(ZOOMS), COLUMNS, len(range(0, ROWS, 2)), -1)
    constant = np.arange(60)[:, None] * np.ones(ROWS * COLUMNS, dtype=np.intp)
    embedded = [aligner.view(words).reshape(view.shape)[3, 0, 0] for words in constant]
    outside = 0
    for number, zoom in enumerate(ZOOMS):
        for column in range(COLUMNS):
            for place, row in enumerate(range(0, ROWS, 2)):
                right, down = (
                    round((length - 1) / 2 + (at - (length - 1) / 2) * np.exp(-zoom))
                    for at, length in ((column, COLUMNS), (row, ROWS))
                )
                seen = view[number, column, place]
                if 0 <= right < COLUMNS and 0 <= down < ROWS:
                    assert (seen == embedded[grid[down, right]]).all()
                else:
                    assert not seen.any()
                    outside += 1
    assert outside > 0


def test_no_images_and_a_single_word_are_no_error(aligner: WordAligner) -> None:
    view = aligner.view(np.zeros(ROWS * COLUMNS, dtype=np.uint8))
    assert len(aligner.align(view, np.zeros((0, ROWS * COLUMNS), dtype=np.uint8)).shift) == 0
    flat = aligner.align(view, np.zeros((2, ROWS * COLUMNS), dtype=np.uint8))
    assert np.isfinite([flat.shift, flat.zoom, flat.prominence]).all()


def test_a_vocabulary_of_a_single_word_and_tiny_images_are_no_error() -> None:
    settings = DescriberSettings(image_width=40, image_height=40, words=1)
    aligner = WordAligner(Vocabulary(np.ones((1, 128), dtype=np.float32)), settings)
    grid = np.zeros((1, 16), dtype=np.uint8)
    found = aligner.align(aligner.view(grid[0]), grid)
    assert np.isfinite([found.shift, found.zoom, found.prominence]).all()
