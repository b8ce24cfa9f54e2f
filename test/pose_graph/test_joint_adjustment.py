"""A learned camera is adjusted with the poses; what it leaves open shows in their covariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.geometry import relative, wrap_angle
from kbf_localization.landmarks.bearings import Pairs, bearings_of, project
from kbf_localization.parallel import Serial
from kbf_localization.pose_graph import joint_adjustment, prepare
from kbf_localization.pose_graph.edges import odometry_edges
from kbf_localization.pose_graph.estimate import _Estimator
from kbf_localization.pose_graph.evidence import gather_evidence
from kbf_localization.pose_graph.graph import GAUGE_SIGMA, Anchors, Problem
from kbf_localization.pose_graph.joint_adjustment import Adjusted, adjust_with_odometry
from kbf_localization.pose_graph.learned_camera import LearnedCamera
from kbf_localization.pose_graph.tracks import FINE_SIGMA_PX, TrackBuilder, neighbours
from kbf_localization.progress import no_progress
from kbf_localization.vision.camera import Mount, PinholeCamera
from kbf_localization.vision.epipolar import DISTORTION, FOCAL, FORWARD, PITCH, YAW
from test.pose_graph.world import CAMERA, MOUNT, World, circle, detect_in_worlds, drive

ALL = np.array([FOCAL, DISTORTION, PITCH, YAW, FORWARD], dtype=np.intp)
SIGMAS = np.array([0.1, 0.1, 0.02, 0.02, 0.1])
WORLD = World.of_seed(3, count=320)


def test_slopes_are_the_numeric_derivatives_of_residuals() -> None:
    camera = PinholeCamera.from_focal(320, 240, 230.0, (0.05, 0.0, 0.0, 0.0))
    mount = Mount.from_angles([0.1, 0.0, 1.1], 0.2, 0.05)
    learned = LearnedCamera.of(camera, mount, ALL, SIGMAS)
    rng = np.random.default_rng(0)
    pixels = rng.uniform(20.0, 220.0, (4000, 2))
    points = mount.to_base(camera.rays(pixels) * rng.uniform(1.0, 5.0, (4000, 1)))

    def residuals(change: np.ndarray, away: np.ndarray) -> np.ndarray:
        changed = learned.changed(change)
        bearings = bearings_of(pixels, changed.camera, changed.mount)
        pairs = Pairs.of(bearings, points + away)
        return project(np.eye(3), np.zeros((3, 1)), pairs).residuals

    at = project(np.eye(3), np.zeros((3, 1)), Pairs.of(bearings_of(pixels, camera, mount), points))
    slopes = learned.slopes(pixels).transpose(1, 2, 0)
    by_centre = np.einsum("ck,rcm->rkm", learned.by_centre, at.slope)
    for column in range(len(ALL)):
        step = 1e-5 * (np.arange(len(ALL)) == column)
        numeric = (residuals(step, 0.0) - residuals(-step, 0.0)) / 2e-5
        found = slopes[:2, column] - by_centre[:, column]
        assert found == pytest.approx(numeric, abs=1e-4 * np.abs(numeric).max())
    # A residual of noise is longer where a pixel is a smaller angle.
    away = rng.normal(0.0, 0.005, points.shape)
    step = 1e-5 * (ALL == FOCAL)
    numeric = residuals(step, away) - residuals(-step, away)
    numeric -= residuals(step, 0.0) - residuals(-step, 0.0)
    noise = residuals(0.0 * step, away)
    expected = (slopes[2, FOCAL] * (noise**2).sum(axis=0)).sum() * 2e-5
    assert (numeric * noise).sum() == pytest.approx(expected, rel=0.02)


class _NoNoise:
    @staticmethod
    def normal(mean: float, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, mean)


def _exact_keypoints(drives, drive_of, image_of, workers, progress):
    """Stand in for the detector: keypoints without noise, so that residuals are small."""
    own = drives[0]
    return [own.world.keypoints(own.truth[int(image)], _NoNoise()) for image in image_of], (
        320,
        240,
    )


def _prepared(detect):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "detect", detect)
        loop = drive("loop", circle(1.1), WORLD, bias=0.005)
        return prepare.prepare([loop], 1.0, Serial(), no_progress)


def _adjusted(prepared, learned: LearnedCamera, states, groups) -> Adjusted:
    keyframes = prepared.keyframes
    gauge = Anchors.certain(np.zeros(1, np.intp), keyframes.odometry[:1], GAUGE_SIGMA)
    wheels = np.zeros((1, 2))
    return adjust_with_odometry(states, wheels, groups, odometry_edges(keyframes), gauge, learned)


def test_states_follow_the_camera_as_the_derivatives_say(monkeypatch) -> None:
    """The least-squares optimum with a camera that is held elsewhere, against the derivatives."""
    monkeypatch.setattr(joint_adjustment, "ROBUST_CHI2", 1e6)
    monkeypatch.setattr(joint_adjustment, "ODOMETRY_CAUCHY", 1e3)
    prepared = _prepared(_exact_keypoints)
    learned = LearnedCamera.of(CAMERA, MOUNT, ALL, SIGMAS)
    builder = TrackBuilder(prepared.keypoints, CAMERA, MOUNT, Serial(), no_progress, learned)
    evidence = gather_evidence(
        replace(prepared, learned=learned), builder, 0, Serial(), no_progress
    )
    builder = builder.with_camera(evidence.prepared.learned)
    points = builder.points(evidence.states, neighbours(prepared.keyframes), FINE_SIGMA_PX, "")
    groups = [found.group for found in points if found.group is not None]
    assert builder.learned is not None
    start = _adjusted(prepared, builder.learned, evidence.states, groups)
    assert start.camera is not None and start.by_camera is not None
    change = start.camera.moved - builder.learned.moved
    for column, sigma in enumerate(np.sqrt(np.diag(start.camera.covariance))):
        ends = []
        for sign in (1.0, -1.0):
            there = change + sign * sigma * (np.arange(len(ALL)) == column)
            held = replace(builder.learned, sigmas=np.full(len(ALL), 1e-7), moved=-there)
            ends.append(_adjusted(prepared, held, start.states, groups).states)
        numeric = (ends[0] - ends[1])[:, :3]
        numeric[:, 2] = wrap_angle(numeric[:, 2])
        expected = 2.0 * sigma * start.by_camera[:, :3, column]
        assert np.abs(numeric - expected).max() < 0.02 * np.abs(expected).max()


def test_a_wrong_camera_is_mended_by_the_tracks_of_all_keyframes() -> None:
    prepared = _prepared(detect_in_worlds)
    wrong = LearnedCamera.of(CAMERA, MOUNT, ALL, SIGMAS).changed(
        np.array([0.08, 0.03, 0.005, -0.01, 0.05])
    )
    learned = LearnedCamera.of(wrong.camera, wrong.mount, ALL, SIGMAS)
    builder = TrackBuilder(
        prepared.keypoints, learned.camera, learned.mount, Serial(), no_progress, learned
    )
    evidence = gather_evidence(
        replace(prepared, learned=learned), builder, 0, Serial(), no_progress
    )
    found = evidence.prepared.learned
    assert found is not None and isinstance(found.camera, PinholeCamera)
    away = np.array(
        [
            np.log(found.camera.fx / CAMERA.fx),
            found.camera.distortion[0],
            found.mount.angles[1],
            found.mount.angles[0],
            found.mount.translation[0],
        ]
    )
    assert np.abs(away / np.sqrt(np.diag(found.covariance))).max() < 4.0
    assert abs(away[0]) < 0.015


def test_a_camera_that_is_uncertain_makes_far_poses_uncertain() -> None:
    """An error of the place ahead of the base moves poses against the first one's heading."""
    learned = LearnedCamera.of(CAMERA, MOUNT, np.array([FORWARD]), np.array([0.1]))
    poses = circle(1.1)
    poses = relative(poses[0], poses)
    ahead = np.stack((np.cos(poses[:, 2]), np.sin(poses[:, 2])), axis=1) - [1.0, 0.0]
    by_camera = np.zeros((len(poses), 6, 1))
    by_camera[:, :2, 0] = -ahead
    states = np.concatenate((poses, np.zeros((len(poses), 3))), axis=1)
    found = Adjusted(states, np.zeros((1, 2)), learned, by_camera).pose_covariances
    draws = np.random.default_rng(0).normal(0.0, 0.1, 100_000)
    for row in (0, len(poses) // 3, len(poses) // 2):
        expected = np.cov(np.outer(ahead[row], draws))
        assert found[row, :2, :2] == pytest.approx(expected, abs=1e-3)


def test_a_graph_without_closures_follows_the_camera_as_the_visual_odometry_does() -> None:
    prepared = _prepared(detect_in_worlds)
    learned = LearnedCamera.of(CAMERA, MOUNT, ALL, SIGMAS)
    prepared = replace(prepared, learned=learned)
    builder = TrackBuilder(prepared.keypoints, CAMERA, MOUNT, Serial(), no_progress, learned)
    evidence = gather_evidence(prepared, builder, 0, Serial(), no_progress)
    assert evidence.by_camera is not None
    count = len(prepared.keyframes)
    first = Anchors.certain(np.zeros(1, np.intp), evidence.states[:1, :3], GAUGE_SIGMA)
    problem = Problem(1, np.arange(count), first, evidence.states[:, :3])
    found = _Estimator(evidence, builder, (), no_progress)._followed(problem, [], evidence.states)
    assert found is not None
    sigma = np.sqrt(np.diag(evidence.prepared.learned.covariance))
    moved = (found - evidence.by_camera)[:, :3] * sigma
    assert np.abs(moved).max() < 0.03 * np.abs(evidence.by_camera[:, :3] * sigma).max()
