"""Least squares on SE(2): odometry edges with the wheels' systematic errors, closures, anchors.

A residual of an edge (i, j) is the pose of j as seen from i, minus the measured pose. The wheels'
heading bias (rad/s while they move) and turn scale of each drive are unknowns. Closures are robust:
Geman and McClure's loss, annealed from a convex one (graduated non-convexity, Yang et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_matrix, csc_matrix
from scipy.sparse.linalg import SuperLU, splu

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.geometry import difference, relative, wrap_angle
from kbf_localization.pose_graph.closures import Closure, as_edges
from kbf_localization.pose_graph.edges import (
    SCALE_SIGMA,
    SCALE_STRETCH_M,
    Edges,
    OdometryEdges,
)

HEADING_BIAS_SIGMA = 0.008
"""rad/s, half a degree a second; a recorded robot's wheels drift by 0.005."""
TURN_SCALE_SIGMA = 0.03
"""Relative error of a turn: the tread of a differential drive is known to some per cent."""
GAUGE_SIGMA = 1e-4
"""m and rad; holds the first pose where nothing else does."""
STEPS, CONVERGED = 30, 1e-6
"""Gauss–Newton's steps at most, and the change (m, rad) that ends them."""
INLIER_CHI2 = 11.34
"""99 % of right closures, three numbers each, have less."""
REJECTED_CHI2 = 25.0
"""A closure beyond it does not fit the others."""
ANNEALING_RATE = 1.6
"""The loss's convexity is divided by it from step to step."""
COVARIANCE_COLUMNS = 300
"""Columns of the inverse that are solved for at a time, for bounded memory."""
SCALE_STEP_M = 2.0
"""Path after which distances err by another, correlated scale: well below SCALE_STRETCH_M."""
MAX_COVARIANCES = 1500
"""Nodes whose covariances are computed; those between them are interpolated."""


@dataclass(frozen=True)
class Anchors:
    """Known poses (a, 3) of nodes `rows`, with standard deviations (a, 3).

    Those that are `doubtful` (a,) may be wrong: like closures they are given up where all else
    contradicts them.
    """

    rows: Rows
    poses: Array
    sigmas: Array
    doubtful: Flags

    @classmethod
    def certain(cls, rows: Rows, poses: Array, sigma: float) -> Anchors:
        """Return anchors (a,) that nothing contradicts."""
        return cls(rows, poses, np.full((len(rows), 3), sigma), np.zeros(len(rows), dtype=bool))

    def chi2(self, poses: Array) -> Array:
        """Return each anchor's squared whitened residual (a,)."""
        return np.asarray(((self.away(poses) / self.sigmas) ** 2).sum(axis=1))

    def weighted(self, weights: Array) -> Anchors:
        """Return the anchors with information times `weights` (a,)."""
        return replace(self, sigmas=self.sigmas / np.sqrt(np.maximum(weights, 1e-12))[:, None])

    def away(self, poses: Array) -> Array:
        """Return the differences (a, 3) of poses (n, 3) to the known poses."""
        return difference(poses[self.rows], self.poses)


@dataclass(frozen=True)
class Solution:
    """Poses (n, 3), wheels (d, 2: bias in rad/s, turn scale), χ² and weights of closures (c,).

    `anchor_weights` (a,) are below 1 where an anchor that may be wrong contradicts all else.
    """

    poses: Array
    wheels: Array
    closure_chi2: Array
    closure_weights: Array
    anchor_weights: Array


