"""The frame of the poses: what closures and known poses join in it, and its scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # loads its parts at first use: the node does not need the optimizer

from kbf_localization.arrays import Flags
from kbf_localization.pose_graph.anchors import (
    Anchor,
    anchor_rows,
    anchors_at_keyframes,
    into_frame,
)
from kbf_localization.pose_graph.closures import components, counted_once, place_pieces
from kbf_localization.pose_graph.edges import (
    SCALE_SIGMA,
    OdometryEdges,
    at_least_wheel_noise,
    fitted_noise,
    visual_edges,
    with_noise,
)
from kbf_localization.pose_graph.evidence import Evidence
from kbf_localization.pose_graph.graph import Problem
from kbf_localization.progress import Progress

KNOWN_SIGMA = 0.5 * SCALE_SIGMA
"""Anchors that leave the scale more open do not tell it."""
SCALES = 0.7, 1.4
"""Beyond them the odometry is in other units."""
SCALE_STEP = 1e-3
"""Relative accuracy of the scale: a centimetre in 10 m."""


def framed_problem(evidence: Evidence, given: Sequence[Anchor]) -> tuple[Problem, Flags]:
    """Return the graph of the pieces in one frame or anchored, and these pieces."""
    keyframes = evidence.prepared.keyframes
    piece_of = keyframes.piece_of
    groups = components(evidence.closures, piece_of)
    anchored = np.unique(groups[piece_of[anchor_rows(given, keyframes)]])
    largest = np.argmax(np.bincount(groups[piece_of]))
    wanted = anchored if len(anchored) else np.array([largest])
    poses, placed = evidence.local, np.zeros(len(groups), dtype=bool)
    for group in wanted:
        usable = [
            number
            for number, closure in enumerate(evidence.closures)
            if groups[piece_of[closure.first]] == group
            and groups[piece_of[closure.second]] == group
        ]
        root = int(np.flatnonzero(groups == group)[0])
        poses, own = place_pieces(
            [evidence.closures[number] for number in usable],
            evidence.support[usable],
            piece_of,
            poses,
            root,
        )
        placed |= own
    kept = placed[piece_of]
    anchors = anchors_at_keyframes(given, evidence.prepared, kept)
    start = into_frame(poses, anchors, groups[piece_of])
    drives = len(evidence.prepared.drives)
    return Problem(drives, np.flatnonzero(kept), anchors, start), placed


def likely_scale(
    evidence: Evidence, given: Sequence[Anchor], progress: Progress
) -> tuple[float, bool]:
    """Return the most likely factor of the wheels' distances, and whether the anchors tell it.

    Its likelihood is that of the best poses with it: what the drift between anchors explains as
    well does not count for a scale.
    """
    edges = _edges(evidence)
    costs: dict[float, float] = {}

    def cost(scale: float) -> float:
        progress(len(costs), len(costs) + 1, "measuring the odometry's scale by the anchors")
        scaled = evidence.scaled(scale)
        problem, _ = framed_problem(scaled, given)
        kept = problem.kept
        closures = [c for c in scaled.closures if kept[c.first] and kept[c.second]]
        alone = counted_once(closures, scaled.prepared.keyframes)
        prior = ((scale - 1.0) / SCALE_SIGMA) ** 2
        costs[scale] = problem.cost(edges.scaled(scale), alone) + prior
        return costs[scale]

    found = scipy.optimize.minimize_scalar(
        cost, bounds=SCALES, method="bounded", options={"xatol": SCALE_STEP}
    )
    best = float(found.x)
    # Of a Gaussian, the cost grows by one at one standard deviation.
    rise = 0.5 * (cost(best - KNOWN_SIGMA) + cost(best + KNOWN_SIGMA)) - float(found.fun)
    return best, rise > 1.0


def _edges(evidence: Evidence) -> OdometryEdges:
    """Return the drives' edges, by images where these agree with more closures than the wheels."""
    keyframes = evidence.prepared.keyframes
    problem, _ = framed_problem(evidence, ())
    kept = problem.kept
    closures = [c for c in evidence.closures if kept[c.first] and kept[c.second]]
    odometry = evidence.odometry_edges()
    solution = problem.solve(odometry, closures)
    if closures and np.array_equal(evidence.local, evidence.states[:, :3]):
        edges = visual_edges(keyframes, evidence.states[:, :3])
        noise = fitted_noise(edges.motions, solution.poses, keyframes, problem.rows)
        return with_noise(edges, noise, keyframes)
    corrected = odometry.corrected(solution.wheels)
    noise = fitted_noise(corrected, solution.poses, keyframes, problem.rows)
    return with_noise(odometry, at_least_wheel_noise(noise), keyframes)
