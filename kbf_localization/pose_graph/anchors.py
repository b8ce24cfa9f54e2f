"""Known poses of drives: where they hold the graph, and in which frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.geometry import compose, invert, relative
from kbf_localization.pose_graph.graph import GAUGE_SIGMA, Anchors
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.pose_graph.prepare import PreparedDrives

AGREEMENT_M, AGREEMENT_PER_M = 0.5, 0.1
"""An anchor agrees with another's frame within 0.5 m and 10 % of the distance between them."""


@dataclass(frozen=True)
class Anchor:
    """A known pose (x, y in m, heading in rad) of a drive at a time, with its σ.

    One that is `doubtful` is given up where odometry and closures contradict it.
    """

    drive: int
    stamp_ns: int
    pose: tuple[float, float, float]
    sigma: tuple[float, float, float] = (0.05, 0.05, 0.03)
    doubtful: bool = False


def anchor_rows(given: Sequence[Anchor], keyframes: Keyframes) -> Rows:
    """Return the keyframe (a,) nearest in time to each anchor."""
    rows = []
    for anchor in given:
        own = np.flatnonzero(keyframes.drive_of == anchor.drive)
        gap = np.abs(keyframes.stamps_ns[own] - anchor.stamp_ns)
        rows.append(int(own[np.argmin(gap)]))
    return np.array(rows, dtype=np.intp)


def anchors_at_keyframes(given: Sequence[Anchor], prepared: PreparedDrives, kept: Flags) -> Anchors:
    """Return the anchors of keyframes that are kept; without any, the first is the origin."""
    keyframes = prepared.keyframes
    rows = anchor_rows(given, keyframes)
    used = [number for number, row in enumerate(rows) if kept[row]]
    if not used:
        return Anchors.certain(np.flatnonzero(kept)[:1], np.zeros((1, 3)), GAUGE_SIGMA)
    poses = []
    for number in used:
        anchor = given[number]
        stamps = prepared.drives[anchor.drive].stamps_ns
        image = int(np.argmin(np.abs(stamps - anchor.stamp_ns)))
        wheels = prepared.odometry[anchor.drive].poses
        back = relative(wheels[image], keyframes.odometry[rows[number]])
        poses.append(compose(np.array(anchor.pose), back))
    return Anchors(
        rows[used],
        np.array(poses),
        np.array([given[number].sigma for number in used]),
        np.array([given[number].doubtful for number in used]),
    )


def into_frame(poses: Array, anchors: Anchors, groups: Rows) -> Array:
    """Return poses (n, 3), each group of them moved as the most of its anchors agree."""
    moved = poses.copy()
    for group in np.unique(groups[anchors.rows]):
        own = np.flatnonzero(groups[anchors.rows] == group)
        there, here = anchors.poses[own], poses[anchors.rows[own]]
        frames = compose(there, invert(here))
        best, most = frames[0], -1.0
        for number, frame in enumerate(frames):
            away = np.hypot(*(compose(frame, here) - there)[:, :2].T)
            path = np.hypot(*(here - here[number])[:, :2].T)
            agree = float((away < AGREEMENT_M + AGREEMENT_PER_M * path).sum())
            if agree > most:
                best, most = frame, agree
        members = groups == group
        moved[members] = compose(best, poses[members])
    return np.asarray(moved)
