"""Motions between neighbouring keyframes that share no points, from the points of either.

Where the wheels slip by some degrees between two images, their matches agree with no point, so that
nothing but the slip joins them. The pose on the neighbour's points, found as for a closure, does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.adjustment import PointGroup
from kbf_localization.pose_graph.closures import Closure
from kbf_localization.pose_graph.edges import OdometryEdges
from kbf_localization.pose_graph.keyframes import Keyframes

MIN_SHARED_POINTS = 8
"""Neighbours that share fewer points are joined by the wheels alone."""
CONTRADICTION_CHI2 = 11.34
"""99 % of motions by wheels, three numbers each, differ by less from those by images."""


def unlinked(groups: Sequence[PointGroup], keyframes: Keyframes, partners: Sequence[Rows]) -> Rows:
    """Return the keyframes (e,) that share hardly a point with the next one of their piece.

    Only of neighbours that are `partners`: across a longer gap another place may look alike.
    """
    shared = np.zeros(len(keyframes), dtype=np.intp)
    for group in groups:
        place = {int(image): view for view, image in enumerate(group.images)}
        for image, view in place.items():
            after = place.get(image + 1)
            if after is not None:
                shared[image] += int((group.seen[view] & group.seen[after]).sum())
    following = keyframes.consecutive()
    near = np.array([row + 1 in partners[row] for row in following.tolist()], dtype=bool)
    return following[near & (shared[following] < MIN_SHARED_POINTS)]


def bridge_pairs(edges: Rows) -> tuple[Rows, Rows]:
    """Return pairs (query, similar) of the keyframes on both sides of edges (e,), both ways."""
    return np.concatenate((edges + 1, edges)), np.concatenate((edges, edges + 1))


def motions_by_edge(found: Sequence[Closure]) -> dict[int, Closure]:
    """Return for each edge, by its first keyframe, the motion to the next with most inliers."""
    best: dict[int, Closure] = {}
    for closure in found:
        edge = min(closure.first, closure.second)
        if edge in best and best[edge].inliers >= closure.inliers:
            continue
        if closure.first != edge:
            back = relative(closure.motion, np.zeros(3))
            cos, sin = np.cos(back[2]), np.sin(back[2])
            # The error of a motion as seen from its other end.
            turn = np.array([[cos, -sin, -back[1]], [sin, cos, back[0]], [0.0, 0.0, 1.0]])
            covariance = turn @ closure.covariance @ turn.T
            closure = replace(
                closure, first=edge, second=edge + 1, motion=back, covariance=covariance
            )
        best[edge] = closure
    return best


def bridged(poses: Array, bridges: Mapping[int, Closure], keyframes: Keyframes) -> Array:
    """Return poses (n, 3), whose motions between neighbours are the bridges' where there are."""
    following = set(keyframes.consecutive().tolist())
    moved = poses.copy()
    for row in range(1, len(poses)):
        if row - 1 in following:
            motion = relative(poses[row - 1], poses[row])
            if row - 1 in bridges:
                motion = bridges[row - 1].motion
            moved[row] = compose(moved[row - 1], motion)
    return np.asarray(moved)


def without_slips(edges: OdometryEdges, bridges: Mapping[int, Closure]) -> OdometryEdges:
    """Return the wheels' edges with the bridges' motions where these contradict the wheels'."""
    motions = edges.motions.copy()
    for number, row in enumerate(edges.first.tolist()):
        if row not in bridges:
            continue
        away = bridges[row].motion - motions[number]
        away[2] = wrap_angle(away[2])
        information = edges.whitening[number].T @ edges.whitening[number]
        both = bridges[row].covariance + np.linalg.inv(information)
        if away @ np.linalg.solve(both, away) > CONTRADICTION_CHI2:
            motions[number] = bridges[row].motion
    return replace(edges, motions=motions)
