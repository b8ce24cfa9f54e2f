"""Poses of whole drives through a room of points, and what happens when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import MapError
from kbf_localization.evaluation.mapping_metrics import mapping_verdict
from kbf_localization.geometry import compose, fit_rigid, relative, wrap_angle
from kbf_localization.parallel import Serial
from kbf_localization.pose_graph import keyframes, prepare
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.pose_graph.evidence import gather_evidence
from kbf_localization.pose_graph.result import choose
from kbf_localization.pose_graph.tracks import TrackBuilder
from kbf_localization.progress import no_progress
from test.pose_graph.world import (
    CAMERA,
    MOUNT,
    RADIUS_M,
    World,
    circle,
    detect_in_worlds,
    drive,
)

WORLD = World.of_seed(3)
RICH_WORLD = World.of_seed(3, count=320)
"""So many points that images follow each other where the wheels tell nothing."""
HOUR = 3_600_000_000_000


@pytest.fixture(autouse=True)
def _points_for_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "detect", detect_in_worlds)


def _errors(found, drives) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the estimate, and of the raw odometry, after alignment; NaN where unknown."""
    truth = np.concatenate([lap.truth for lap in drives])
    poses = np.concatenate([trajectory.poses for trajectory in found.trajectories])
    known = np.isfinite(poses).all(axis=1)
    moved = compose(fit_rigid(poses[known, :2], truth[known, :2]), poses)
    raw = []
    for trajectory, own in zip(found.trajectories, drives):
        frame = fit_rigid(trajectory.odometry[:, :2], own.truth[:, :2])
        raw.append(compose(frame, trajectory.odometry)[:, :2] - own.truth[:, :2])
    away = moved[:, :2] - truth[:, :2]
    return np.hypot(*away.T), np.hypot(*np.concatenate(raw).T)


@pytest.fixture(scope="module")
def loop():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "detect", detect_in_worlds)
        drives = [drive("loop", circle(1.3), WORLD)]
        return drives, estimate_poses(drives)


def test_a_closed_loop_removes_the_drift(loop) -> None:
    drives, found = loop
    errors, raw = _errors(found, drives)
    assert found.closures
    assert errors.max() < 0.08
    assert errors.max() < 0.3 * raw.max()


def test_a_slip_between_two_images_does_not_turn_the_map() -> None:
    """The wheels report 5° and 0.15 m sideways in the first step: the images join both sides."""
    slip = np.array([0.0, 0.15, np.radians(5.0)])
    lap = drive("loop", circle(1.3, step_m=0.25), RICH_WORLD, slip=(0, slip))
    poses = estimate_poses([lap]).trajectories[0].poses
    moved, truth = (relative(of[0], of[1]) for of in (poses, lap.truth))
    # Without the images both would be those of the slip.
    assert np.hypot(*(moved - truth)[:2]) < 0.05
    assert abs(wrap_angle(moved[2] - truth[2])) < np.radians(1.0)


def test_a_camera_that_the_drive_leaves_open_is_not_used() -> None:
    """Without a turn nothing tells the focal length: the poses are the wheels'."""
    along = 0.1 * np.arange(40) - 2.0
    straight = drive("straight", np.column_stack((along, 0.0 * along, 0.0 * along)), WORLD, bias=0)
    found = estimate_poses([replace(straight, camera=None, mount=None)])
    assert any("focal length is not determined" in line for line in found.warnings)
    assert "the poses are the odometry's alone" in found.warnings
    assert found.camera is None
    np.testing.assert_allclose(
        found.trajectories[0].poses, relative(straight.odometry.poses[0], straight.odometry.poses)
    )


def test_the_wheels_bias_is_found(loop) -> None:
    _, found = loop
    wheels = found.wheels[0]
    turning = 0.1 / RADIUS_M / 0.1  # rad/s
    drift = wheels.heading_bias_rad_s + wheels.turn_scale * turning
    assert drift == pytest.approx(0.015, abs=0.004)
    assert "too far left" in wheels.described


