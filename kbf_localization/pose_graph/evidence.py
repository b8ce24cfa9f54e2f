"""What images say of drives before one frame holds them: visual odometry, and closures.

Where the wheels slip by some degrees between two images, their matches agree with no point, so that
nothing but the slip joins them. Their poses on the points of a keyframe nearby, found as for a
closure, bridge them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import compose, difference, relative
from kbf_localization.landmarks.adjustment import PointGroup
from kbf_localization.landmarks.bearings import spatial
from kbf_localization.landmarks.build import relative_to
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.anchors import Anchor, anchors_at_keyframes
from kbf_localization.pose_graph.closures import (
    HELD_APART,
    MIN_MATCHES,
    Closure,
    Rejected,
    supported,
    verify,
)
from kbf_localization.pose_graph.edges import OdometryEdges, odometry_edges
from kbf_localization.pose_graph.graph import (
    GAUGE_SIGMA,
    Anchors,
    residuals_of,
)
from kbf_localization.pose_graph.joint_adjustment import Adjusted, adjust_with_odometry
from kbf_localization.pose_graph.keyframes import MAX_PATH_M, Keyframes, candidates, describe
from kbf_localization.pose_graph.look_alikes import against_anchors
from kbf_localization.pose_graph.prepare import PreparedDrives
from kbf_localization.pose_graph.tracks import (
    COARSE_SIGMA_PX,
    FINE_SIGMA_PX,
    TrackBuilder,
    neighbours,
)
from kbf_localization.progress import Progress, no_progress

MIN_SHARED_POINTS = 8
"""Neighbours that share fewer points are joined by the wheels alone."""
CONTRADICTION_CHI2 = 11.34
"""99 % of motions by wheels, three numbers each, differ by less from those by images."""


def unlinked(groups: Sequence[PointGroup], keyframes: Keyframes, partners: Sequence[Rows]) -> Rows:
    """Return the keyframes (e,) that share hardly a point with the next keyframe of their piece.

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


def bridge_pairs(
    edges: Rows, keyframes: Keyframes, landmarks: Sequence[ImageLandmarks | None]
) -> tuple[Rows, Rows]:
    """Return pairs (query, similar): the keyframes of edges (e,), and those that may join them.

    They are each other, and the nearest keyframe on each side that has points to be seen.
    """
    rich = [
        row
        for row, points in enumerate(landmarks)
        if points is not None and len(points) >= MIN_MATCHES
    ]
    pairs: set[tuple[int, int]] = set()
    for first in edges.tolist():
        at = bisect_right(rich, first)
        references = {first, first + 1, *rich[max(at - 1, 0) : at], *rich[at : at + 1]}
        pairs |= {
            (end, reference)
            for reference in references
            for end in (first, first + 1)
            if end != reference and _near(keyframes, end, reference)
        }
    queries, similar = np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2).T
    return queries, similar


def _near(keyframes: Keyframes, row: int, other: int) -> bool:
    driven = abs(float(keyframes.path_m[row] - keyframes.path_m[other]))
    return bool(keyframes.piece_of[row] == keyframes.piece_of[other]) and driven < MAX_PATH_M


def motions_by_edge(edges: Rows, found: Sequence[Closure]) -> dict[int, Closure]:
    """Return the motion along each of the edges (e,) that images know, by its first keyframe.

    Both ends are posed on the points of one keyframe, perhaps of one of them: that with most
    inliers.
    """
    seen = {(closure.first, closure.second): closure for closure in found}
    references = sorted({closure.first for closure in found})
    best: dict[int, Closure] = {}
    for edge in edges.tolist():
        for reference in references:
            ends = [seen.get((reference, end)) for end in (edge, edge + 1)]
            known = [end for end in ends if end is not None]
            if len(known) + (reference in (edge, edge + 1)) < 2:
                continue
            inliers = min(closure.inliers for closure in known)
            if edge not in best or best[edge].inliers < inliers:
                best[edge] = _between(edge, ends, min(known, key=lambda end: end.inliers))
    return best


