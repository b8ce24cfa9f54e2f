"""The graph of the keyframes that are kept, in the rows of all keyframes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.pose_graph.closures import Closure, as_edges
from kbf_localization.pose_graph.graph import (
    Anchors,
    Edges,
    OdometryEdges,
    PoseGraph,
    Solution,
)


class Problem:
    """Poses (n, 3) of all keyframes, of which the graph holds those in `rows`; from `start`."""

    def __init__(self, drives: int, rows: Rows, anchors: Anchors, start: Array) -> None:
        self.drives, self.rows, self.start = drives, rows, start
        self.kept = np.zeros(len(start), dtype=bool)
        self.kept[rows] = True
        self.local = np.full(len(start), -1, dtype=np.intp)
        self.local[rows] = np.arange(len(rows))
        self.anchors = replace(anchors, rows=self.local[anchors.rows])

    def edges_of(self, edges: OdometryEdges) -> OdometryEdges:
        """Return the edges between kept keyframes, in the graph's own rows."""
        own = self.kept[edges.first] & self.kept[edges.second]
        return OdometryEdges(
            self.local[edges.first[own]],
            self.local[edges.second[own]],
            edges.motions[own],
            edges.whitening[own],
            edges.drive[own],
            edges.seconds[own],
        )

    def solve(self, edges: OdometryEdges, closures: Sequence[Closure]) -> Solution:
        """Return the solution, with the start where a keyframe is not kept."""
        found = self._graph(edges, closures).solve(self.start[self.rows])
        poses = self.start.copy()
        poses[self.rows] = found.poses
        return replace(found, poses=poses)

    def covariances(self, edges: OdometryEdges, closures: Sequence[Closure], poses: Array) -> Array:
        """Return covariances (n, 3, 3) at given poses (n, 3), NaN for what is not kept."""
        blocks = np.full((len(self.start), 3, 3), np.nan)
        graph = self._graph(edges, closures)
        blocks[self.rows] = graph.covariances(self._at(poses, len(closures)))
        return blocks

    def _at(self, poses: Array, closures: int) -> Solution:
        ones = np.ones(closures)
        wheels = np.zeros((self.drives, 2))
        trust = np.ones(len(self.anchors.rows))
        return Solution(poses[self.rows], wheels, ones, ones, trust)

    def _graph(self, edges: OdometryEdges, closures: Sequence[Closure]) -> PoseGraph:
        found = as_edges(closures)
        local = Edges(
            self.local[found.first], self.local[found.second], found.motions, found.whitening
        )
        return PoseGraph(len(self.rows), self.drives, self.edges_of(edges), local, self.anchors)

    def with_anchor_weights(self, weights: Array) -> Problem:
        """Return the problem with the anchors' information times `weights` (a,), for good."""
        made = Problem(self.drives, self.rows, self.anchors, self.start)
        settled = replace(self.anchors, doubtful=np.zeros(len(weights), dtype=bool))
        made.anchors = settled.weighted(weights)
        return made
