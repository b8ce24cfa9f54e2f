"""The recovery experiment's metrics from traces made by hand, and its choice of trials."""

import numpy as np
import pytest

from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.run import Run
from kbf_localization.experiments import recovery
from kbf_localization.experiments.recovery import (
    AFTER_KIDNAPPING,
    BEFORE_KIDNAPPING,
    MIN_CARRIED_M,
    START_UPDATES,
    Piece,
    global_starts,
    joined,
    kidnappings,
    metrics_of,
    trace_of,
    whole_drives,
)
from kbf_localization.geometry import compose, relative
from kbf_localization.vision.describer import ImageDescription


def trace(error, states=None, sigma=0.2):
    """Of a robot that is `error` (t,) beside the truth."""
    count = len(error)
    run = Run(
        method="kbf",
        stamps_ns=np.arange(count),
        estimates=np.column_stack((np.zeros(count), error, np.zeros(count))),
        covariances=np.tile(np.diag([sigma**2, sigma**2, 0.01]), (count, 1, 1)),
        truth=np.zeros((count, 3)),
        states=np.array(states or ["tracking"] * count),
        evidence=np.zeros(count),
        step_ms=np.zeros(count),
    )
    return trace_of(run, np.ones(count, dtype=bool))


def drive(count=400, name="d"):
    """Along a straight line, with odometry in its own frame, twice as dense as the images."""
    poses = np.column_stack((np.arange(count) * 0.1, np.zeros(count), np.zeros(count)))
    stamps = np.arange(2 * count) * 100_000_000
    path = np.column_stack((np.arange(2 * count) * 0.05, np.zeros(2 * count), np.zeros(2 * count)))
    return DescribedDrive(
        name=name,
        condition="cloudy",
        stamps_ns=stamps[::2],
        truth=poses,
        odometry=OdometryLog(stamps, compose(np.array([3.0, -2.0, 0.7]), path)),
        descriptions=tuple(ImageDescription(np.array([k % 256], np.uint8)) for k in range(count)),
        describe_ms=np.zeros(count),
    )


@pytest.fixture
def outcome():
    before = [0.1] * BEFORE_KIDNAPPING
    on_time = trace(
        before + [9.0] * 10 + [0.1] * (AFTER_KIDNAPPING - 10),
        ["tracking"] * (BEFORE_KIDNAPPING + 4) + ["lost"] * (AFTER_KIDNAPPING - 4),
    )
    never = trace(before + [9.0] * AFTER_KIDNAPPING)
    wavering = ["tracking", "lost", "lost", "tracking", "lost"]
    return {
        "global_start": [trace([5.0] * 4 + [0.2] * 26), trace([5.0] * 20 + [0.2] * 10)],
        "kidnapping": [on_time, never],
        "undisturbed": [trace([0.1, 0.1, 0.1, 0.7, 0.1], wavering)],
        "night_on_cloudy": [trace([2.0, 0.0])],
        "night_on_merged": [trace([0.0, 0.0])],
    }


def test_starts_count_when_found_in_time(outcome):
    assert metrics_of(outcome)["global_start"] == {
        "starts": 2,
        "converged_share": 0.5,
        "median_updates": (5 + 21) / 2,
    }


def test_kidnappings_count_when_detected_and_when_found_again(outcome):
    metrics = metrics_of(outcome)["kidnapping"]
    assert metrics["detected_share"] == 0.5 and metrics["recovered_share"] == 0.5
    assert metrics["kidnappings"] == 2


def test_lost_is_counted_again_after_every_recovery(outcome):
    metrics = metrics_of(outcome)["undisturbed"]
    assert metrics["updates"] == 5 and metrics["false_lost"] == 2


