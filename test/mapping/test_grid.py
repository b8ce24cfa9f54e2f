"""The grid for map_server, and maps moved into another frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from kbf_localization.datasets.floor_plan_image import (
    FREE,
    OCCUPIED,
    UNKNOWN,
    FloorPlanImage,
    plan_files,
    read_floor_plan,
)
from kbf_localization.errors import MapError
from kbf_localization.geometry import compose, relative
from kbf_localization.mapping.editing import disagreement, frame_from_pairs, move_map
from kbf_localization.mapping.grid import drivable_grid
from kbf_localization.training_map import TrainingMap


def _straight(number_map: TrainingMap) -> TrainingMap:
    """The map with its drives along a straight line of 4 m."""
    x = np.linspace(0.0, 4.0, len(number_map))
    poses = np.column_stack((x, np.zeros_like(x), np.zeros_like(x)))
    trajectories = tuple(poses for _ in number_map.sources)
    return replace(number_map, poses=poses, trajectories=trajectories)


def test_cells_within_the_radius_of_the_path_are_free(number_map: TrainingMap) -> None:
    plan = drivable_grid(_straight(number_map), 0.5, 0.05)
    rows, columns = np.nonzero(plan.image == FREE)
    x = plan.origin[0] + (columns + 0.5) * 0.05
    y = plan.origin[1] + (plan.image.shape[0] - rows - 0.5) * 0.05
    # A stadium: a rectangle of 4 m by 1 m and a disc of 0.5 m.
    assert len(rows) * 0.05**2 == pytest.approx(4.0 + np.pi * 0.25, rel=0.05)
    along = np.clip(x, 0.0, 4.0)
    assert np.hypot(x - along, y).max() < 0.5 + 0.08
    assert set(np.unique(plan.image)) == {FREE, UNKNOWN}


def test_the_grid_is_read_back_as_a_floor_plan(number_map: TrainingMap, tmp_path) -> None:
    training_map = _straight(number_map)
    plan = drivable_grid(training_map, 0.3, 0.1)
    pgm, text = plan_files(plan, "office.pgm")
    (tmp_path / "office.pgm").write_bytes(pgm)
    (tmp_path / "office.yaml").write_text(text)
    again = read_floor_plan(tmp_path / "office.yaml", training_map.poses)
    np.testing.assert_array_equal(again.image, plan.image)
    assert again.origin == pytest.approx(plan.origin)


def test_map_server_reads_unknown_cells_as_unknown() -> None:
    levels = np.array([[FREE, UNKNOWN, OCCUPIED]], dtype=np.uint8)
    _, text = plan_files(FloorPlanImage(levels, 0.05, (0.0, 0.0, 0.0)), "office.pgm")
    described = yaml.safe_load(text)
    # map_server's rule for mode trinary: 0 is free, 100 occupied, -1 unknown.
    occupied = 1.0 - levels[0] / 255.0
    cells = np.where(
        occupied > described["occupied_thresh"],
        100,
        np.where(occupied < described["free_thresh"], 0, -1),
    )
    assert described["mode"] == "trinary" and described["negate"] == 0
    assert cells.tolist() == [0, -1, 100]


@pytest.mark.parametrize("radius", [0.0, -1.0, 50.0, float("nan")])
def test_a_radius_that_no_robot_has_is_refused(number_map: TrainingMap, radius: float) -> None:
    with pytest.raises(MapError, match="radius"):
        drivable_grid(number_map, radius)


def test_pairs_of_points_give_the_frame() -> None:
    frame = np.array([3.0, -1.0, 2.0])
    points = np.array([[0.0, 0.0], [4.0, 1.0], [2.0, 5.0]])
    there = compose(frame, np.column_stack((points, np.zeros(3))))[:, :2]
    found, errors = frame_from_pairs(np.column_stack((points, there)))
    assert found == pytest.approx(frame)
    assert errors == pytest.approx(np.zeros(3), abs=1e-12)


@pytest.mark.parametrize(
    ("scale", "shift", "said"),
    [
        (1.0, 0.0, None),
        (1.01, 0.0, None),
        (1.05, 0.0, "--odometry-scale 1.050"),
        (1.0, 2.0, "contradict each other"),
    ],
)
def test_points_that_no_rigid_motion_fits_are_named(scale, shift, said) -> None:
    points = np.array([[0.0, 0.0], [8.0, 1.0], [2.0, 5.0], [6.0, 7.0]])
    there = compose(np.array([3.0, -1.0, 2.0]), np.column_stack((scale * points, np.zeros(4))))
    there[3, 0] += shift
    pairs = np.column_stack((points, there[:, :2]))
    found = disagreement(pairs, frame_from_pairs(pairs)[0])
    assert found is None if said is None else found is not None and said in found


@pytest.mark.parametrize("pairs", [np.zeros((1, 4)), np.zeros((3, 4)), np.zeros((2, 3))])
def test_points_that_fix_no_frame_are_refused(pairs: np.ndarray) -> None:
    with pytest.raises(MapError):
        frame_from_pairs(pairs)


def test_a_moved_map_keeps_all_relative_poses(number_map: TrainingMap) -> None:
    frame = np.array([10.0, -2.0, 0.8])
    moved = move_map(number_map, frame)
    np.testing.assert_allclose(
        relative(moved.poses[0], moved.poses),
        relative(number_map.poses[0], number_map.poses),
        atol=1e-12,
    )
    np.testing.assert_allclose(moved.poses, compose(frame, number_map.poses))
    for path, own in zip(moved.trajectories, number_map.trajectories):
        np.testing.assert_allclose(path, compose(frame, own))
    back = move_map(moved, relative(frame, np.zeros(3)))
    np.testing.assert_allclose(back.poses, number_map.poses, atol=1e-12)
    assert moved.motion_variances.sum() == pytest.approx(number_map.motion_variances.sum())
