"""Floor plans are closed, and leave room for every drive through them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.errors import DatasetError
from kbf_localization.simulator.floor_plan import FloorPlan
from kbf_localization.simulator.plans import plan_corridor, plan_office, plan_round
from kbf_localization.simulator.ray_casting import MAX_RANGE_M, WallRays
from kbf_localization.simulator.trajectory import (
    Trajectory,
    drive_through,
    named,
    perturbed,
    read_trajectory,
)


def nearest_obstacle_m(plan: FloorPlan, trajectory: Trajectory) -> float:
    """The least distance of any pose from a wall (by rays all round) or from furniture."""
    rays = WallRays(plan.faces())
    angles = np.linspace(-np.pi, np.pi, 48, endpoint=False)
    ray = (np.cos(angles), np.sin(angles))
    found = []
    for x, y in trajectory.poses[::5, :2]:
        hits = rays.cast((np.array([x]), np.array([y])), ray)
        assert hits.distance.max() < MAX_RANGE_M, "a gap in the walls"
        found.append(hits.distance.min())
        for box in plan.boxes:
            east = max(box.x[0] - x, 0, x - box.x[1])
            north = max(box.y[0] - y, 0, y - box.y[1])
            found.append(np.hypot(east, north))
    return float(min(found))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("make", [plan_office, plan_corridor])
def test_an_invented_drive_keeps_clear_of_walls_and_furniture(
    make: Callable[[int], FloorPlan], seed: int
) -> None:
    plan = make(seed)
    drive = drive_through(plan, np.random.default_rng(seed), 10**18, 1200)
    assert nearest_obstacle_m(plan, drive) > 0.25


def test_drives_of_one_office_see_the_same_rooms_though_on_different_paths() -> None:
    plan = plan_office(1)
    first, second = (drive_through(plan, np.random.default_rng(k), 10**18, 1000) for k in range(2))
    assert len(set(first.labels) & set(second.labels)) >= 5
    near = np.hypot(*(first.poses[:, None, :2] - second.poses[None, :, :2]).T).min(axis=0)
    assert np.mean(near < 0.5) > 0.9
    assert np.abs(first.poses - second.poses).max() > 2.0


def test_a_faster_camera_takes_more_images_of_the_same_speed() -> None:
    plan = plan_office(1)
    drive = drive_through(plan, np.random.default_rng(0), 10**18, 300, period_s=1.0 / 30.0)
    seconds = 1e-9 * (drive.stamps_ns[-1] - drive.stamps_ns[0])
    assert seconds == pytest.approx(299.0 / 30.0, abs=0.01)
    length = np.hypot(*np.diff(drive.poses[:, :2], axis=0).T).sum()
    assert 0.1 < length / seconds < 0.6


@pytest.fixture(scope="module")
def real(cold_data: Path) -> list[Trajectory]:
    return [
        read_trajectory(cold_data / "saarbruecken" / name / "localization" / "places.lst")
        for name in ("seq1_cloudy1", "seq2_cloudy1")
    ]


def test_an_office_round_real_paths_leaves_them_free(real: list[Trajectory]) -> None:
    plan = plan_round(real, 0)
    for trajectory in real:
        assert nearest_obstacle_m(plan, trajectory) > 0.3
    further = perturbed(real[1], np.random.default_rng(0), 10**18)
    assert nearest_obstacle_m(plan, further) > 0.1


def test_an_office_round_real_paths_has_their_rooms(real: list[Trajectory]) -> None:
    plan = plan_round(real, 0)
    for trajectory in real:
        rooms = plan.room_at(trajectory.poses[:, :2])
        same = [plan.labels[room - 1] == label for room, label in zip(rooms, trajectory.labels)]
        # At a door two rooms overlap: which of them a pose is in is a matter of some decimetres.
        assert np.mean(same) > 0.93


def test_a_perturbed_drive_stays_near_the_original_but_is_another(real: list[Trajectory]) -> None:
    further = perturbed(real[0], np.random.default_rng(0), 10**18)
    apart = np.hypot(*(further.poses[:, None, :2] - real[0].poses[None, :, :2]).T).min(axis=0)
    assert apart.max() < 0.6
    assert np.median(apart) > 0.02
    assert np.all(np.diff(further.stamps_ns) > 0)


def test_poses_that_are_no_office_are_refused() -> None:
    poses = np.array([[0.0, 0.0, 0.0], [5e6, 0.0, 0.0]])
    wild = named(np.array([10**18, 2 * 10**18]), poses, ("CR-A", "CR-A"))
    with pytest.raises(DatasetError, match="metres and in one frame"):
        plan_round([wild], 0)


def test_daylight_comes_through_outer_walls_only() -> None:
    plan = plan_office(2)
    for face in plan.faces():
        if face.kind != "exterior":
            continue
        x, y = face.along(face.length / 2)
        step = np.array([-face.side, 0]) if face.axis == 0 else np.array([0, -face.side])
        beyond = np.array([x, y]) + step * np.arange(1, 3)[:, None] * 0.2
        assert np.all(plan.room_at(beyond) == 0)
    assert {face.kind for face in plan.faces()} == {"interior", "exterior", "lintel"}