def test_places_that_the_map_does_not_know_are_reported_apart(outcome):
    (trace,) = outcome["undisturbed"]
    trace["covered"] = [False, False, True, True, True]
    metrics = metrics_of(outcome)
    assert metrics["undisturbed"] == {
        "updates": 3,
        "false_lost": 1,
        "updates_off_the_map": 2,
        "share_tracking_off_the_map": 0.5,
    }
    assert metrics["covariance"]["position_rmse_m"] == pytest.approx(np.sqrt((0.02 + 0.49) / 3))


def test_the_covariance_is_judged_by_standard_distances(outcome):
    metrics = metrics_of(outcome)["covariance"]
    assert metrics["within_three_sigma_share"] == pytest.approx(0.8)
    assert metrics["position_rmse_m"] == pytest.approx(np.sqrt((4 * 0.01 + 0.49) / 5))


def test_other_light_is_reported_on_both_maps(outcome):
    metrics = metrics_of(outcome)
    assert metrics["night_on_cloudy"]["share_beyond_1m"] == 0.5
    assert metrics["night_on_cloudy"]["position_rmse_m"] == pytest.approx(np.sqrt(2.0))
    assert metrics["night_on_merged"]["share_beyond_1m"] == 0.0


def test_the_robot_is_kidnapped_far_and_trials_stay_where_the_map_covers_their_drives():
    drives = [drive(), drive(300)]
    covered = [np.arange(len(drive)) >= 60 for drive in drives]
    pieces = {"before": BEFORE_KIDNAPPING, "after": AFTER_KIDNAPPING, "covered": covered}
    for before, after in kidnappings(drives, 30, 1, **pieces):
        poses = drives[before.drive].truth[:, :2]
        motion = poses[after.first] - poses[before.first + before.count - 1]
        assert np.hypot(*motion) >= MIN_CARRIED_M
        for piece in (before, after):
            assert piece.first + piece.count <= len(poses) and piece.first >= 60
    for (start,) in global_starts(drives, covered, 30, START_UPDATES, seed=1):
        assert start.count == START_UPDATES
        assert 60 <= start.first <= len(drives[start.drive]) - start.count
    assert [piece.count for (piece,) in whole_drives(drives)] == [400, 300]


def test_a_map_that_covers_nothing_gives_no_trials(monkeypatch):
    monkeypatch.setattr(recovery, "MAX_DRAWS", 1000)
    nowhere = [np.zeros(400, dtype=bool)]
    with pytest.raises(KbfError, match="covers no 30"):
        global_starts([drive()], nowhere, 1, START_UPDATES, seed=1)
    with pytest.raises(KbfError, match="apart and covered"):
        kidnappings([drive()], 1, 1, before=40, after=60, covered=nowhere)


def test_the_same_seed_gives_the_same_trials():
    drives = [drive()]
    pieces = {"before": 40, "after": 60, "covered": [np.ones(400, dtype=bool)]}
    assert kidnappings(drives, 5, 3, **pieces) == kidnappings(drives, 5, 3, **pieces)
    assert kidnappings(drives, 5, 3, **pieces) != kidnappings(drives, 5, 4, **pieces)


def test_odometry_of_joined_pieces_feels_no_motion_at_the_seam():
    drives = [drive(), drive(name="other")]
    whole = joined(drives, (Piece(0, 10, 5), Piece(1, 200, 4)))
    motions = relative(whole.odometry.poses[:-1], whole.odometry.poses[1:])
    forward = np.full(8, 0.1)
    forward[4] = 0.0
    np.testing.assert_allclose(motions[:, 0], forward, atol=1e-12)
    np.testing.assert_allclose(motions[:, 1:], 0.0, atol=1e-12)
    assert (np.diff(whole.stamps_ns) == 200_000_000).all()
    np.testing.assert_array_equal(whole.odometry.stamps_ns, whole.stamps_ns)
    seen = [int(description.features[0]) for description in whole.descriptions]
    assert seen == [10, 11, 12, 13, 14, 200, 201, 202, 203]
    np.testing.assert_allclose(whole.truth[:, 0], 0.1 * np.array(seen))
