"""The errors of estimated poses, against drives whose truth is known."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from kbf_localization.datasets.trajectory import read_trajectory
from kbf_localization.evaluation.mapping_metrics import (
    mapping_metrics,
    metric_rows,
    write_mapping,
)
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.mapping.refine import Mended
from kbf_localization.pose_graph.closures import UNSUPPORTED, Closure, Rejected
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.pose_graph.result import EstimatedTrajectory, HeldOutScore, PoseEstimates
from kbf_localization.pose_graph.wheels import WheelErrors
from test.pose_graph.world import PointDrive, World, circle, drive

WORLD = World.of_seed(1, 10)


def _estimates(poses: np.ndarray, odometry: np.ndarray, closures=(), rejected=()) -> PoseEstimates:
    count = len(poses)
    rows = np.arange(count)
    covariances = np.tile(np.diag([0.04, 0.04, 0.01]), (count, 1, 1))
    covariances[0] *= 1e-9
    return PoseEstimates(
        trajectories=(EstimatedTrajectory("one", poses, covariances, odometry),),
        keyframes=Keyframes(
            np.zeros(count, np.intp),
            rows,
            np.zeros(count, np.intp),
            rows.astype(np.int64),
            odometry,
            rows * 0.1,
            rows * 0.1,
        ),
        closures=tuple(closures),
        rejected=tuple(rejected),
        wheels=(WheelErrors("one", np.radians(0.27), 0.0),),
        used="odometry_edges",
        drives_joined=1,
        left_out=(),
        anchors=0,
        held_out=None,
        camera=None,
        mount=None,
        warnings=(),
        cpu_s=1.0,
    )


def test_a_trajectory_in_another_frame_has_no_error() -> None:
    own = drive("one", circle(0.8), WORLD)
    own = replace(own, poses=own.truth)
    moved = compose(np.array([5.0, -3.0, 2.0]), own.truth)
    metrics = mapping_metrics([own], _estimates(moved, own.odometry.poses))
    assert metrics["ate_rmse_m"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["relative_2m_rmse_m"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["nees_mean"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["raw_ate_rmse_m"] > 0.0
    assert json.dumps(metrics)


def test_anchored_poses_are_judged_in_the_frame_of_the_anchors() -> None:
    """0.2 m of one standard deviation, everywhere: without anchors it would be a frame's shift."""
    own = drive("one", circle(0.8), WORLD)
    own = replace(own, poses=own.truth)
    shifted = own.truth + np.array([0.2, 0.0, 0.0])
    estimates = replace(_estimates(shifted, own.odometry.poses), anchors=1)
    covariances = np.tile(np.diag([0.04, 0.04, 0.01]), (len(shifted), 1, 1))
    trajectory = replace(estimates.trajectories[0], covariances=covariances)
    metrics = mapping_metrics([own], replace(estimates, trajectories=(trajectory,)))
    assert metrics["nees_mean"] == pytest.approx(1.0)


def test_a_scaled_trajectory_errs_over_two_metres_by_the_scale() -> None:
    truth = np.column_stack((np.arange(0.0, 10.0, 0.1), np.zeros(100), np.zeros(100)))
    own = replace(drive("one", truth, WORLD), poses=truth)
    metrics = mapping_metrics([own], _estimates(truth * [1.1, 1.0, 1.0], truth))
    assert metrics["relative_2m_rmse_m"] == pytest.approx(0.2, rel=0.02)
    # The error of a stretched line about its middle: 10 % of the positions' deviation.
    assert metrics["ate_rmse_m"] == pytest.approx(0.1 * truth[:, 0].std(), rel=1e-6)


def test_wrong_closures_are_counted_and_rejected_ones_named() -> None:
    truth = circle(0.5)
    own = replace(drive("one", truth, WORLD), poses=truth)
    wrong = Closure(0, 5, np.array([3.0, 0.0, 0.0]), np.eye(3), 30, 40, 0.5)
    found = _estimates(truth, truth, [wrong], [Rejected(wrong, UNSUPPORTED)])
    metrics = mapping_metrics([own], found)
    assert metrics["closures_wrong"] == 1
    assert metrics["rejected"] == {UNSUPPORTED: 1}
    assert any(row[0] == "Wrong closures" for row in metric_rows(metrics))


def test_nothing_is_compared_with_given_poses_that_were_mended() -> None:
    own = drive("one", circle(0.5), WORLD)
    given = own.truth.copy()
    given[10:20, 0] += 3.0
    recorded = replace(own, poses=given)
    right = Closure(5, 15, relative(own.truth[5], own.truth[15]), np.eye(3), 30, 40, 0.5)
    found = _estimates(own.truth, own.odometry.poses, [right])
    assert mapping_metrics([recorded], found)["closures_wrong"] == 1
    seconds = (own.stamps_ns - own.stamps_ns[0]) * 1e-9
    mended = Mended("one", float(seconds[10]), float(seconds[19]), "jump", 3.0, 0.0)
    metrics = mapping_metrics([recorded], found, [mended])
    assert metrics["closures_wrong"] == 0
    assert metrics["ate_rmse_m"] == pytest.approx(0.0, abs=1e-9)