def test_every_image_has_a_pose_and_a_covariance(loop) -> None:
    _, found = loop
    trajectory = found.trajectories[0]
    assert trajectory.known == len(trajectory.poses)
    assert (np.linalg.eigvalsh(trajectory.covariances[1:]) > 0.0).all()


@pytest.fixture(scope="module")
def joined():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "detect", detect_in_worlds)
        drives = [
            drive("one", circle(1.05), WORLD, seed=1),
            drive("two", circle(0.6, radius_m=1.3, start=0.4), WORLD, seed=2, first_ns=HOUR),
        ]
        return drives, estimate_poses(drives)


def test_two_drives_are_joined_in_one_frame(joined) -> None:
    drives, found = joined
    errors, raw = _errors(found, drives)
    assert found.drives_joined == 2
    assert errors.max() < 0.1
    assert errors.max() < raw.max()


def test_drives_that_never_meet_are_named() -> None:
    drives = [
        drive("here", circle(1.3), WORLD),
        drive("elsewhere", circle(0.4), World.of_seed(8), first_ns=HOUR),
    ]
    found = estimate_poses(drives)
    assert found.left_out == ("elsewhere",)
    assert found.drives_joined == 1
    assert np.isnan(found.trajectories[1].poses).all()
    assert any("elsewhere: nothing joins it" in line for line in found.warnings)
    with pytest.raises(MapError, match="nothing joins elsewhere"):
        estimate_poses(drives, unjoined="refuse")


def test_the_same_drive_twice_is_refused() -> None:
    lap = drive("one", circle(0.2), WORLD)
    with pytest.raises(MapError, match="same drive"):
        estimate_poses([lap, lap])


def test_a_wheel_slip_of_a_metre_is_cut_and_closed() -> None:
    slip = np.array([1.0, 0.0, np.radians(30.0)])
    drives = [
        drive("one", circle(1.05), WORLD, seed=1),
        drive("two", circle(0.8), WORLD, seed=2, first_ns=HOUR, slip=(30, slip)),
    ]
    found = estimate_poses(drives)
    errors, _ = _errors(found, drives)
    assert any("two: the odometry jumps at 3.1 s" in line for line in found.warnings)
    assert np.isfinite(errors).all()
    assert errors.max() < 0.15


def test_frozen_odometry_leaves_its_images_without_poses() -> None:
    drives = [
        drive("one", circle(1.05), RICH_WORLD, seed=1),
        drive("two", circle(0.8), RICH_WORLD, seed=2, first_ns=HOUR, still=range(18, 40)),
    ]
    found = estimate_poses(drives)
    errors, _ = _errors(found, drives)
    assert any("two: the wheels report no motion" in line for line in found.warnings)
    assert np.nanmax(errors) < 0.15
    without = np.isnan(found.trajectories[1].poses[:, 0])
    assert 15 < without.sum() < 27


def test_a_path_without_a_revisit_stays_the_odometry_and_says_so() -> None:
    drives = [drive("arc", circle(0.4), WORLD)]
    found = estimate_poses(drives)
    trajectory = found.trajectories[0]
    straight = compose(trajectory.poses[0], np.zeros(3))
    along = compose(straight, trajectory.odometry)
    assert found.used == "odometry_edges"
    assert trajectory.poses == pytest.approx(along, abs=1e-6)
    assert any("no place was recognized twice" in line for line in found.warnings)
    sigma = np.sqrt(trajectory.covariances[[5, -1], 0, 0])
    assert sigma[1] > 3.0 * sigma[0]


def test_a_covered_lens_leaves_the_wheels_and_is_named() -> None:
    covered = drive("dark", circle(0.3), WORLD, covered=range(1000))
    found = estimate_poses([covered])
    assert found.used == "odometry_edges"
    assert found.trajectories[0].known == len(covered)
    assert any("covered lens" in line for line in found.warnings)


