"""From N − 1 drives to N."""

import numpy as np
import pytest

from kbf_localization.evaluation.map_check.later_drive import (
    error_scale,
    nearness_weights,
    weighted_percentile,
)


@pytest.mark.parametrize("drives", [2, 3, 5])
def test_weighted_distances_are_those_to_one_drive_more(drives: int) -> None:
    """Against distances to the nearest of so many drives, drawn outright."""
    rng = np.random.default_rng(drives)
    distances = rng.exponential(size=(40_000, drives))
    nearest = distances[:, :-1].min(axis=1)
    weights = nearness_weights(-nearest, drives)
    for percent in (10, 50, 90):
        one_more = np.percentile(distances.min(axis=1), percent)
        assert weighted_percentile(nearest, weights, percent) == pytest.approx(one_more, rel=0.06)


def test_equal_weights_give_the_usual_percentiles() -> None:
    values = np.random.default_rng(0).permutation(1001) * 0.5
    for percent in (10, 50, 90):
        found = weighted_percentile(values, np.full(1001, 3.0), percent)
        assert found == pytest.approx(np.percentile(values, percent), abs=0.5)


def test_many_drives_are_hardly_worse_without_one() -> None:
    scales = [error_scale(drives) for drives in (2, 3, 10, 100)]
    assert scales == sorted(scales)
    assert scales[0] == pytest.approx(2.0**-0.22)
    assert scales[-1] > 0.99
