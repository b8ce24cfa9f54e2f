"""What a map answers about its images."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.evaluation.map_plot import image_strip
from kbf_localization.training_map import TrainingMap
from kbf_localization.training_map import training_map as map_module
from kbf_localization.training_map.training_map import MapObservation
from kbf_localization.vision.describer import ImageDescription
from kbf_localization.vision.keypoints import Keypoints
from test.datasets.test_image_decoding import hidden_behind


def test_similarities_of_rows_are_those_of_the_whole(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.description(2))
    everything = observation.similarities()
    rows = np.array([5, 0, 2])
    np.testing.assert_array_equal(observation.similarities(rows), everything[rows])
    assert everything[2] == 1.0


def test_a_query_of_rows_does_not_touch_the_others(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.description(2))
    expected = observation.similarities()[[1, 4]]
    touched = number_map.features.copy()
    touched[[0, 2, 3, 5, 6]] = 255
    object.__setattr__(number_map, "features", touched)
    np.testing.assert_array_equal(observation.similarities(np.array([1, 4])), expected)


def test_gram_of_rows_is_symmetric_and_made_of_similarities(number_map: TrainingMap) -> None:
    rows = np.array([6, 1, 3])
    gram = number_map.image_gram(rows)
    for index, row in enumerate(rows):
        similarities = number_map.observe(number_map.description(int(row))).similarities(rows)
        np.testing.assert_allclose(gram[index], similarities, rtol=1e-14)
    np.testing.assert_array_equal(number_map.image_gram(rows, rows[:2]).shape, (3, 2))


def test_identity_is_of_poses_and_images_not_of_tuning(number_map: TrainingMap) -> None:
    tuned = replace(number_map, parameters={"power": 16.0})
    assert tuned.identity == number_map.identity
    assert tuned.parameters == {"power": 16.0} and tuned.calibration is number_map.calibration
    number_map.features[0, 0] ^= 1
    assert replace(number_map, parameters={}).identity != tuned.identity


def test_coarse_similarities_are_of_all_poses(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.description(2))
    assert observation.coarse_similarities().shape == (7,)
    assert observation.coarse_similarities()[2] == 1.0


def test_contrast_is_the_log_similarity_less_its_median(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.description(2))
    logs = np.log(observation.similarities())
    np.testing.assert_allclose(observation.contrasts(), logs - np.median(logs), rtol=1e-12)


def test_an_image_unlike_the_whole_map_is_measured_against_the_maps_own_background(
    number_map: TrainingMap,
) -> None:
    rows = range(len(number_map))
    of_rows = [np.log(number_map.observe(number_map.description(k)).similarities()) for k in rows]
    features = np.zeros_like(number_map.features[0])
    features[:2] = number_map.features[2, :2] // 8 + 1
    blank = number_map.observe(ImageDescription(features))
    logs = np.log(blank.similarities())
    lowest = min(np.median(row) for row in of_rows)
    assert np.median(logs) < lowest
    np.testing.assert_allclose(blank.contrasts(), logs - lowest, rtol=1e-12)


def test_best_rows_are_sorted_by_similarity(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.description(2))
    expected = np.argsort(-observation.similarities(), kind="stable")
    np.testing.assert_array_equal(observation.best_rows(4), expected[:4])
    np.testing.assert_array_equal(observation.best_rows(40), expected)


def test_on_a_large_map_the_same_row_is_found_by_its_words_first(
    number_map: TrainingMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_module, "MIN_RETRIEVAL_POSES", 5)
    monkeypatch.setattr(map_module, "RETRIEVED_FRACTION", 0.5)
    for row in range(7):
        observation = number_map.observe(number_map.description(row))
        retrieved = np.argsort(-observation.coarse_similarities())[:3]
        expected = retrieved[np.argsort(-observation.similarities(retrieved))]
        np.testing.assert_array_equal(observation.best_rows(3), expected)
        assert observation.best_rows(1) == row


def test_alignments_asked_in_parts_are_those_asked_at_once(number_map: TrainingMap) -> None:
    parts, whole = (number_map.observe(number_map.description(2)) for _ in range(2))
    parts.alignments(np.array([1, 4]))
    found = parts.alignments(np.array([4, 2, 1, 0]))
    expected = whole.alignments(np.array([4, 2, 1, 0]))
    assert found is not None and expected is not None
    np.testing.assert_allclose(found.shift, expected.shift, atol=1e-6)
    np.testing.assert_allclose(found.prominence, expected.prominence, rtol=1e-5)


def test_without_grids_there_is_no_alignment(number_map: TrainingMap) -> None:
    old = replace(number_map, word_grids=None)
    with_words, without = number_map.description(2), old.description(2)
    assert without.words is None
    assert old.observe(with_words).alignments(np.array([1])) is None
    assert number_map.observe(without).alignments(np.array([1])) is None
    contrast, prominence = old.observe(with_words).compared_with(old.observe(without))
    assert np.isfinite(contrast) and prominence == 0.0


def test_a_map_travels_to_worker_processes(number_map: TrainingMap) -> None:
    assert number_map.image_gram(np.arange(7)).shape == (7, 7)
    there = pickle.loads(pickle.dumps(number_map))
    assert there.identity == number_map.identity


def test_a_forged_thumbnail_is_not_decoded(number_map: TrainingMap) -> None:
    """It goes through the same door as a camera's images."""
    hidden = hidden_behind(b"\xff\x00")
    forged = replace(number_map, thumbnails=[hidden] * len(number_map))
    assert image_strip(forged) is None


def keypoints_of(seed: int, count: int) -> Keypoints:
    """Return keypoints with random descriptors, which match no others."""
    generator = np.random.default_rng(seed)
    descriptors = generator.integers(0, 256, (count, 128), dtype=np.uint8)
    return Keypoints(generator.uniform(0.0, 100.0, (count, 2)), descriptors)


def test_the_matched_fraction_is_that_of_the_keypoints_common_to_two_images(
    number_map: TrainingMap,
) -> None:
    def observe(keypoints: Keypoints | None) -> MapObservation:
        return number_map.observe(replace(number_map.description(2), keypoints=keypoints))

    first, second = keypoints_of(0, 200), keypoints_of(1, 160)
    second.descriptors[:40] = first.descriptors[100:140]
    assert observe(first).matched_fraction(observe(first)) == 1.0
    assert observe(second).matched_fraction(observe(first)) == pytest.approx(40 / 160, abs=0.02)
    few = keypoints_of(2, map_module.MIN_COMPARED_KEYPOINTS - 1)
    assert observe(first).matched_fraction(observe(few)) is None
    assert observe(first).matched_fraction(observe(None)) is None
