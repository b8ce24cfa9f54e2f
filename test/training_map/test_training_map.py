"""What a map answers about its images."""

import pickle
from dataclasses import replace

import numpy as np

from kbf_localization.training_map import TrainingMap, with_parameters
from kbf_localization.training_map.picture import image_strip
from test.datasets.test_image_messages import hidden_behind


def test_similarities_of_rows_are_those_of_the_whole(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.histograms[2])
    everything = observation.similarities()
    rows = np.array([5, 0, 2])
    np.testing.assert_array_equal(observation.similarities(rows), everything[rows])
    assert everything[2] == 1.0


def test_a_query_of_rows_does_not_touch_the_others(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.histograms[2])
    expected = observation.similarities()[[1, 4]]
    touched = number_map.histograms.copy()
    touched[[0, 2, 3, 5, 6]] = 255
    object.__setattr__(number_map, "histograms", touched)
    np.testing.assert_array_equal(observation.similarities(np.array([1, 4])), expected)


def test_gram_of_rows_is_symmetric_and_made_of_similarities(number_map: TrainingMap) -> None:
    rows = np.array([6, 1, 3])
    gram = number_map.image_gram(rows)
    for index, row in enumerate(rows):
        similarities = number_map.observe(number_map.histograms[row]).similarities(rows)
        np.testing.assert_allclose(gram[index], similarities, rtol=1e-14)
    np.testing.assert_array_equal(number_map.image_gram(rows, rows[:2]).shape, (3, 2))


def test_identity_is_of_poses_and_images_not_of_tuning(number_map: TrainingMap) -> None:
    tuned = with_parameters(number_map, {"power": 16.0}, {"lost": 0.5})
    assert tuned.identity == number_map.identity
    assert (tuned.parameters, tuned.thresholds) == ({"power": 16.0}, {"lost": 0.5})
    assert with_parameters(number_map, {}).thresholds == {"lost": 0.25}
    number_map.histograms[0, 0] ^= 1
    assert with_parameters(number_map, {}).identity != tuned.identity


def test_top_level_is_a_first_look_at_all_poses(number_map: TrainingMap) -> None:
    observation = number_map.observe(number_map.histograms[2])
    assert observation.top_level_similarities().shape == (7,)
    assert observation.top_level_similarities()[2] == 1.0


def test_a_map_travels_to_worker_processes(number_map: TrainingMap) -> None:
    assert number_map.self_similarities.shape == (7,)
    there = pickle.loads(pickle.dumps(number_map))
    assert there.identity == number_map.identity


def test_a_forged_thumbnail_is_not_decoded(number_map: TrainingMap) -> None:
    """It goes through the same door as a camera's images."""
    hidden = hidden_behind(b"\xff\x00")
    forged = replace(number_map, thumbnails=[hidden] * len(number_map))
    assert image_strip(forged) is None
