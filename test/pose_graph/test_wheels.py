"""The wheels' slips and distances, seen from poses that are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.geometry import compose, relative
from kbf_localization.pose_graph.edges import OdometryEdges, odometry_edges
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.pose_graph.wheels import (
    MAX_SLIPS,
    describe_scales,
    describe_slips,
    distance_scales,
    slips,
)
from test.pose_graph.world import circle

LAPS = circle(4.0, step_m=0.2)
COUNT = len(LAPS)
ALL = np.ones(2 * COUNT, dtype=bool)
POSES = np.concatenate((LAPS, LAPS))
NO_DRIFT = np.zeros((2, 2))


def _two_drives(second: np.ndarray) -> tuple[Keyframes, OdometryEdges]:
    """Return two drives round the circle, of which the second's wheels report other motions."""
    odometry = np.concatenate((LAPS, second))
    drive_of = np.repeat((0, 1), COUNT)
    steps = np.r_[0.0, np.full(COUNT - 1, 0.2)]
    path = np.tile(np.cumsum(steps), 2)
    stamps = np.tile(np.arange(COUNT, dtype=np.int64) * 400_000_000, 2)
    rows = np.tile(np.arange(COUNT), 2)
    keyframes = Keyframes(drive_of, rows, drive_of, stamps, odometry, path, path / 0.5)
    return keyframes, odometry_edges(keyframes)


def _slipped(at: int, slip: tuple[float, float, float]) -> np.ndarray:
    ahead = compose(LAPS[at], np.array(slip))
    return np.concatenate((LAPS[:at], compose(ahead, relative(LAPS[at], LAPS[at:]))))


def test_wheels_that_follow_the_poses_do_not_slip() -> None:
    _, edges = _two_drives(LAPS)
    assert slips(edges, NO_DRIFT, POSES, ALL) == []


@pytest.mark.parametrize(
    ("slip", "metres", "degrees"), [((1.0, 0.0, 0.0), 1.0, 0.0), ((0.0, 0.0, 0.524), None, 30.0)]
)
def test_a_slip_is_found_once_with_its_size_and_place(slip, metres, degrees) -> None:
    keyframes, edges = _two_drives(_slipped(60, slip))
    (found,) = slips(edges, NO_DRIFT, POSES, ALL)
    assert abs(found.row - (COUNT + 60)) <= 4
    if metres is not None:
        assert found.metres == pytest.approx(metres, rel=0.01)
    assert np.degrees(found.radians) == pytest.approx(degrees, abs=0.1)
    (line,) = describe_slips([found], keyframes, ["one", "two"], [0, 0])
    assert line.startswith("two: the wheels slip near 2")


def test_slips_beyond_the_first_are_counted() -> None:
    keyframes, edges = _two_drives(_slipped(60, (1.0, 0.0, 0.0)))
    found = slips(edges, NO_DRIFT, POSES, ALL) * (MAX_SLIPS + 2)
    lines = describe_slips(found, keyframes, ["one", "two"], [0, 0])
    assert lines[-1] == "two: 2 more slips of the wheels"


def test_a_drive_that_is_left_out_does_not_slip() -> None:
    _, edges = _two_drives(_slipped(60, (1.0, 0.0, 0.0)))
    assert slips(edges, NO_DRIFT, POSES, np.repeat((True, False), COUNT)) == []


def test_an_error_over_a_long_gap_between_images_is_no_slip() -> None:
    """Wheels that err by 0.5 m over 30 m without an image between do so usually."""
    poses, odometry = POSES.copy(), LAPS.copy()
    poses[COUNT + 60 :, 0] += 30.0
    odometry[60:, 0] += 30.5
    _, edges = _two_drives(odometry)
    assert slips(edges, NO_DRIFT, poses, ALL) == []


def test_a_drive_whose_wheels_report_more_distance_is_named_with_the_ratio() -> None:
    keyframes, edges = _two_drives(LAPS * (1.05, 1.05, 1.0))
    scales, sigmas = distance_scales(edges, POSES, ALL, keyframes.path_m, 2)
    np.testing.assert_allclose(scales, (1.0, 1.0 / 1.05), rtol=1e-9)
    np.testing.assert_allclose(sigmas, 0.0, atol=1e-9)
    (line,) = describe_scales(scales, sigmas, ["one", "two"])
    assert "two: the wheels report 5.0 % (± 0.0) more distance than those of one" in line
    assert "Two anchors tell" in line
    (line,) = describe_scales(scales, sigmas, ["one", "two"], scale_known=True)
    assert line.endswith("the map's scale is that of the anchors")


@pytest.mark.parametrize(("ratio", "named"), [(1.025, False), (0.975, False), (1.05, True)])
def test_a_difference_within_its_own_error_is_named_only_where_it_is_large(
    ratio: float, named: bool
) -> None:
    sigmas = np.array([0.02, 0.02])
    assert bool(describe_scales(np.array([ratio, 1.0]), sigmas, ["a", "b"])) == named
    assert bool(describe_scales(np.array([ratio, 1.0]), 0.1 * sigmas, ["a", "b"]))


def test_the_distances_error_is_that_of_stretches() -> None:
    """Wheels whose error alternates from stretch to stretch of 5 m have σ = spread / √stretches."""
    rng = np.random.default_rng(0)
    keyframes, edges = _two_drives(LAPS)
    stretch = np.floor(keyframes.path_m[edges.first] / 5.0).astype(int)
    found = []
    for _ in range(200):
        factors = 1.0 + rng.normal(0.0, 0.02, stretch.max() + 1)[stretch]
        scaled = edges.motions * np.column_stack((factors, factors, np.ones(len(edges))))
        altered = replace(edges, motions=scaled)
        found.append(distance_scales(altered, POSES, ALL, keyframes.path_m, 2))
    scales, sigmas = (np.array([each[part][1] for each in found]) for part in (0, 1))
    assert np.sqrt(np.mean(sigmas**2)) == pytest.approx(scales.std(), rel=0.2)


def test_a_drive_that_does_not_move_has_no_scale() -> None:
    keyframes, edges = _two_drives(np.tile(LAPS[:1], (COUNT, 1)))
    scales, sigmas = distance_scales(edges, POSES, ALL, keyframes.path_m, 2)
    assert np.isnan(scales[1])
    assert describe_scales(scales, sigmas, ["one", "two"]) == []
