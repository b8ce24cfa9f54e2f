"""Anchors: the frame that most of them agree on."""

from __future__ import annotations

import numpy as np

from kbf_localization.geometry import compose
from kbf_localization.pose_graph.anchors import into_frame
from kbf_localization.pose_graph.graph import Anchors

ALONG = np.linspace(0.0, 20.0, 41)
PATH = np.column_stack((ALONG, np.sin(0.3 * ALONG), np.zeros(41)))
FRAME = np.array([3.0, -2.0, 0.7])


def _anchors(rows: list[int], poses: np.ndarray, sigma: float = 0.01) -> Anchors:
    return Anchors.certain(np.array(rows, dtype=np.intp), poses, sigma)


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
