"""The localizer as a whole: as good at any frame rate, and as good as it claims."""

import numpy as np
import pytest

from kbf_localization.evaluation.metrics import error_in_sigmas, position_errors
from kbf_localization.evaluation.run import replay
from test.filters.synthetic_world import drive, localizer, loop

DRIVES = 4


@pytest.fixture(scope="module")
def runs(world, world_map):
    """Runs over drives on other paths than the map's, at full rate, a third and a sixth of it."""
    found = {1: [], 3: [], 6: []}
    for number in range(DRIVES):
        path = loop(300, wobble=0.08 * np.cos(number), phase=0.9 * number)
        described = drive(world, path, 40 + number).described
        for every in found:
            part = described.part(slice(None, None, every))
            found[every].append(replay(part, localizer(world_map)))
    return found


def settled(run):
    """Frames after the first two metres."""
    return np.arange(len(run)) >= len(run) // 10


def median_error(runs):
    return np.median(np.concatenate([position_errors(run)[settled(run)] for run in runs]))


@pytest.mark.parametrize("every", [3, 6])
def test_the_frame_rate_does_not_matter(runs, every):
    assert median_error(runs[every]) == pytest.approx(median_error(runs[1]), rel=0.3)


@pytest.mark.parametrize("every", [1, 3, 6])
def test_errors_are_within_what_is_published(runs, every):
    """Of a Gaussian in the plane, 98.9 % are within three standard deviations."""
    lengths = np.concatenate([error_in_sigmas(run) for run in runs[every]])
    assert np.mean(lengths <= 3.0) >= 0.989


@pytest.mark.parametrize("every", [1, 3, 6])
def test_tracking_is_claimed_and_right(runs, every):
    states = np.concatenate([run.states for run in runs[every]])
    errors = np.concatenate([position_errors(run) for run in runs[every]])
    tracking = states == "tracking"
    assert tracking.mean() > 0.9
    assert errors[tracking].max() < 1.0
