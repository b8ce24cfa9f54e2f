"""Known poses of drives: where they hold the graph, in which frame, and the scale they imply."""

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
SCALE_SIGMA = 0.05
"""Relative error of wheels' distances: a radius is known to some per cent."""
DRIFT_PER_M = 0.01
"""σ of a closed graph's distances, relative: what cannot be distinguished from a scale."""
MIN_SPREAD_M = 2.0
"""Anchors nearer to each other, RMS, tell no scale."""
ROUNDS = 20


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


def scale_of(poses: Array, anchors: Anchors) -> float | None:
    """Return the factor of the odometry's distances that the anchors imply, None where none does.

    `poses` (n, 3) are the graph's without anchors. A similarity is fitted robustly (Umeyama 1991,
    Geman and McClure's weights), and its scale weighed against the wheels' relative error.
    """
    here, there = poses[anchors.rows, :2], anchors.poses[:, :2]
    sigma = anchors.sigmas[:, :2].max(axis=1)
    weights = 1.0 / sigma**2
    scale, spread = 1.0, 0.0
    for _ in range(ROUNDS):
        middle, target = (np.average(part, axis=0, weights=weights) for part in (here, there))
        source, goal = here - middle, there - target
        spread = float(weights @ (source**2).sum(axis=1))
        if spread / weights.sum() < MIN_SPREAD_M**2:
            return None
        along = float(weights @ (source * goal).sum(axis=1)) / spread
        across = float(weights @ (source[:, 0] * goal[:, 1] - source[:, 1] * goal[:, 0])) / spread
        scale = float(np.hypot(along, across))
        turned = source @ np.array([[along, across], [-across, along]])
        error = (goal - turned) ** 2 @ np.ones(2)
        bound = 9.0 * (sigma**2 + DRIFT_PER_M**2 * (source**2).sum(axis=1))
        weights = (bound / (bound + error)) ** 2 / sigma**2
    variance = 1.0 / spread + DRIFT_PER_M**2
    return 1.0 + (scale - 1.0) * SCALE_SIGMA**2 / (SCALE_SIGMA**2 + variance)
