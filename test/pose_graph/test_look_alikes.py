"""Places that look alike: named where others contradict them, and distinguished by anchors."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose
from kbf_localization.pose_graph.closures import LOOK_ALIKE, OUTLIER, Closure, Rejected
from kbf_localization.pose_graph.graph import Anchors
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.pose_graph.look_alikes import against_anchors, joins, look_alike_lines

COUNT = 40


def _closure(first: int, second: int, motion: Array | None = None) -> Closure:
    motion = np.zeros(3) if motion is None else motion
    return Closure(first, second, motion, np.eye(3), 30, 40, 0.5)


def _two_drives() -> Keyframes:
    """Return keyframes every 0.2 m along a line, by two drives."""
    path = 0.2 * np.tile(np.arange(COUNT), 2)
    drive, rows = np.repeat([0, 1], COUNT), np.tile(np.arange(COUNT), 2)
    poses = np.column_stack((path, np.zeros((2 * COUNT, 2))))
    return Keyframes(drive, rows, drive, np.arange(2 * COUNT), poses, path, path)


def _rejected(count: int, apart_m: float, reason: str) -> tuple[list[Rejected], Array]:
    """Return closures that say that poses `apart_m` apart are the same."""
    poses = np.column_stack((np.arange(2 * count) // count * apart_m, np.zeros((2 * count, 2))))
    return [Rejected(_closure(row, row + count), reason) for row in range(count)], poses


def test_places_that_look_alike_are_named_with_their_distance() -> None:
    (line,) = look_alike_lines(*_rejected(5, 30.0, LOOK_ALIKE))
    assert "30 m apart look alike in 5 pairs" in line
    assert look_alike_lines(*_rejected(2, 30.0, LOOK_ALIKE)) == []


def test_what_the_final_poses_fit_is_one_place() -> None:
    assert look_alike_lines(*_rejected(5, 0.1, LOOK_ALIKE)) == []


def test_closures_that_most_others_outvote_are_of_another_place_only_if_it_is_far() -> None:
    (line,) = look_alike_lines(*_rejected(5, 8.0, OUTLIER))
    assert "8 m apart look alike in 5 pairs" in line
    assert look_alike_lines(*_rejected(5, 0.6, OUTLIER)) == []


def _anchors(*places: tuple[int, float], doubtful: bool = False) -> Anchors:
    """Return known poses of rows at x."""
    rows = np.array([row for row, _ in places])
    poses = np.array([(x, 0.0, 0.0) for _, x in places])
    return Anchors(rows, poses, np.full((len(rows), 3), 0.05), np.full(len(rows), doubtful))


def test_anchors_far_apart_contradict_all_closures_between_their_drives() -> None:
    keyframes = _two_drives()
    alike = [_closure(row, COUNT + row) for row in range(0, COUNT, 4)]
    within = _closure(2, 30, np.array([5.6, 0.0, 0.0]))

    def wrong(anchors: Anchors) -> list[bool]:
        found = against_anchors([*alike, within], keyframes, keyframes.odometry, anchors)
        return found.tolist()

    apart = [True] * len(alike) + [False]
    none = [False] * (len(alike) + 1)
    assert wrong(_anchors((10, 2.0), (COUNT + 20, 54.0))) == apart
    assert wrong(_anchors((10, 2.0), (COUNT + 20, 4.1))) == none
    assert wrong(_anchors((10, 2.0), (20, 54.0))) == none
    assert wrong(_anchors((10, 2.0), (COUNT + 20, 54.0), doubtful=True)) == none


def test_drift_along_the_path_to_an_anchor_is_no_contradiction() -> None:
    keyframes = _two_drives()
    bend = np.radians(0.4) * keyframes.path_m
    steps = np.column_stack((np.full(COUNT - 1, 0.2), np.zeros(COUNT - 1), np.diff(bend[:COUNT])))
    bent = [np.zeros(3)]
    for step in steps:
        bent.append(compose(bent[-1], step))
    local = np.concatenate((keyframes.odometry[:COUNT], bent))
    alike = [_closure(row, COUNT + row) for row in range(COUNT)]
    anchors = _anchors((0, 0.0), (COUNT, 0.0))
    assert not against_anchors(alike, keyframes, local, anchors).any()


def test_a_join_counts_closures_that_place_the_drive_elsewhere() -> None:
    keyframes = _two_drives()
    poses = keyframes.odometry
    kept = [_closure(row, COUNT + row) for row in range(12)]
    rivals = [
        Rejected(_closure(row, COUNT + row, np.array([-3.0, 0.0, 0.0])), OUTLIER)
        for row in range(20, 25)
    ]
    (join,) = joins(kept, rivals, poses, keyframes, ("one", "two"), {0})
    assert (join.closures, join.rivals, join.anchored) == (12, 5, False)
    assert join.rivals_m == 3.0
    (join,) = joins(kept, rivals[:2], poses, keyframes, ("one", "two"), {0, 1})
    assert (join.rivals, join.rivals_m, join.anchored) == (0, None, True)
    assert joins([], rivals, poses, keyframes, ("one", "two"), set()) == ()