@dataclass(frozen=True)
class PoseGraph:
    """The least-squares problem of `nodes` poses of `drives` drives."""

    nodes: int
    drives: int
    odometry: OdometryEdges
    closures: Edges
    anchors: Anchors

    def solve(self, poses: Array, wheels: Array | None = None, robust: bool = True) -> Solution:
        """Return the poses of least error, from a start (n, 3)."""
        wheels = np.zeros((self.drives, 2)) if wheels is None else wheels
        weights = self._weights(np.inf, poses)
        doubtful = len(self.closures) + int(self.anchors.doubtful.sum())
        if not robust or not doubtful:
            poses, wheels = self._descend(poses, wheels, weights)
            return self._solution(poses, wheels, weights)
        timid = np.full(len(weights[0]), 0.01), np.where(self.anchors.doubtful, 0.01, 1.0)
        poses, wheels = self._descend(poses, wheels, timid, steps=8)
        largest = np.r_[self._closure_chi2(poses), self.anchors.chi2(poses)].max()
        convexity = max(1.0, 2.0 * float(largest) / INLIER_CHI2)
        while True:
            weights = self._weights(convexity * INLIER_CHI2, poses)
            last = convexity <= 1.0
            poses, wheels = self._descend(poses, wheels, weights, STEPS if last else 3)
            if last:
                break
            convexity = max(1.0, convexity / ANNEALING_RATE)
        return self._solution(poses, wheels, weights)

    def _weights(self, bound: float, poses: Array) -> tuple[Array, Array]:
        """Return Geman and McClure's weights of closures (c,) and of anchors (a,)."""
        if np.isinf(bound):
            return np.ones(len(self.closures)), np.ones(len(self.anchors.rows))
        of_closures = (bound / (bound + self._closure_chi2(poses))) ** 2
        of_anchors = (bound / (bound + self.anchors.chi2(poses))) ** 2
        return of_closures, np.where(self.anchors.doubtful, of_anchors, 1.0)

    def _solution(self, poses: Array, wheels: Array, weights: tuple[Array, Array]) -> Solution:
        return Solution(poses, wheels, self._closure_chi2(poses), *weights)

    def cost(self, solution: Solution) -> float:
        """Return twice the negative log likelihood of a solution: what `solve` makes least."""
        poses, wheels = solution.poses, solution.wheels
        of_anchors = self.anchors.chi2(poses)
        of_anchors = np.where(self.anchors.doubtful, _robust_loss(of_anchors), of_anchors)
        of_wheels = wheels / np.array([HEADING_BIAS_SIGMA, TURN_SCALE_SIGMA])
        return float(
            corrected_chi2(self.odometry, wheels, poses).sum()
            + (of_wheels**2).sum()
            + _robust_loss(self._closure_chi2(poses)).sum()
            + of_anchors.sum()
        )

    def covariances(self, solution: Solution, scales: ScaleErrors | None = None) -> Array:
        """Return the covariances (n, 3, 3) of the poses, relative to what holds the graph.

        With `scales` they contain that distances err alike over metres of path.
        """
        normal, _ = self._normal_equations(
            solution.poses,
            solution.wheels,
            (solution.closure_weights, solution.anchor_weights),
            scales,
        )
        factor = factorize(normal)
        return diagonal_blocks(factor, normal.shape[0], self.nodes, 3)

    def _descend(
        self, poses: Array, wheels: Array, weights: tuple[Array, Array], steps: int = STEPS
    ) -> tuple[Array, Array]:
        for _ in range(steps):
            normal, gradient = self._normal_equations(poses, wheels, weights)
            change = -factorize(normal).solve(gradient)
            poses = poses + change[: 3 * self.nodes].reshape(-1, 3)
            wheels = wheels + change[3 * self.nodes :].reshape(-1, 2)
            if np.abs(change).max() < CONVERGED:
                break
        return np.column_stack((poses[:, :2], wrap_angle(poses[:, 2]))), wheels

    def _closure_chi2(self, poses: Array) -> Array:
        return chi2_of(self.closures, poses)

    def _normal_equations(
        self,
        poses: Array,
        wheels: Array,
        weights: tuple[Array, Array],
        scales: ScaleErrors | None = None,
    ) -> tuple[csc_matrix, Array]:
        more = 0 if scales is None else len(scales.begins)
        system = NormalEquations(self.nodes, self.drives, stride=3, more=more)
        system.add_edges(self.closures, poses, weights[0])
        system.add_odometry(self.odometry, poses, wheels, scales=scales)
        system.add_anchors(self.anchors.weighted(weights[1]), poses)
        return system.assembled()


def _robust_loss(chi2: Array) -> Array:
    """Return Geman and McClure's loss."""
    return np.asarray(INLIER_CHI2 * chi2 / (INLIER_CHI2 + chi2))


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

    def cost(self, edges: OdometryEdges, closures: Sequence[Closure]) -> float:
        """Return twice the negative log likelihood of the solution."""
        graph = self._graph(edges, closures)
        return graph.cost(graph.solve(self.start[self.rows]))

    def covariances(
        self, edges: OdometryEdges, closures: Sequence[Closure], poses: Array, path_m: Array
    ) -> Array:
        """Return covariances (n, 3, 3) at given poses (n, 3), NaN for what is not kept.

        Distances err alike along the path (n,).
        """
        blocks = np.full((len(self.start), 3, 3), np.nan)
        graph = self._graph(edges, closures)
        scales = ScaleErrors.along(graph.odometry, path_m[self.rows])
        blocks[self.rows] = graph.covariances(self._at(poses, len(closures)), scales)
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
        settled = replace(
            self.anchors.weighted(weights),
            rows=self.rows[self.anchors.rows],
            doubtful=np.zeros(len(weights), dtype=bool),
        )
        return Problem(self.drives, self.rows, settled, self.start)