def test_two_images_are_a_drive() -> None:
    found = estimate_poses([drive("short", circle(1.0)[:2], WORLD)])
    assert found.trajectories[0].known == 2


def test_a_robot_that_stands_still_has_one_place() -> None:
    truth = np.tile(circle(1.0)[:1], (50, 1))
    still = drive("still", truth, WORLD, bias=0.0, still=range(49))
    found = estimate_poses([still])
    assert found.trajectories[0].known == 50
    assert np.ptp(found.trajectories[0].poses, axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_an_anchor_puts_the_map_into_its_frame() -> None:
    lap = drive("one", circle(0.3), WORLD)
    pose = (10.0, -4.0, 1.0)
    found = estimate_poses([lap], anchors=[Anchor(0, int(lap.stamps_ns[12]), pose)])
    assert found.trajectories[0].poses[12] == pytest.approx(pose, abs=1e-3)


def test_known_poses_that_all_else_contradicts_are_named_and_do_not_hold_the_map() -> None:
    lap = drive("lap", circle(1.3), WORLD)
    sigma = (0.05, 0.05, 0.02)
    poses = {image: lap.truth[image] for image in (0, 15, 30, 45, 60)}
    poses[45] = poses[45] + np.array([1.0, 0.0, 0.0])
    anchors = [
        Anchor(0, int(lap.stamps_ns[image]), (x, y, turn), sigma, doubtful=True)
        for image, (x, y, turn) in poses.items()
    ]
    found = estimate_poses([lap], anchors=anchors)
    assert any("lap: 1 of 5 known poses contradict" in line for line in found.warnings)
    away = found.trajectories[0].poses[:, :2] - lap.truth[:, :2]
    assert np.hypot(*away.T).max() < 0.15
    sound = [anchors[number] for number in (0, 1, 2, 4)]
    assert not any("contradict" in line for line in estimate_poses([lap], anchors=sound).warnings)


def test_a_drive_without_odometry_is_refused_with_what_was_passed_over() -> None:
    lap = drive("one", circle(0.2), WORLD)
    log = lap.odometry
    passed = "passed over 40 unusable readings on /odom"
    lone = replace(lap, odometry=replace(log, stamps_ns=log.stamps_ns[:1], poses=log.poses[:1]))
    with pytest.raises(MapError, match=f"no wheel odometry.*; {passed}"):
        estimate_poses(replace(lone, warnings=(passed,)))


def test_drives_of_different_image_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"small": (24, 32), "large": (48, 64)}

    def images(own, wanted):
        return ((index, np.zeros(sizes[own.name], dtype=np.uint8)) for index in wanted)

    monkeypatch.setattr(keyframes, "grey_images", images)
    monkeypatch.setattr(prepare, "detect", keyframes.detect)
    drives = [
        drive(name, circle(0.2), WORLD, seed=number, first_ns=HOUR * number)
        for number, name in enumerate(sizes)
    ]
    with pytest.raises(MapError, match="small of 32x24 and large of 64x48"):
        estimate_poses(drives)


def test_odometry_that_is_too_long_is_scaled() -> None:
    lap = drive("one", circle(0.3), WORLD)
    plain = estimate_poses([lap]).trajectories[0].poses
    scaled = estimate_poses([lap], odometry_scale=0.5).trajectories[0].poses
    assert scaled[-1, :2] == pytest.approx(0.5 * plain[-1, :2], abs=1e-6)


def test_images_are_followed_only_where_they_predict_left_out_closures_better() -> None:
    stretches = np.repeat(np.arange(3), 3)
    wheels, worse, better = np.full(9, 0.10), np.full(9, 0.12), np.full(9, 0.05)
    for visual, adjusted, expected in (
        (worse, worse, "odometry_edges"),
        (worse, better, "adjustment"),
        (better, worse, "visual_edges"),
        (better, better, "adjustment"),
    ):
        errors = {"odometry_edges": wheels, "visual_edges": visual, "adjustment": adjusted}
        assert choose(errors, stretches) == expected


