"""Places that look alike: what distinguishes them, and what nothing distinguishes.

Images take them for one place. Within a drive the path between them contradicts that; between
drives known poses do, or other closures that place a drive elsewhere. Two floors that are the same
in every image contradict nothing: drives that images alone join are named as such.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.pose_graph.closures import (
    GATE_M,
    GATE_PER_PATH,
    GATE_RAD,
    GATE_RAD_PER_M,
    HELD_APART,
    LOOK_ALIKE,
    OUTLIER,
    Closure,
    Rejected,
    misfits,
)
from kbf_localization.pose_graph.graph import Anchors
from kbf_localization.pose_graph.keyframes import Keyframes

MIN_LOOK_ALIKE = 3
"""Pairs of images that make two places look alike: as many as would join two pieces."""
ELSEWHERE_M = 1.0
"""Closures that place a keyframe farther away are of another place, not inaccurate."""


@dataclass(frozen=True)
class Join:
    """Two drives in one frame.

    `closures` hold them together, `rivals` would place them `rivals_m` elsewhere (median). They are
    `anchored` where known poses of both drives agree with the closures.
    """

    first: str
    second: str
    closures: int
    rivals: int
    rivals_m: float | None
    anchored: bool


def against_anchors(
    closures: Sequence[Closure], keyframes: Keyframes, local: Array, anchors: Anchors
) -> Flags:
    """Return the closures (c,) between pieces that their known poses place elsewhere.

    `local` (n, 3) are the poses in the frames of their pieces. Closures of two pieces are of one
    frame or of none: what most of them say counts for all. Doubtful anchors decide nothing.
    """
    wrong = np.zeros(len(closures), dtype=bool)
    first, second = (
        np.array([getattr(closure, end) for closure in closures], dtype=np.intp)
        for end in ("first", "second")
    )
    pieces = np.stack((keyframes.piece_of[first], keyframes.piece_of[second]))
    pieces.sort(axis=0)
    placed, driven = _placed_by_anchors(keyframes, local, anchors)
    tested = (pieces[0] != pieces[1]) & np.isfinite(driven[first] + driven[second])
    for pair in np.unique(pieces[:, tested], axis=1).T:
        own = np.flatnonzero(tested & (pair == pieces.T).all(axis=1))
        motions = np.stack([closures[int(number)].motion for number in own])
        away = relative(placed[first[own]], placed[second[own]]) - motions
        path = driven[first[own]] + driven[second[own]]
        # The heading drifts along the path, so that the position's error grows with its square.
        bound = GATE_M + GATE_PER_PATH * path + 0.5 * GATE_RAD_PER_M * path**2
        turn = np.abs(wrap_angle(away[:, 2])) > GATE_RAD + GATE_RAD_PER_M * path
        wrong[own] = np.mean((np.hypot(away[:, 0], away[:, 1]) > bound) | turn) > 0.5
    return wrong


def _placed_by_anchors(keyframes: Keyframes, local: Array, anchors: Anchors) -> tuple[Array, Array]:
    """Return each keyframe's pose (n, 3) by its piece's nearest anchor, and the path (n,) to it.

    The path is infinite where a piece has none.
    """
    placed, driven = local.copy(), np.full(len(keyframes), np.inf)
    for number in np.flatnonzero(~anchors.doubtful):
        row = int(anchors.rows[number])
        path = np.abs(keyframes.path_m - keyframes.path_m[row])
        nearer = (keyframes.piece_of == keyframes.piece_of[row]) & (path < driven)
        driven[nearer] = path[nearer]
        moved = relative(local[row], local[nearer])
        placed[nearer] = compose(anchors.poses[number], moved)
    return placed, driven


def joins(
    closures: Sequence[Closure],
    rejected: Sequence[Rejected],
    poses: Array,
    keyframes: Keyframes,
    names: Sequence[str],
    anchored: Set[int],
) -> tuple[Join, ...]:
    """Return what joins each two drives by final poses (n, 3); `anchored` are drives with anchors.

    Drives that no closure joins directly are in none.
    """
    kept = _by_drives(closures, keyframes)
    rivals = _by_drives(elsewhere(rejected, poses), keyframes)
    found = []
    for (first, second), own in sorted(kept.items()):
        others = rivals.get((first, second), [])
        enough = len(others) >= MIN_LOOK_ALIKE
        found.append(
            Join(
                names[first],
                names[second],
                len(own),
                len(others) if enough else 0,
                float(np.median(_misplaced(others, poses))) if enough else None,
                bool(first in anchored and second in anchored),
            )
        )
    return tuple(found)


def elsewhere(rejected: Sequence[Rejected], poses: Array) -> list[Closure]:
    """Return closures that others support, and that place a keyframe elsewhere than `poses` do."""
    # Wheels that slipped contradict closures which the final poses fit.
    alike = [item.closure for item in rejected if item.reason == LOOK_ALIKE]
    alike = [closure for closure, wrong in zip(alike, misfits(alike, poses)) if wrong]
    others = [item.closure for item in rejected if item.reason == OUTLIER]
    far = _misplaced(others, poses) > ELSEWHERE_M
    return [*alike, *(closure for closure, away in zip(others, far) if away)]


def _misplaced(closures: Sequence[Closure], poses: Array) -> Array:
    """Return how far (c,) from the poses (n, 3) the closures place their keyframes."""
    ends = [(closure.first, closure.second) for closure in closures]
    first, second = np.array(ends, dtype=np.intp).reshape(-1, 2).T
    motions = np.array([closure.motion for closure in closures]).reshape(-1, 3)
    away = relative(poses[first], poses[second]) - motions
    return np.asarray(np.hypot(away[:, 0], away[:, 1]))


def _by_drives(
    closures: Sequence[Closure], keyframes: Keyframes
) -> dict[tuple[int, int], list[Closure]]:
    """Return the closures between different drives, by the drives' numbers in order."""
    found: dict[tuple[int, int], list[Closure]] = {}
    for closure in closures:
        first, second = (
            int(keyframes.drive_of[end]) for end in sorted((closure.first, closure.second))
        )
        if first != second:
            found.setdefault((first, second), []).append(closure)
    return found


def look_alike_lines(rejected: Sequence[Rejected], poses: Array) -> list[str]:
    """Name places that look alike: closures that others support against the poses (n, 3)."""
    lines = []
    held = [item.closure for item in rejected if item.reason == HELD_APART]
    for found, who in (
        (elsewhere(rejected, poses), "as the wheels or more closures say"),
        (held, "as the anchors say: either two floors or wings, or a wrong anchor"),
    ):
        if len(found) < MIN_LOOK_ALIKE:
            continue
        first, second = (
            [getattr(closure, end) for closure in found] for end in ("first", "second")
        )
        apart = np.median(np.hypot(*(poses[first] - poses[second])[:, :2].T))
        lines.append(
            f"places about {apart:.0f} m apart look alike in {len(found)} pairs of images; they "
            f"are taken as different places, {who}"
        )
    return lines
