"""Errors on a map in its own frame."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.evaluation.evaluate import (
    SourceResult,
    errors_relative_to_map,
    in_map_frame,
    truth_frame,
    with_truth_in,
)
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.run import Run
from kbf_localization.geometry import compose

FRAME = np.array([4.0, -1.0, 0.6])
TRUTH = np.column_stack((np.linspace(0.0, 9.0, 10), np.linspace(0.0, 3.0, 10) ** 2, np.ones(10)))


def _run(estimates: np.ndarray, truth: np.ndarray, states: tuple[str, ...]) -> Run:
    count = len(estimates)
    return Run(
        method="kbf",
        stamps_ns=np.arange(count, dtype=np.int64),
        estimates=estimates,
        covariances=np.tile(np.eye(3), (count, 1, 1)),
        truth=truth,
        states=states,
        evidence=np.zeros(count),
        step_ms=np.ones(count),
    )


def test_the_truth_is_aligned_by_tracked_images_alone() -> None:
    estimates = compose(FRAME, TRUTH)
    estimates[0] += [30.0, 0.0, 0.0]
    run = _run(estimates, TRUTH, ("localizing", *["tracking"] * 9))
    frame = truth_frame([run])
    assert frame == pytest.approx(FRAME)
    assert frame is not None
    moved = with_truth_in(run, frame)
    assert moved.truth is not None
    np.testing.assert_allclose(moved.truth[1:], estimates[1:], atol=1e-9)


def test_without_truth_nothing_is_aligned() -> None:
    run = _run(TRUTH, np.full_like(TRUTH, np.nan), ("tracking",) * 10)
    assert truth_frame([run]) is None


def test_the_error_relative_to_the_nearest_map_image_needs_no_alignment() -> None:
    # The map is bent: each image's pose errs by another pose, and the estimates follow.
    bend = np.column_stack((0.1 * np.arange(10), -0.05 * np.arange(10), 0.02 * np.arange(10)))
    poses = compose(compose(FRAME, TRUTH), bend)
    away = np.tile([0.12, -0.05, 0.01], (10, 1))
    training_map = SimpleNamespace(poses=poses, reference_poses=TRUTH)
    run = _run(compose(poses, away), TRUTH, ("tracking",) * 10)
    errors = errors_relative_to_map(run, training_map)
    assert errors == pytest.approx(np.full(10, np.hypot(0.12, 0.05)))
    other = _run(compose(poses, away), compose(TRUTH, away), ("tracking",) * 10)
    assert errors_relative_to_map(other, training_map) == pytest.approx(np.zeros(10), abs=1e-9)


def test_a_map_without_known_poses_tells_no_relative_error() -> None:
    run = _run(TRUTH, TRUTH, ("tracking",) * 10)
    errors = errors_relative_to_map(run, SimpleNamespace(poses=TRUTH, reference_poses=None))
    assert np.isnan(errors).all()


def test_covariances_on_a_bent_map_are_judged_relative_to_its_images() -> None:
    bend = np.column_stack((0.1 * np.arange(10), -0.05 * np.arange(10), 0.02 * np.arange(10)))
    poses = compose(compose(FRAME, TRUTH), bend)
    away = np.tile([0.12, -0.05, 0.01], (10, 1))
    run = _run(compose(poses, away), TRUTH, ("tracking",) * 10)
    drive = SimpleNamespace(name="drive")
    training_map = SimpleNamespace(poses=poses, reference_poses=TRUTH, own_frame=True)
    (result,), aligned = in_map_frame([SourceResult(drive, {"kbf": run})], training_map)
    metrics = trajectory_metrics(result.runs["kbf"])
    variance = run.covariances[0, 0, 0]
    assert aligned
    assert metrics["nees_mean"] == pytest.approx((0.12**2 + 0.05**2) / variance)
    assert metrics["relative_to_map_median_m"] == pytest.approx(np.hypot(0.12, 0.05))
    without = SimpleNamespace(poses=poses, reference_poses=None, own_frame=True)
    (result,), _ = in_map_frame([SourceResult(drive, {"kbf": run})], without)
    metrics = trajectory_metrics(result.runs["kbf"])
    assert "nees_mean" not in metrics
    assert "within_three_sigma_share" not in metrics
    assert "relative_to_map_median_m" not in metrics