@dataclass(frozen=True)
class ScaleErrors:
    """Relative errors of the distances along drives: a Gauss–Markov process along each.

    `unknown_of` (m,) is each edge's, every `SCALE_STEP_M` of path another; `begins` (u,) tells with
    which a drive begins.
    """

    unknown_of: Rows
    begins: Flags

    @classmethod
    def along(cls, edges: OdometryEdges, path_m: Array) -> ScaleErrors:
        """Return the unknowns of edges between nodes at `path_m` (n,)."""
        unknown_of, begins = np.zeros(len(edges), dtype=np.intp), np.empty(0, dtype=bool)
        for drive in np.unique(edges.drive):
            own = np.flatnonzero(edges.drive == drive)
            path = path_m[edges.first[own]]
            step = np.floor((path - path.min()) / SCALE_STEP_M).astype(np.intp)
            unknown_of[own] = len(begins) + step
            begins = np.r_[begins, np.arange(step.max() + 1) == 0]
        return cls(unknown_of, begins)

    def priors(self, at: int) -> tuple[tuple[Rows, Array, Array], ...]:
        """Return the process's own equations of the unknowns, which begin at `at`.

        Unknowns, jacobians and whitened residuals, as `NormalEquations.add` takes them.
        """
        kept = float(np.exp(-SCALE_STEP_M / SCALE_STRETCH_M))
        first, later = np.flatnonzero(self.begins), np.flatnonzero(~self.begins)
        each = np.full((len(first), 1, 1), 1.0 / SCALE_SIGMA)
        step = np.array([[-kept, 1.0]]) / (SCALE_SIGMA * np.sqrt(1.0 - kept**2))
        pairs = at + later[:, None] + np.array([-1, 0])
        return (
            (at + first[:, None], each, np.zeros((len(first), 1))),
            (pairs, np.tile(step, (len(later), 1, 1)), np.zeros((len(later), 1))),
        )


def residuals_of(
    first: Rows, second: Rows, motions: Array, poses: Array
) -> tuple[Array, Array, Array]:
    """Return residuals (m, 3) and jacobians (m, 3, 3) by the first and the second pose."""
    seen = relative(poses[first], poses[second])
    residual = difference(seen, motions)
    cos, sin = np.cos(poses[first, 2]), np.sin(poses[first, 2])
    by_second = np.zeros((len(first), 3, 3))
    by_second[:, 0, 0], by_second[:, 0, 1] = cos, sin
    by_second[:, 1, 0], by_second[:, 1, 1] = -sin, cos
    by_second[:, 2, 2] = 1.0
    by_first = -by_second
    by_first[:, 0, 2], by_first[:, 1, 2] = seen[:, 1], -seen[:, 0]
    return residual, by_first, by_second


def chi2_of(edges: Edges, poses: Array) -> Array:
    """Return each edge's squared whitened residual (m,)."""
    residual, _, _ = residuals_of(edges.first, edges.second, edges.motions, poses)
    white = np.einsum("mij,mj->mi", edges.whitening, residual)
    return np.asarray((white**2).sum(axis=1))


def corrected_chi2(odometry: OdometryEdges, wheels: Array, poses: Array) -> Array:
    """Return each odometry edge's squared whitened residual (m,), without the wheels' errors."""
    return chi2_of(replace(odometry, motions=odometry.corrected(wheels)), poses)