def _between(edge: int, ends: Sequence[Closure | None], weaker: Closure) -> Closure:
    """Return the motion from one end to the other, both as seen from one keyframe; None is it."""
    poses = np.stack([np.zeros(3) if end is None else end.motion for end in ends])
    nothing = np.zeros((3, 3))
    covariances = [nothing if end is None else end.covariance for end in ends]
    rows = np.arange(2)
    motion, by_first, by_second = residuals_of(rows[:1], rows[1:], np.zeros((1, 3)), poses)
    covariance = sum(
        jacobian[0] @ of_end @ jacobian[0].T
        for jacobian, of_end in zip((by_first, by_second), covariances)
    )
    return replace(
        weaker,
        first=edge,
        second=edge + 1,
        motion=motion[0],
        covariance=np.asarray(covariance),
        pixels=None,
    )


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
        away = difference(bridges[row].motion, motions[number])
        information = edges.whitening[number].T @ edges.whitening[number]
        both = bridges[row].covariance + np.linalg.inv(information)
        if away @ np.linalg.solve(both, away) > CONTRADICTION_CHI2:
            motions[number] = bridges[row].motion
    return replace(edges, motions=motions)


@dataclass(frozen=True)
class Evidence:
    """What the images say: states (n, 6) by each drive's own adjustment, and closures.

    `local` (n, 3) are poses in the frames of their pieces, by wheels or by images: those along
    which more closures agree. `support` (c,) counts the closures that agree with each. `bridges`
    join keyframes, by their rows, with the next where these share no points. `by_camera` (n, 6, k)
    is how the states follow a camera that is learned; None where it is known.
    """

    prepared: PreparedDrives
    states: Array
    local: Array
    closures: list[Closure]
    rejected: list[Rejected]
    support: Rows
    bridges: Mapping[int, Closure] = field(default_factory=dict)
    by_camera: Array | None = None

    def odometry_edges(self) -> OdometryEdges:
        """Return the wheels' edges, without slips that images bridge."""
        return without_slips(odometry_edges(self.prepared.keyframes), self.bridges)

    def held_by(self, given: Sequence[Anchor]) -> Evidence:
        """Return the evidence without closures between places that anchors hold apart."""
        if not given or not self.closures:
            return self
        keyframes = self.prepared.keyframes
        everything = np.ones(len(keyframes), dtype=bool)
        anchors = anchors_at_keyframes(given, self.prepared, everything)
        apart = against_anchors(self.closures, keyframes, self.local, anchors)
        kept = np.flatnonzero(~apart)
        alike = [Rejected(self.closures[row], HELD_APART) for row in np.flatnonzero(apart)]
        return replace(
            self,
            closures=[self.closures[row] for row in kept],
            rejected=[*self.rejected, *alike],
            support=self.support[kept],
        )

    def scaled(self, scale: float) -> Evidence:
        """Return the evidence with wheels that drive `scale` times as far: all distances grow."""
        distances = np.array([scale, scale, 1.0, 1.0, 1.0, 1.0])
        by_camera = None if self.by_camera is None else self.by_camera * distances[:, None]
        return replace(
            self,
            prepared=self.prepared.scaled(scale),
            states=self.states * distances,
            by_camera=by_camera,
            local=self.local * (scale, scale, 1.0),
            closures=[closure.scaled(scale) for closure in self.closures],
            rejected=[
                Rejected(rejected.closure.scaled(scale), rejected.reason)
                for rejected in self.rejected
            ],
            bridges={row: closure.scaled(scale) for row, closure in self.bridges.items()},
        )