def test_one_stretch_does_not_decide_for_images() -> None:
    stretches = np.repeat(np.arange(4), 5)
    wheels = np.full(20, 0.10)
    adjusted = np.where(stretches == 0, 0.02, 0.11)
    # Per stretch the adjustment is better by 0.08 once and worse by 0.01 three times.
    mean, deviation = np.mean([0.08, *[-0.01] * 3]), np.std([0.08, *[-0.01] * 3], ddof=1) / 2
    assert 0.0 < mean < deviation
    errors = {"odometry_edges": wheels, "adjustment": adjusted}
    assert choose(errors, stretches) == "odometry_edges"
    assert choose(errors, np.zeros(20, dtype=np.intp)) == "odometry_edges"


def _anchor(drive, image: int, number: int, apart_m: float) -> Anchor:
    x, y, heading = drive.truth[image]
    return Anchor(number, int(drive.stamps_ns[image]), (x + apart_m, y, heading))


@pytest.mark.parametrize("apart_m", [0.0, 50.0])
def test_anchors_decide_whether_floors_that_look_the_same_are_one(apart_m: float) -> None:
    drives = [
        drive("lower", circle(1.05), WORLD, seed=1),
        drive("upper", circle(0.6, radius_m=1.3, start=0.4), WORLD, seed=2, first_ns=HOUR),
    ]
    anchors = [_anchor(drives[0], 5, 0, 0.0), _anchor(drives[1], 18, 1, apart_m)]
    found = estimate_poses(drives, anchors=anchors)
    for number, (trajectory, driven) in enumerate(zip(found.trajectories, drives)):
        truth = driven.truth[:, :2] + (number * apart_m, 0.0)
        assert np.hypot(*(trajectory.poses[:, :2] - truth).T).max() < 0.1
    assert found.drives_joined == 2
    assert [join.anchored for join in found.joins] == ([True] if apart_m == 0.0 else [])
    lines = [line for line in found.warnings if "50 m apart look alike" in line]
    assert len(lines) == (apart_m > 0.0)
    assert all("a wrong anchor" in line for line in lines)


def test_drives_that_images_alone_join_are_named(joined) -> None:
    _, found = joined
    (join,) = found.joins
    assert (join.first, join.second, join.rivals, join.anchored) == ("one", "two", 0, False)
    assert join.closures > 10
    assert "Images alone join the drives" in mapping_verdict(found)
    assert "Images alone" not in mapping_verdict(replace(found, joins=()))


def test_images_of_one_drive_correct_a_turn_on_the_spot_and_the_drift() -> None:
    along, ends = np.linspace(-6.0, 6.0, 80), np.full(80, 2.0)
    there = np.column_stack((along, ends, np.zeros(80)))
    turn = np.column_stack((np.tile(there[-1, :2], (40, 1)), np.linspace(0.0, -np.pi, 40)))
    back = np.column_stack((along[::-1], ends, np.full(80, np.pi)))
    truth = np.concatenate((there, turn[1:-1], back))
    own = drive("there and back", truth, World.of_seed(3, count=900, half_m=8.0), bias=0.05)
    prepared = prepare.prepare([own], 1.0, Serial(), no_progress)
    builder = TrackBuilder(prepared.keypoints, CAMERA, MOUNT, Serial(), no_progress)
    evidence = gather_evidence(prepared, builder, 0, Serial(), no_progress)
    heading = own.truth[prepared.keyframes.image_of, 2]
    by_wheels = wrap_angle(prepared.keyframes.odometry[:, 2] - heading)
    by_images = wrap_angle(evidence.states[:, 2] - heading)
    assert np.degrees(np.ptp(np.unwrap(by_wheels))) > 40.0
    assert np.degrees(np.ptp(np.unwrap(by_images))) < 6.0