def test_images_with_late_stamps_are_compared_with_where_they_were_taken() -> None:
    """At 1 m/s, images stamped 0.2 s late were taken 0.2 m before the pose of their stamp."""
    truth = circle(0.8, step_m=0.1)
    own = replace(drive("one", truth, WORLD), poses=truth)
    taken = interpolate(own.stamps_ns, truth, own.stamps_ns - 200_000_000)
    found = _estimates(taken, own.odometry.poses)
    late = replace(found.trajectories[0], clock_offset_s=-0.2)
    metrics = mapping_metrics([own], replace(found, trajectories=(late,)))
    assert metrics["ate_rmse_m"] == pytest.approx(0.0, abs=1e-9)


def test_the_verdict_says_whose_the_distances_are() -> None:
    own = drive("one", circle(0.5), WORLD)
    found = _estimates(own.truth, own.odometry.poses)
    assert "as the wheels report them" in mapping_metrics([own], found)["verdict"]
    scaled = mapping_metrics([own], replace(found, odometry_scale=0.97))["verdict"]
    assert "as the wheels report them, times 0.97" in scaled
    near = mapping_metrics([own], replace(found, anchors=2))["verdict"]
    assert "two anchors farther apart would test that" in near
    held = mapping_metrics([own], replace(found, anchors=2, scale_known=True))["verdict"]
    assert "as the wheels report them" not in held


def test_drives_without_known_poses_have_no_errors_but_a_verdict() -> None:
    own = drive("one", circle(0.5), WORLD)
    metrics = mapping_metrics([own], _estimates(own.truth, own.odometry.poses))
    assert "ate_rmse_m" not in metrics
    assert metrics["used"] == "odometry_edges"
    assert "Drive the path again" in metrics["verdict"]
    assert dict(row[:2] for row in metric_rows(metrics))["CPU time"] == "1 s"


def test_the_results_have_each_images_pose_and_name_what_was_mended(tmp_path: Path) -> None:
    own = replace(drive("one", circle(0.5), WORLD), name="../one 1")
    found = _estimates(own.truth, own.odometry.poses)
    mended = Mended("one", 1.0, 2.5, "jump", 0.8, 3.0)
    metrics = mapping_metrics([own], found, [mended])
    align = "kbf map align office.kbfmap"
    page = write_mapping(ResultsFolder(tmp_path), [own], found, metrics, {}, align)
    (path,) = tmp_path.glob("*.tum")
    assert path.name == "poses_01-_one_1.tum"
    trajectory, _ = read_trajectory(path)
    np.testing.assert_array_equal(trajectory.stamps_ns, own.stamps_ns)
    np.testing.assert_allclose(trajectory.positions[:, :2], own.truth[:, :2])
    assert mended.described in page.read_text()
    assert align in page.read_text()


class GreyDrive(PointDrive):
    """A drive whose images are grey, of 1226 by 370 pixels."""

    def images(self, indices=None):
        return ((int(index), np.full((370, 1226), 128, np.uint8)) for index in indices)


def test_closures_of_wide_images_are_drawn_without_white_between_them(tmp_path: Path) -> None:
    truth = circle(0.5)
    points = drive("one", truth, WORLD)
    own = GreyDrive(**{item.name: getattr(points, item.name) for item in fields(points)})
    closures = [Closure(0, last, np.zeros(3), np.eye(3), 30, 40, 0.5) for last in (5, 6, 7)]
    found = _estimates(truth, own.odometry.poses, closures)
    metrics = mapping_metrics([own], found)
    write_mapping(ResultsFolder(tmp_path), [own], found, metrics, {}, "")
    drawn = cv2.imread(str(tmp_path / "closures.png"), cv2.IMREAD_GRAYSCALE)
    assert drawn is not None
    blank_rows = (drawn > 250).all(axis=1).mean()
    assert blank_rows < 0.2


def test_the_wheels_drift_is_said_in_words() -> None:
    assert "turn 0.27°/s too far left" in WheelErrors("a", np.radians(0.27), 0.01).described
    assert "1.0 % more turn than there is" in WheelErrors("a", 0.0, 0.01).described
    assert "turn than" not in WheelErrors("a", 0.01, 0.0004).described
    assert "too far right" in WheelErrors("a", -0.01, 0.0).described


def test_what_chose_the_method_is_said() -> None:
    own = drive("one", circle(0.5), WORLD)
    found = _estimates(own.truth, own.odometry.poses)
    tested = replace(found, held_out=HeldOutScore(5, {"odometry_edges": 0.1}))
    for estimates, why in ((found, "too few closures"), (tested, "chosen by closures")):
        (_, _, note), *_ = metric_rows(mapping_metrics([own], estimates))
        assert note.startswith(why)
