"""Drives under a fault are what the fault says, and what is said of them is judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.experiments import mapping
from kbf_localization.experiments.mapping import (
    Fault,
    FaultOffice,
    faults_result,
    run_faults,
)
from kbf_localization.geometry import relative
from kbf_localization.parallel import Serial
from kbf_localization.pose_graph.closures import MAX_DISTANCE_M, MAX_TURN_RAD
from kbf_localization.progress import no_progress
from test.pose_graph.world import World, circle, drive


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """Two drives of 4 s; what passes is there from 1 to 2 s."""
    patch = pytest.MonkeyPatch()
    patch.setattr(mapping, "BEGIN_S", 1.0)
    patch.setattr(mapping, "DURATION_S", 1.0)
    patch.setattr(mapping, "SLIP_S", 0.5)
    folder = tmp_path_factory.mktemp("office")
    yield FaultOffice(folder, 3, 20, (64, 48), Serial(), no_progress)
    patch.undo()


@pytest.fixture(scope="module")
def drives(faults):
    return faults.drives()


def _motions(drive) -> tuple[np.ndarray, np.ndarray]:
    log = drive.odometry
    seconds = (log.stamps_ns[1:] - drive.stamps_ns[0]) * 1e-9
    return relative(log.poses[:-1], log.poses[1:]), seconds


def _second(faults: FaultOffice, name: str):
    return faults.faults()[name]().drives[1]


def test_odometry_that_is_too_long_turns_as_before(faults, drives) -> None:
    ordinary, _ = _motions(drives[1])
    altered, _ = _motions(_second(faults, "odometry 5 % too long"))
    np.testing.assert_allclose(altered, ordinary * (1.05, 1.05, 1.0), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "slip"),
    [("wheel slip of 1 m", (1.0, 0.0, 0.0)), ("wheel slip of 30°", (0.0, 0.0, np.radians(30.0)))],
)
def test_a_slip_adds_to_the_motion_for_its_duration(faults, drives, name, slip) -> None:
    ordinary, seconds = _motions(drives[1])
    altered, _ = _motions(_second(faults, name))
    extra = altered - ordinary
    np.testing.assert_allclose(extra.sum(axis=0), slip, atol=1e-9)
    np.testing.assert_allclose(extra[(seconds < 1.0) | (seconds >= 1.5)], 0.0, atol=1e-9)


def test_frozen_wheels_report_nothing_and_move_before_and_after(faults) -> None:
    altered, seconds = _motions(_second(faults, "odometry frozen for 10 s"))
    frozen = (seconds >= 1.0) & (seconds < 2.0)
    np.testing.assert_allclose(altered[frozen], 0.0, atol=1e-12)
    assert np.abs(altered[~frozen]).max() > 0.0


def test_a_covered_lens_hides_all_but_noise(faults, drives) -> None:
    covered = _second(faults, "lens covered for 10 s")
    seconds = (covered.stamps_ns - covered.stamps_ns[0]) * 1e-9
    before = dict(drives[1].images())
    for index, image in covered.images():
        if 1.0 <= seconds[index] < 2.0:
            assert image.mean() == pytest.approx(12.0, abs=0.5)
            assert image.std() < 3.0
        else:
            np.testing.assert_array_equal(image, before[index])


def test_no_closure_can_join_drives_that_never_meet(faults, drives) -> None:
    lap = drive("lap", circle(1.0), World.of_seed(1, 10))
    first, second = mapping._never_near(*2 * [replace(lap, poses=lap.truth)])
    away = relative(first.poses[:, None], second.poses[None])
    near = np.hypot(away[..., 0], away[..., 1]) < MAX_DISTANCE_M
    assert not (near & (np.abs(away[..., 2]) < MAX_TURN_RAD)).any()
    # The robot faces each direction once in a lap: all but a quarter and a radian to either side.
    assert len(second) == pytest.approx(len(lap) * (0.75 - 2.0 / (2.0 * np.pi)), abs=2)
    with pytest.raises(ParameterError, match="give more --frames"):
        mapping._never_near(*drives)


def test_the_second_wing_is_the_first_30_m_farther(faults, drives) -> None:
    (wings,) = faults.faults()["two identical wings in a drive"]().drives
    count = len(drives[0])
    np.testing.assert_allclose(
        relative(wings.poses[:count], wings.poses[count:])[0], (30.0, 0.0, 0.0), atol=1e-9
    )
    assert np.all(np.diff(wings.stamps_ns) > 0) and np.all(np.diff(wings.odometry.stamps_ns) > 0)
    steps, _ = _motions(wings)
    # The wheels drive across as well: nothing jumps.
    assert np.hypot(steps[:, 0], steps[:, 1]).max() < 0.1


def test_a_repeated_drive_is_refused_and_one_that_stands_is_named(faults) -> None:
    found = run_faults(faults, Serial(), no_progress, only="twice")
    found |= run_faults(faults, Serial(), no_progress, only="alone")
    assert [row["used"] for row in found.values()] == ["refused", "refused", "odometry_edges"]
    assert all(row["mastered"] for row in found.values())
    rows = faults_result(found).tables[0].rows
    assert [row[0] for row in rows] == list(found)


def test_poses_worse_than_the_wheels_and_unnamed_faults_are_not_mastered() -> None:
    fault = Fault([], r"slip")
    good = {"ate_rmse_m": 0.1, "raw_ate_rmse_m": 0.5, "closures_wrong": 0}
    judged = mapping._judged
    assert judged(fault, good, ["the wheels slip"])["mastered"]
    assert not judged(fault, good, ["all is well"])["mastered"]
    assert not judged(fault, good | {"ate_rmse_m": 0.6}, ["the wheels slip"])["mastered"]
    assert not judged(fault, good | {"closures_wrong": 1}, ["the wheels slip"])["mastered"]


def test_a_building_that_lacks_a_further_drive_has_empty_cells() -> None:
    metrics = {key: float(number) for number, key in enumerate(mapping.KEYS)} | {
        "closures": 30,
        "closures_wrong": 1,
        "used": "odometry_edges",
    }
    localized = {"relative_to_map_median_m": 0.01, "position_median_m": 0.1}
    result = mapping.mapping_result(
        {"7": {"1": metrics, "2": {**metrics, "localization": localized}}}
    )
    errors, further = result.tables
    assert [len(row) for row in errors.rows] == 2 * [len(errors.columns)]
    assert "30 (1)" in errors.rows[0]
    assert further.rows[0][:3] == ("7, 1", None, None)
    assert further.rows[1][:3] == ("7, 2", 0.01, 0.1)
    columns, rows = result.csv["mapping.csv"]
    assert dict(zip(columns, rows[1], strict=True)) == {
        "office_drives": "7, 2",
        **metrics,
        **localized,
        "used": "odometry edges",
    }
