"""Closures that others support, and those that contradict the path."""

from __future__ import annotations

import numpy as np

from kbf_localization.pose_graph.closures import (
    AGAINST_ODOMETRY,
    LOOK_ALIKE,
    UNSUPPORTED,
    Closure,
    supported,
)
from kbf_localization.pose_graph.keyframes import Keyframes


def _line(count: int) -> Keyframes:
    """Return keyframes every 0.2 m along a line."""
    path = 0.2 * np.arange(count)
    poses = np.column_stack((path, np.zeros((count, 2))))
    zeros, rows = np.zeros(count, np.intp), np.arange(count)
    return Keyframes(zeros, rows, zeros, rows.astype(np.int64), poses, path, path)


def _closure(first: int, second: int, x: float) -> Closure:
    return Closure(first, second, np.array([x, 0.0, 0.0]), 0.01 * np.eye(3), 30, 40, 0.5)


def test_closures_that_agree_against_the_path_are_of_places_that_look_alike() -> None:
    keyframes = _line(200)
    alike = [_closure(row, row + 150, 0.0) for row in (5, 10, 15)]
    alone = _closure(40, 120, 0.0)
    kept, rejected, _ = supported([*alike, alone], keyframes, keyframes.odometry)
    assert kept == []
    assert [item.reason for item in rejected] == [LOOK_ALIKE] * 3 + [AGAINST_ODOMETRY]


def test_closures_along_the_path_need_two_others() -> None:
    keyframes = _line(200)
    near = [_closure(row, row + 30, 6.0) for row in (5, 10, 15)]
    alone = _closure(150, 180, 6.3)
    kept, rejected, support = supported([*near, alone], keyframes, keyframes.odometry)
    assert kept == near
    assert support.tolist() == [2, 2, 2]
    assert [item.reason for item in rejected] == [UNSUPPORTED]
