"""The simulated wheels err as the real wheels of COLD's Freiburg seq1_night1 do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose, interpolate, relative, wrap_angle
from kbf_localization.simulator.plans import plan_office
from kbf_localization.simulator.simulated_drives import drive_wheels
from kbf_localization.simulator.trajectory import drive_through

# Published statistics of the real log: frames apart, position RMS (m), heading RMS (degrees).
REAL = ((1, 0.014, 0.52), (5, 0.043, 0.96), (25, 0.128, 2.0))
REAL_MEDIAN_M = 0.005


def increment_errors(
    stamps_ns: NDArray[np.int64], truth: Array, odometry: Array, apart: int
) -> tuple[Array, Array]:
    """Position (m) and heading (degrees) errors over `apart` frames, gaps left out."""
    error = relative(odometry[:-apart], odometry[apart:]) - relative(truth[:-apart], truth[apart:])
    whole = stamps_ns[apart:] - stamps_ns[:-apart] < apart * 250_000_000
    error = error[whole]
    return np.hypot(error[:, 0], error[:, 1]), np.degrees(wrap_angle(error[:, 2]))


def statistics(stamps_ns: NDArray[np.int64], truth: Array, odometry: Array) -> Array:
    """Position RMS and heading RMS for each distance of REAL, then the median at one frame."""
    found = []
    for apart, _, _ in REAL:
        position, heading = increment_errors(stamps_ns, truth, odometry, apart)
        found += [np.sqrt(np.mean(position**2)), np.sqrt(np.mean(heading**2))]
    found.append(np.median(increment_errors(stamps_ns, truth, odometry, 1)[0]))
    return np.array(found)


def simulated(stamps_ns: NDArray[np.int64], truth: Array, seed: int) -> Array:
    log = drive_wheels(stamps_ns, truth, np.random.default_rng(seed))
    return interpolate(log.stamps_ns, log.poses, stamps_ns)


def test_increments_on_a_simulated_drive_err_by_what_was_measured_on_a_real_robot() -> None:
    plan = plan_office(4)
    drive = drive_through(plan, np.random.default_rng(4), 10**18, 2000)
    moving = np.hypot(*np.diff(drive.poses[:, :2], axis=0).T) > 1e-3
    runs = [
        statistics(drive.stamps_ns, drive.poses, simulated(drive.stamps_ns, drive.poses, seed))
        for seed in range(8)
    ]
    published = np.array([value for _, *pair in REAL for value in pair] + [REAL_MEDIAN_M])
    assert moving.mean() > 0.7
    np.testing.assert_allclose(np.mean(runs, axis=0), published, rtol=0.3)


def test_on_the_real_path_the_increments_err_like_the_real_odometry(cold_data: Path) -> None:
    log = np.loadtxt(
        cold_data / "freiburg" / "seq1_night1" / "odometry_and_ground_truth.csv",
        delimiter=",",
        skiprows=1,
    )
    stamps_ns = np.round(log[:, 0] * 1e6).astype(np.int64) * 1000
    truth, real = log[:, 1:4], log[:, 4:7]
    runs = [simulated(stamps_ns, truth, seed) for seed in range(8)]
    np.testing.assert_allclose(
        np.mean([statistics(stamps_ns, truth, run) for run in runs], axis=0),
        statistics(stamps_ns, truth, real),
        rtol=0.2,
    )
    drifts = [drift(truth, run) for run in runs]
    assert drift(truth, real) == pytest.approx(7.5, abs=0.1)
    assert np.mean(drifts) == pytest.approx(7.5, rel=0.3)


def drift(truth: Array, odometry: Array) -> float:
    """RMSE (m) of dead reckoning from the true start."""
    reckoned = compose(truth[0], relative(odometry[0], odometry))
    return float(np.sqrt(np.mean(np.sum((reckoned - truth)[:, :2] ** 2, axis=1))))


def test_the_heading_drifts_to_one_side() -> None:
    stamps_ns = 10**18 + np.arange(0, 400) * 204_800_000
    poses = np.column_stack([np.arange(400) * 0.05, np.zeros(400), np.zeros(400)])
    rates = []
    for seed in range(8):
        log = drive_wheels(stamps_ns, poses, np.random.default_rng(seed))
        seconds = (log.stamps_ns[-1] - log.stamps_ns[0]) * 1e-9
        rates.append(float(wrap_angle(log.poses[-1, 2] - log.poses[0, 2])) / seconds)
    assert np.mean(rates) == pytest.approx(0.005, rel=0.15)


def test_wheels_that_stand_still_do_not_move() -> None:
    stamps_ns = 10**18 + np.arange(0, 50) * 204_800_000
    poses = np.tile([1.0, 2.0, 0.5], (50, 1))
    log = drive_wheels(stamps_ns, poses, np.random.default_rng(0))
    assert np.ptp(log.poses, axis=0).max() == 0


def test_readings_come_twenty_times_a_second_and_enclose_the_images() -> None:
    stamps_ns = 10**18 + np.arange(0, 50) * 204_800_000
    poses = np.column_stack([np.arange(50) * 0.05, np.zeros(50), np.zeros(50)])
    log = drive_wheels(stamps_ns, poses, np.random.default_rng(0))
    assert np.all(np.diff(log.stamps_ns) == 50_000_000)
    assert log.stamps_ns[0] < stamps_ns[0]
    assert log.stamps_ns[-1] > stamps_ns[-1]
