"""The scale of the wheels' distances, by known poses of a drive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.datasets.drive import OdometryLog
from kbf_localization.pose_graph import prepare
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.pose_graph.frame import KNOWN_SIGMA
from kbf_localization.pose_graph.result import PoseEstimates
from test.pose_graph.world import PointDrive, World, circle, detect_in_worlds, drive

WORLD = World.of_seed(3)
NOTHING = World(np.empty((0, 3)), np.empty((0, 128), np.uint8))


@pytest.fixture(autouse=True)
def _points_for_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "detect", detect_in_worlds)


def _reporting(factor: float, own: PointDrive) -> PointDrive:
    """Return the drive with wheels that report `factor` times the distances."""
    log = own.odometry
    return replace(own, odometry=OdometryLog(log.stamps_ns, log.poses * (factor, factor, 1.0)))


def _held(own: PointDrive, images: list[int], wrong: int | None = None) -> PoseEstimates:
    """Return the poses with anchors at images; those of AMCL, if one of them is `wrong` by 5 m."""
    sigma, doubtful = (0.02, 0.02, 0.01), wrong is not None
    anchors = []
    for image in images:
        x, y, heading = (float(value) for value in own.truth[image])
        if image == wrong:
            x, y = x + 4.0, y + 3.0
        stamp = int(own.stamps_ns[image])
        anchors.append(Anchor(0, stamp, (x, y, heading), sigma, doubtful))
    return estimate_poses(own, anchors=anchors)


@pytest.mark.parametrize("factor", [1.05, 0.96])
def test_anchors_far_apart_tell_the_scale_of_the_wheels(factor: float) -> None:
    lap = _reporting(factor, drive("lap", circle(1.0, radius_m=12.0, step_m=0.2), NOTHING))
    found = _held(lap, [0, 90, 180, 270, 360])
    assert found.scale_known
    # Wheels drift by 0.27 m over the 18 m between anchors, which are 17 m apart: 1.6 % each.
    assert found.odometry_scale == pytest.approx(1.0 / factor, abs=0.016)


def test_anchors_at_one_place_tell_no_scale() -> None:
    lap = _reporting(1.1, drive("lap", circle(1.3), WORLD))
    found = _held(lap, [0, 1, 2])
    assert not found.scale_known
    assert found.odometry_scale == pytest.approx(1.0, abs=KNOWN_SIGMA)


def test_drift_that_bends_the_path_between_anchors_is_no_scale() -> None:
    """The chord of the bent path is 3.4 % shorter than the straight one that was driven."""
    along = np.arange(0.0, 45.0, 0.1)
    truth = np.column_stack((along, np.zeros_like(along), np.zeros_like(along)))
    corridor = drive("corridor", truth, NOTHING, bias=0.02)
    assert np.hypot(*corridor.odometry.poses[-1, :2]) / along[-1] == pytest.approx(
        np.sin(0.45) / 0.45, abs=0.01
    )
    found = _held(corridor, [0, len(truth) - 1])
    assert found.odometry_scale == pytest.approx(1.0, abs=0.005)


def test_a_doubtful_anchor_that_is_wrong_does_not_spoil_the_scale() -> None:
    lap = drive("lap", circle(1.3), WORLD)
    found = _held(lap, list(range(0, 99, 10)), wrong=50)
    assert found.odometry_scale == pytest.approx(1.0, abs=0.02)
