"""Given poses that are wrong: found by odometry and closures, mended and named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import ParameterError
from kbf_localization.geometry import compose
from kbf_localization.mapping.poses import with_poses
from kbf_localization.mapping.refine import GIVEN_SIGMA, _near_stretches, given_anchors
from kbf_localization.pose_graph import prepare
from kbf_localization.training_map import TrainingMap
from test.pose_graph.world import World, circle, detect_in_worlds, drive

WORLD = World.of_seed(3)
FRAME = np.array([5.0, -3.0, 0.8])


@pytest.fixture
def _points_for_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "detect", detect_in_worlds)


@pytest.mark.usefixtures("_points_for_images")
def test_a_jump_and_a_gap_in_given_poses_are_mended_and_named() -> None:
    recorded = drive("laser", circle(1.3), WORLD)
    true = compose(FRAME, recorded.truth)
    given = true.copy()
    given[30:45] += [0.9, -0.7, 0.0]
    given[55:70] = np.nan
    source = with_poses([replace(recorded, poses=given)], refine=True)
    found = source.drives[0].poses
    assert found is not None
    assert np.hypot(*(found - true)[:, :2].T).max() < 0.1
    jump, gap = source.mended
    assert (jump.kind, gap.kind) == ("jump", "missing")
    assert (jump.first_s, jump.last_s) == pytest.approx((3.0, 4.4), abs=0.11)
    assert jump.metres == pytest.approx(np.hypot(0.9, 0.7), abs=0.1)
    assert "laser: from 3.0 to 4.4 s the given poses jump by up to 1.1" in jump.described


@pytest.mark.usefixtures("_points_for_images")
def test_given_poses_that_jump_back_after_the_beginning_jump() -> None:
    """As a filter's do that was started at a wrong place; odometry carries them in between."""
    recorded = drive("laser", circle(1.3), WORLD)
    given = compose(FRAME, recorded.truth)
    wrong = np.interp(np.arange(len(given)), [30, 34], [1.0, 0.0])
    given[:, :2] += wrong[:, None] * [0.9, -0.7]
    (found,) = with_poses([replace(recorded, poses=given)], refine=True).mended
    assert found.kind == "jump" and found.first_s == 0.0


def test_stretches_within_a_metre_of_path_are_one() -> None:
    path_m = 0.2 * np.arange(30)
    flags = np.zeros(30, dtype=bool)
    flags[[2, 6, 7, 13, 29]] = True
    assert list(_near_stretches(flags, path_m)) == [(2, 7), (13, 13), (29, 29)]


@pytest.mark.usefixtures("_points_for_images")
def test_given_poses_that_move_away_slowly_drift() -> None:
    recorded = drive("laser", circle(1.3), WORLD)
    given = compose(FRAME, recorded.truth)
    # From the middle on by 0.1 m a metre: what a laser does in a corridor.
    given[:, 0] += np.maximum(np.arange(len(given)) - len(given) // 2, 0) * 0.01
    found = with_poses([replace(recorded, poses=given)], refine=True).mended
    assert found and {stretch.kind for stretch in found} == {"drift"}


def test_given_poses_hold_with_what_their_source_claims() -> None:
    recorded = replace(drive("amcl", circle(0.3), WORLD), poses=circle(0.3))
    ordinary = given_anchors([recorded], step_m=2.0)
    assert ordinary[0].sigma == pytest.approx(GIVEN_SIGMA)
    claimed = np.tile(np.diag([0.2, 0.3, 0.1]) ** 2, (len(recorded), 1, 1))
    object.__setattr__(recorded, "pose_covariances", claimed)
    assert given_anchors([recorded], step_m=2.0)[0].sigma == pytest.approx((0.2, 0.3, 0.1))


def test_without_given_poses_there_is_nothing_to_refine() -> None:
    with pytest.raises(ParameterError, match="no given poses"):
        with_poses([drive("bare", circle(0.2), WORLD)], refine=True)


@pytest.mark.usefixtures("_points_for_images")
def test_a_map_names_only_the_drives_that_it_holds(number_map: TrainingMap) -> None:
    drives = [drive("here", circle(1.3), WORLD), drive("away", circle(0.5), World.of_seed(9))]
    source = with_poses(drives, "odometry")
    assert source.estimates is not None and source.estimates.left_out == ("away",)
    first, *_ = source.annotated(number_map).warnings
    assert first.startswith("the poses of here were estimated from")
