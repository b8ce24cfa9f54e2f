"""The recovery experiment's figures from traces made by hand, and its choice of trials."""

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.experiments.recovery import (
    AFTER_KIDNAPPING,
    BEFORE_KIDNAPPING,
    CARRIED_AT_LEAST_M,
    START_UPDATES,
    DescribedDrive,
    Outcome,
    Trace,
    global_starts,
    kidnappings,
    whole_drives,
)
from kbf_localization.experiments.recovery_metrics import metrics_of
from kbf_localization.localization import State


def trace(error, states=None, sigma=0.2):
    error = np.asarray(error, dtype=float)
    states = states or (State.TRACKING,) * len(error)
    covered = np.ones(len(error), dtype=bool)
    return Trace(error, error / sigma, np.full(len(error), sigma), tuple(states), covered)


def drive(count=400, uncovered=0):
    poses = np.column_stack((np.arange(count) * 0.1, np.zeros(count), np.zeros(count)))
    return DescribedDrive(
        name="d",
        condition="cloudy",
        histograms=np.zeros((count, 4), np.uint8),
        poses=poses,
        motions=np.zeros((count, 3)),
        covered=np.arange(count) >= uncovered,
    )


@pytest.fixture
def outcome():
    before = [0.1] * BEFORE_KIDNAPPING
    on_time = trace(
        before + [9.0] * 10 + [0.1] * (AFTER_KIDNAPPING - 10),
        [State.TRACKING] * (BEFORE_KIDNAPPING + 4) + [State.LOST] * (AFTER_KIDNAPPING - 4),
    )
    never = trace(before + [9.0] * AFTER_KIDNAPPING)
    wavering = [State.TRACKING, State.LOST, State.LOST, State.TRACKING, State.LOST]
    return Outcome(
        starts=[trace([5.0] * 4 + [0.2] * 26), trace([5.0] * 20 + [0.2] * 10)],
        carried=[on_time, never],
        undisturbed=[trace([0.1, 0.1, 0.1, 0.7, 0.1], wavering)],
        night_on_cloudy=[trace([2.0, 0.0])],
        night_on_merged=[trace([0.0, 0.0])],
    )


def test_starts_count_when_found_in_time(outcome):
    assert metrics_of(outcome)["global_start"] == {
        "starts": 2,
        "converged_share": 0.5,
        "median_updates": (5 + 21) / 2,
    }


def test_kidnappings_count_when_detected_and_when_found_again(outcome):
    figures = metrics_of(outcome)["kidnapping"]
    assert figures["detected_share"] == 0.5 and figures["recovered_share"] == 0.5
    assert figures["kidnappings"] == 2


def test_lost_is_counted_anew_after_every_recovery(outcome):
    figures = metrics_of(outcome)["undisturbed"]
    assert figures["updates"] == 5 and figures["false_lost"] == 2


def test_places_that_the_map_does_not_know_are_reported_apart(outcome):
    (one,) = outcome.undisturbed
    covered = np.array([False, False, True, True, True])
    figures = metrics_of(replace(outcome, undisturbed=[replace(one, covered=covered)]))
    assert figures["undisturbed"] == {
        "updates": 3,
        "false_lost": 1,
        "updates_off_the_map": 2,
        "share_tracking_off_the_map": 0.5,
    }
    assert figures["covariance"]["position_rmse_m"] == pytest.approx(np.sqrt((0.02 + 0.49) / 3))


def test_the_covariance_is_judged_by_standard_distances(outcome):
    figures = metrics_of(outcome)["covariance"]
    assert figures["within_three_sigma_share"] == pytest.approx(0.8)
    assert figures["position_rmse_m"] == pytest.approx(np.sqrt((4 * 0.01 + 0.49) / 5))


def test_other_light_is_reported_on_both_maps(outcome):
    figures = metrics_of(outcome)
    assert figures["night_on_cloudy"]["share_beyond_1m"] == 0.5
    assert figures["night_on_cloudy"]["position_rmse_m"] == pytest.approx(np.sqrt(2.0))
    assert figures["night_on_merged"]["share_beyond_1m"] == 0.0


def test_the_robot_is_carried_far_and_trials_stay_within_their_drives():
    drives = [drive(uncovered=60), drive(300)]
    for before, after in kidnappings(drives, 30, seed=1):
        poses = drives[before.drive].poses[:, :2]
        way = poses[after.first] - poses[before.first + before.count - 1]
        assert np.hypot(*way) >= CARRIED_AT_LEAST_M
        assert after.first + after.count <= len(poses)
        assert drives[before.drive].covers(before.first, before.count)
        assert drives[after.drive].covers(after.first, after.count)
    for (start,) in global_starts(drives, 30, seed=1):
        assert start.count == START_UPDATES
        assert start.first + start.count <= len(drives[start.drive])
        assert drives[start.drive].covers(start.first, start.count)
    assert [piece.count for (piece,) in whole_drives(drives)] == [400, 300]


def test_the_same_seed_gives_the_same_trials():
    drives = [drive()]
    assert kidnappings(drives, 5, seed=3) == kidnappings(drives, 5, seed=3)
    assert kidnappings(drives, 5, seed=3) != kidnappings(drives, 5, seed=4)