def gather_evidence(
    prepared: PreparedDrives,
    builder: TrackBuilder | None,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Evidence:
    """Adjust each piece by its own images, and find closures within and between drives."""
    keyframes = prepared.keyframes
    states = spatial(keyframes.odometry)
    nothing = Evidence(prepared, states, keyframes.odometry, [], [], np.empty(0, dtype=np.intp))
    if builder is None or prepared.camera is None:
        return nothing
    partners = neighbours(keyframes)
    visual = _visual_odometry(builder, states, partners, odometry_edges(keyframes), keyframes)
    if visual is None:
        return nothing
    states, builder = visual.adjusted.states, visual.builder
    landmarks = _landmarks(builder, states, partners)
    edges = unlinked(visual.groups, keyframes, partners)
    found = verify(
        bridge_pairs(edges, keyframes, landmarks),
        prepared.keypoints,
        landmarks,
        builder.camera,
        builder.mount,
        workers,
        no_progress,
    )
    bridges = motions_by_edge(edges, found)
    if bridges:
        states[:, :3] = bridged(states[:, :3], bridges, keyframes)
        joined = without_slips(odometry_edges(keyframes), bridges)
        visual = _visual_odometry(builder, states, partners, joined, keyframes) or visual
        states, builder = visual.adjusted.states, visual.builder
        landmarks = _landmarks(builder, states, partners)
    progress(0, 1, "looking for closures")
    pairs = candidates(describe(prepared.keypoints, seed), keyframes)
    found = verify(
        pairs, prepared.keypoints, landmarks, builder.camera, builder.mount, workers, progress
    )
    by_wheels = supported(found, keyframes, keyframes.odometry)
    by_images = supported(found, keyframes, states[:, :3])
    images = len(by_images[0]) > len(by_wheels[0])
    closures, rejected, support = by_images if images else by_wheels
    local = states[:, :3] if images else keyframes.odometry
    prepared = replace(
        prepared, camera=builder.camera, mount=builder.mount, learned=builder.learned
    )
    by_camera = visual.adjusted.by_camera
    return Evidence(prepared, states, local, closures, rejected, support, bridges, by_camera)


@dataclass(frozen=True)
class _VisualOdometry:
    """Drives adjusted by their own images, and the groups of points and the camera at the end."""

    adjusted: Adjusted
    groups: list[PointGroup]
    builder: TrackBuilder


def _visual_odometry(
    builder: TrackBuilder,
    states: Array,
    partners: Sequence[Rows],
    edges: OdometryEdges,
    keyframes: Keyframes,
) -> _VisualOdometry | None:
    """Adjust each piece by its own images, and a learned camera with them; None without points."""
    firsts = np.flatnonzero(np.r_[True, np.diff(keyframes.piece_of) != 0])
    gauge = Anchors.certain(firsts, keyframes.odometry[firsts], GAUGE_SIGMA)
    wheels = np.zeros((int(keyframes.drive_of.max()) + 1, 2))
    found = None
    # Points that a camera as it was learned gives are too coarse to judge it by.
    rounds = (COARSE_SIGMA_PX,) if builder.learned is None else (COARSE_SIGMA_PX, FINE_SIGMA_PX)
    for sigma_px in rounds:
        points = builder.points(states, partners, sigma_px, "visual odometry")
        groups = [each.group for each in points if each.group is not None]
        if not groups:
            return found
        adjusted = adjust_with_odometry(states, wheels, groups, edges, gauge, builder.learned)
        states = adjusted.states
        if adjusted.camera is not None:
            builder = builder.with_camera(adjusted.camera)
        found = _VisualOdometry(adjusted, groups, builder)
    return found


def _landmarks(
    builder: TrackBuilder, states: Array, partners: Sequence[Rows]
) -> list[ImageLandmarks | None]:
    """Return the points of each keyframe, whose states are (n, 6), in the frame of its pose."""
    points = builder.points(states, partners, FINE_SIGMA_PX, "triangulating points", landmarks=True)
    return [
        None if found.landmarks is None else relative_to(state[:3], found.landmarks)
        for state, found in zip(states, points)
    ]