class NormalEquations:
    """Collects sparse normal equations of poses and of the wheels' errors, which follow them.

    The unknowns of the `nodes` are `stride` apart, each node's pose (3,) first; those of the
    `drives` are two each. `more` unknowns follow, from `more_at` on.
    """

    def __init__(self, nodes: int, drives: int, stride: int, more: int = 0) -> None:
        self._rows: list[Rows] = []
        self._columns: list[Rows] = []
        self._values: list[Array] = []
        self.wheels_at, self._stride = stride * nodes, stride
        self.more_at = self.wheels_at + 2 * drives
        self.size = self.more_at + more
        self._gradient = np.zeros(self.size)

    def add(self, unknowns: Rows, jacobians: Array, residuals: Array) -> None:
        """Add m whitened residuals (m, r) with jacobians (m, r, u) by `unknowns` (m, u)."""
        if len(unknowns):
            self.add_block(
                unknowns,
                np.einsum("mra,mrb->mab", jacobians, jacobians),
                np.einsum("mra,mr->ma", jacobians, residuals),
            )

    def add_block(self, unknowns: Rows, normal: Array, gradient: Array) -> None:
        """Add blocks (m, u, u) and gradients (m, u) of `unknowns` (m, u)."""
        count = unknowns.shape[1]
        self._rows.append(np.repeat(unknowns, count, axis=1).ravel())
        self._columns.append(np.tile(unknowns, (1, count)).ravel())
        self._values.append(normal.ravel())
        np.add.at(self._gradient, unknowns, gradient)

    def add_edges(self, edges: Edges, poses: Array, weights: Array) -> None:
        """Add edges between nodes at `poses` (n, 3), with information times `weights` (m,)."""
        residual, by_first, by_second = residuals_of(
            edges.first, edges.second, edges.motions, poses
        )
        white = edges.whitening * np.sqrt(weights)[:, None, None]
        jacobian = white @ np.concatenate((by_first, by_second), axis=2)
        unknowns = np.concatenate((self._poses(edges.first), self._poses(edges.second)), axis=1)
        self.add(unknowns, jacobian, np.einsum("mij,mj->mi", white, residual))

    def add_odometry(
        self,
        edges: OdometryEdges,
        poses: Array,
        wheels: Array,
        weights: Array | None = None,
        scales: ScaleErrors | None = None,
    ) -> None:
        """Add odometry edges, and the priors of the wheels' errors (d, 2) and of `scales`."""
        motions = edges.corrected(wheels)
        residual, by_first, by_second = residuals_of(edges.first, edges.second, motions, poses)
        white = edges.whitening
        if weights is not None:
            white = white * np.sqrt(weights)[:, None, None]
        slopes = [by_first, by_second, edges.by_wheels(wheels)]
        unknowns = [
            self._poses(edges.first),
            self._poses(edges.second),
            self.wheels_at + 2 * edges.drive[:, None] + np.arange(2),
        ]
        if scales is not None:
            slopes.append((-motions * (1.0, 1.0, 0.0))[:, :, None])
            unknowns.append(self.more_at + scales.unknown_of[:, None])
            for equations in scales.priors(self.more_at):
                self.add(*equations)
        jacobian = white @ np.concatenate(slopes, axis=2)
        residuals = np.einsum("mij,mj->mi", white, residual)
        self.add(np.concatenate(unknowns, axis=1), jacobian, residuals)
        precision = np.array([1.0 / HEADING_BIAS_SIGMA, 1.0 / TURN_SCALE_SIGMA])
        own = self.wheels_at + np.arange(wheels.size)[:, None]
        spread = np.tile(precision, len(wheels))[:, None]
        self.add(own, spread[:, :, None], spread * wheels.reshape(-1, 1))

    def add_anchors(self, anchors: Anchors, poses: Array) -> None:
        """Add priors of poses."""
        if len(anchors.rows):
            away = anchors.away(poses)
            precision = 1.0 / anchors.sigmas
            jacobian = precision[:, :, None] * np.eye(3)
            self.add(self._poses(anchors.rows), jacobian, precision * away)

    def assembled(self) -> tuple[csc_matrix, Array]:
        """Return the sparse normal matrix and the gradient."""
        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        values = np.concatenate(self._values)
        shape = self.size, self.size
        return coo_matrix((values, (rows, columns)), shape=shape).tocsc(), self._gradient

    def _poses(self, nodes: Rows) -> Rows:
        return _unknowns(nodes, self._stride)


def _unknowns(nodes: Rows, stride: int) -> Rows:
    return np.asarray(stride * nodes[:, None] + np.arange(3))


def factorize(normal: csc_matrix) -> SuperLU:
    """Return the factors of a sparse symmetric positive definite matrix."""
    return splu(
        normal,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def diagonal_blocks(factor: SuperLU, size: int, nodes: int, stride: int) -> Array:
    """Return the inverse's blocks (nodes, 3, 3) of the poses; of many, some are interpolated."""
    chosen = np.unique(np.linspace(0, nodes - 1, min(nodes, MAX_COVARIANCES)).astype(np.intp))
    found = np.empty((len(chosen), 3, 3))
    together = max(COVARIANCE_COLUMNS // 3, 1)
    for start in range(0, len(chosen), together):
        part = chosen[start : start + together]
        unknowns = _unknowns(part, stride)
        columns = np.zeros((size, unknowns.size))
        columns[unknowns.ravel(), np.arange(unknowns.size)] = 1.0
        solved = factor.solve(columns)
        blocks = solved[unknowns].reshape(len(part), 3, len(part), 3)
        own = np.arange(len(part))
        found[start : start + together] = blocks[own, :, own, :]
    if len(chosen) == nodes:
        return found
    flat = found.reshape(-1, 9)
    at = np.arange(nodes)
    columns_of = [np.interp(at, chosen, column) for column in flat.T]
    return np.stack(columns_of, axis=1).reshape(-1, 3, 3)
