"""Anchors: the frame that most of them agree on, and the scale that they imply."""

from __future__ import annotations

import numpy as np
import pytest

from kbf_localization.geometry import compose
from kbf_localization.pose_graph.anchors import DRIFT_PER_M, SCALE_SIGMA, into_frame, scale_of
from kbf_localization.pose_graph.graph import Anchors

ALONG = np.linspace(0.0, 20.0, 41)
PATH = np.column_stack((ALONG, np.sin(0.3 * ALONG), np.zeros(41)))
FRAME = np.array([3.0, -2.0, 0.7])


def _anchors(rows: list[int], poses: np.ndarray, sigma: float = 0.01) -> Anchors:
    return Anchors.certain(np.array(rows, dtype=np.intp), poses, sigma)


def test_anchors_far_apart_tell_the_scale_of_the_wheels() -> None:
    true = compose(FRAME, PATH * [0.95, 0.95, 1.0])
    rows = [0, 20, 40]
    anchors = _anchors(rows, true[rows])
    # A scale of 5 % against what wheels err by: the prior takes a part of it, by its variance.
    spread = ((PATH[rows, :2] - PATH[rows, :2].mean(axis=0)) ** 2).sum() / 0.01**2
    variance = 1.0 / spread + DRIFT_PER_M**2
    expected = 1.0 - 0.05 * SCALE_SIGMA**2 / (SCALE_SIGMA**2 + variance)
    assert scale_of(PATH, anchors) == pytest.approx(expected, abs=1e-6)


def test_a_wrong_anchor_does_not_spoil_the_scale() -> None:
    true = compose(FRAME, PATH)
    rows = list(range(0, 41, 4))
    poses = true[rows]
    poses[5] += [4.0, 3.0, 0.0]
    assert scale_of(PATH, _anchors(rows, poses, 0.05)) == pytest.approx(1.0, abs=2e-3)


def test_anchors_at_one_place_tell_no_scale() -> None:
    true = compose(FRAME, PATH * [0.9, 0.9, 1.0])
    assert scale_of(PATH, _anchors([0, 1, 2], true[:3])) is None


def test_the_frame_is_that_which_most_anchors_agree_on() -> None:
    true = compose(FRAME, PATH)
    rows = [0, 10, 20, 30]
    poses = true[rows]
    poses[0] = [50.0, 50.0, 2.0]
    moved = into_frame(PATH, _anchors(rows, poses), np.zeros(41, np.intp))
    np.testing.assert_allclose(moved, true, atol=1e-9)


def test_each_group_is_moved_by_its_own_anchors() -> None:
    groups = np.repeat([0, 1], [20, 21])
    other = np.array([-1.0, 8.0, -0.4])
    true = np.concatenate((compose(FRAME, PATH[:20]), compose(other, PATH[20:])))
    moved = into_frame(PATH, _anchors([3, 25], true[[3, 25]]), groups)
    np.testing.assert_allclose(moved, true, atol=1e-9)
