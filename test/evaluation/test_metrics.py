"""Metrics against the definitions and against evo, an independent implementation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.trajectory import write_tum
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.metrics import (
    mahalanobis_errors,
    position_sigmas,
    trajectory_metrics,
)
from kbf_localization.evaluation.run import Run
from kbf_localization.geometry import compose
from test.evaluation.stable_keys import STABLE_KEYS
from test.evaluation.synthetic import read_tum


def make_run(frames: int = 60, seed: int = 0, noise_m: float = 0.4) -> Run:
    rng = np.random.default_rng(seed)
    truth = np.column_stack(
        (
            np.linspace(0, 9, frames),
            np.sin(np.linspace(0, 6, frames)),
            rng.uniform(-np.pi, np.pi, frames),
        )
    )
    estimates = truth + rng.normal(0, (noise_m, noise_m, 0.2), (frames, 3))
    return Run(
        method="kbf",
        stamps_ns=1_152_212_857_193_444_001 + np.arange(frames, dtype=np.int64) * 204_081_632,
        estimates=estimates,
        covariances=np.tile(np.diag((0.16, 0.16, 0.04)), (frames, 1, 1)),
        truth=truth,
        states=("localizing",) * 6 + ("tracking",) * (frames - 6),
        evidence=rng.uniform(0.5, 1, frames),
        step_ms=rng.uniform(10, 20, frames),
    )


def test_the_stable_keys_are_there() -> None:
    assert set(trajectory_metrics(make_run())) >= STABLE_KEYS


def test_position_and_heading_errors_agree_with_evo(tmp_path: Path) -> None:
    metrics = pytest.importorskip("evo.core.metrics")
    from evo.tools import file_interface

    run = make_run()
    assert run.truth is not None
    write_tum(tmp_path / "truth.tum", run.stamps_ns, run.truth)
    write_tum(tmp_path / "kbf.tum", run.stamps_ns, run.estimates)
    pair = tuple(
        file_interface.read_tum_trajectory_file(str(tmp_path / name))
        for name in ("truth.tum", "kbf.tum")
    )
    position = metrics.APE(metrics.PoseRelation.translation_part)
    position.process_data(pair)
    heading = metrics.APE(metrics.PoseRelation.rotation_angle_deg)
    heading.process_data(pair)

    ours = trajectory_metrics(run)
    theirs = position.get_all_statistics()
    assert ours["position_rmse_m"] == pytest.approx(theirs["rmse"], rel=1e-9)
    assert ours["position_median_m"] == pytest.approx(theirs["median"], rel=1e-9)
    assert ours["position_max_m"] == pytest.approx(theirs["max"], rel=1e-9)
    assert ours["heading_rmse_deg"] == pytest.approx(
        heading.get_statistic(metrics.StatisticsType.rmse), rel=1e-6
    )


def test_aligned_and_relative_errors_agree_with_evo(tmp_path: Path) -> None:
    metrics = pytest.importorskip("evo.core.metrics")
    from evo.tools import file_interface

    run = make_run(frames=200)
    assert run.truth is not None
    moved = compose(np.array([3.0, -2.0, 0.7]), run.estimates)
    run = replace(run, estimates=moved)
    write_tum(tmp_path / "truth.tum", run.stamps_ns, run.truth)
    write_tum(tmp_path / "kbf.tum", run.stamps_ns, run.estimates)
    truth, kbf = (
        file_interface.read_tum_trajectory_file(str(tmp_path / name))
        for name in ("truth.tum", "kbf.tum")
    )
    unit = metrics.Unit.meters
    over_1m = metrics.RPE(
        metrics.PoseRelation.translation_part,
        delta=1.0,
        delta_unit=unit,
        all_pairs=True,
        pairs_from_reference=True,
    )
    over_1m.process_data((truth, kbf))
    kbf.align(truth)
    aligned = metrics.APE(metrics.PoseRelation.translation_part)
    aligned.process_data((truth, kbf))
    ours, rmse = trajectory_metrics(run), metrics.StatisticsType.rmse
    assert ours["aligned_rmse_m"] == pytest.approx(aligned.get_statistic(rmse), rel=1e-9)
    # evo takes the pose whose distance is nearest to 1 m, this package the first beyond it.
    assert ours["relative_1m_rmse_m"] == pytest.approx(over_1m.get_statistic(rmse), rel=0.02)


def test_wheels_that_measure_a_tenth_too_much_err_by_a_tenth_of_a_metre_over_a_metre() -> None:
    truth = np.column_stack([np.linspace(0.0, 8.0, 1025), np.zeros(1025), np.zeros(1025)])
    run = replace(make_run(frames=1025), truth=truth, estimates=1.1 * truth + [5.0, 0.0, 0.0])
    metrics = trajectory_metrics(run)
    assert metrics["relative_1m_rmse_m"] == pytest.approx(0.1, rel=1e-6)
    # Aligned, the error is ±0.1 times the distance from the middle: a uniform spread of ±0.4 m.
    assert metrics["aligned_rmse_m"] == pytest.approx(0.4 / np.sqrt(3.0), rel=2e-3)


def test_heading_error_is_along_the_shorter_arc() -> None:
    run = make_run(frames=10, noise_m=0.0)
    truth = np.zeros((10, 3))
    truth[:, 2] = np.pi - 0.01
    estimates = truth.copy()
    estimates[:, 2] = -np.pi + 0.01
    run = replace(run, truth=truth, estimates=estimates)
    assert trajectory_metrics(run)["heading_rmse_deg"] == pytest.approx(np.degrees(0.02))


def test_the_fraction_beyond_a_metre_counts_frames() -> None:
    run = make_run(frames=10)
    assert run.truth is not None
    estimates = run.truth.copy()
    estimates[:3, 0] += 1.5
    run = replace(run, estimates=estimates)
    assert trajectory_metrics(run)["share_beyond_1m"] == pytest.approx(0.3)


def test_frames_without_truth_do_not_count_in_errors() -> None:
    run = make_run(frames=20)
    assert run.truth is not None
    truth = run.truth.copy()
    truth[10:] = np.nan
    partly = trajectory_metrics(replace(run, truth=truth))
    errors = np.hypot(*(run.estimates - run.truth)[:10, :2].T)
    assert partly["position_rmse_m"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert partly["frames"] == 20


def test_without_truth_there_are_no_errors_but_timing() -> None:
    figures = trajectory_metrics(replace(make_run(), truth=None))
    assert "position_rmse_m" not in figures
    assert figures["step_ms_p99"] > figures["step_ms_p50"] > 0


def test_errors_in_sigmas_are_mahalanobis_lengths() -> None:
    run = make_run(frames=30, seed=3)
    assert run.truth is not None
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(30, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1)
    run = replace(run, covariances=covariances)
    offset = (run.estimates - run.truth)[:, :2]
    expected = [
        np.sqrt(error @ np.linalg.inv(covariance[:2, :2]) @ error)
        for error, covariance in zip(offset, covariances, strict=True)
    ]
    assert mahalanobis_errors(run) == pytest.approx(expected)
    assert position_sigmas(run) == pytest.approx(
        [np.sqrt(np.linalg.norm(covariance[:2, :2], 2)) for covariance in covariances]
    )


def test_pooling_runs_is_the_metric_of_their_frames_together() -> None:
    first, second = make_run(seed=1), make_run(frames=20, seed=2, noise_m=1.0)
    together = trajectory_metrics(first, second)
    squared = sum(
        trajectory_metrics(run)["position_rmse_m"] ** 2 * len(run) for run in (first, second)
    )
    assert together["position_rmse_m"] == pytest.approx(np.sqrt(squared / 80))
    assert together["frames"] == 80


def test_a_run_without_frames_is_a_known_error() -> None:
    with pytest.raises(KbfError, match="no image got an estimate"):
        trajectory_metrics(replace(make_run(frames=0), states=()))


def test_tum_files_keep_stamps_and_poses(tmp_path: Path) -> None:
    run = make_run()
    write_tum(tmp_path / "kbf.tum", run.stamps_ns, run.estimates)
    stamps, poses = read_tum(tmp_path / "kbf.tum")
    assert np.array_equal(stamps, run.stamps_ns)
    assert poses[:, :2] == pytest.approx(run.estimates[:, :2], abs=0, rel=1e-15)
    assert np.cos(poses[:, 2] - run.estimates[:, 2]) == pytest.approx(1)
