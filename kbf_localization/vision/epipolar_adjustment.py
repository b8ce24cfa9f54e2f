"""The camera and its mount by epipolar errors: their robust sum is minimized.

Levenberg and Marquardt's method starts from the best of a grid of focal lengths and directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix

from kbf_localization.arrays import Array
from kbf_localization.errors import KbfError
from kbf_localization.vision.epipolar import (
    BIAS,
    DISTORTION,
    FOCAL,
    FORWARD,
    MAX_FOCAL,
    MIN_FOCAL,
    MIN_MATCHES,
    PITCH,
    VALUES,
    YAW,
    CameraState,
    EpipolarGeometry,
    MatchTable,
    within_limits,
)

FOCALS = np.geomspace(MIN_FOCAL, MAX_FOCAL, 10)
"""The focal lengths that are tried, in image widths."""
YAWS, PITCHES = np.arange(-4, 4) * np.pi / 8, (0.0, 0.15, -0.15, 0.3, -0.3)
"""The directions of view that are tried; the opposite ones have the same epipolar lines."""
LEVERS_M = (0.0, 0.5, -0.5)
"""The lever arms that are tried."""
GRID_MATCHES, GRID_TRUNCATION_PX, STARTS = 600, 12.0, 3
"""Matches with which the grid is searched, the error of an outlier between its points, and how
many of its best points are refined."""
TRUNCATION_PX = 3.0
"""A larger error is an outlier."""
COARSE_SCALES_PX, SCALES_PX = (12.0, 4.0), (3.0, 1.5)
"""Scales of the robust weights, annealed; the last is a keypoint's error in rendered and real
images, with margin."""
GATES, GATE_PX, NEAREST_POINT_M = 2, 4.0, 0.2
"""How often outliers are left out: those further from their epipolar lines, behind the camera, or
nearer to it. Along its line a wrong match lies anywhere, a right match from infinity to there."""
SCANS, SCANNED_SIGMAS = 3, np.arange(-12.0, 12.5, 1.5)
"""How often, and how far, a better minimum is looked for along the flattest direction."""
COARSE_STEPS, STEPS, CONVERGED = 5, 12, 1e-5
"""Steps at each scale at most, and the change of log f, k1, radians or metres that ends them."""
DISTORTION_SIGMA, FORWARD_SIGMA_M = 0.3, 0.3
"""Priors: lenses that are called pinhole have less k1, small robots a shorter lever arm."""
UPRIGHT_MARGIN = 0.05
"""Relative cost by which an upside-down camera must fit better to be believed."""
HEADING_BIAS_SIGMA = 0.008
"""rad/s, prior of wheels that turn too far to one side: half a degree a second."""
START_SIGMAS = np.array([0.01, 0.05])
"""rad: how far a pair's turn, and the direction of its motion, are off; then as the pairs show."""
MIN_SIGMAS, MAX_SIGMAS = np.array([2e-4, 1e-3]), np.array([0.05, 0.2])
MIN_CURVATURE = 1e-2
"""Of the cost, below which nothing is known: ten radians, or tens of times the focal length."""
CHI2_MEDIAN = 0.455
"""Of one degree of freedom: the median of squares over their mean."""
PRIOR_PRECISION = np.array(
    [0.0, DISTORTION_SIGMA**-2, 0.0, 0.0, FORWARD_SIGMA_M**-2, HEADING_BIAS_SIGMA**-2]
)
_DIFFERENCE = 1e-4
"""Step of the numeric derivatives: of log f, k1, radians, metres and rad/s."""


@dataclass(frozen=True)
class Equations:
    """Normal equations of the free values after each pair's motion is eliminated.

    `hessian` (free, free) and `gradient` (free,); `inverse` (p, 2, 2) of the motions' blocks.
    """

    hessian: Array
    gradient: Array
    inverse: Array
    mixed: Array
    pulled: Array

    @classmethod
    def of(
        cls, hessian: Array, gradient: Array, inverse: Array, mixed: Array, pulled: Array
    ) -> Equations:
        coupling = inverse @ mixed
        return cls(
            hessian - np.einsum("pif,pig->fg", mixed, coupling),
            gradient - np.einsum("pif,pi->f", coupling, pulled),
            inverse,
            mixed,
            pulled,
        )

    def motions_for(self, step: Array) -> Array:
        """Return the change (p, 2) of the motions that a step (free,) of the values brings."""
        return np.asarray(-np.einsum("pij,pj->pi", self.inverse, self.pulled + self.mixed @ step))


class EpipolarProblem:
    """The camera's state that makes the epipolar errors of `geometry` smallest.

    `coarse`, without distortion, lever arm and motions of the pairs; `sigmas` (2,) are of these.
    """

    def __init__(
        self, geometry: EpipolarGeometry, coarse: bool = False, sigmas: Array = START_SIGMAS
    ) -> None:
        self.geometry, matches = geometry, geometry.matches
        known = geometry.known is not None
        lens = [] if known else [FOCAL] if coarse else [FOCAL, DISTORTION]
        lever = [] if coarse or matches.translation is not None else [FORWARD]
        turn = [PITCH, YAW, *lever] if matches.mount is None else []
        self.sigmas, self.rigid = sigmas, coarse or not matches.seconds.any()
        bias = [] if self.rigid else [BIAS]
        self.free = np.array([*lens, *turn, *bias], dtype=np.intp)

    @property
    def matches(self) -> MatchTable:
        return self.geometry.matches

    def truncated(self, state: CameraState, limit_px: float) -> float:
        """Return the mean of min(error², limit²) in px²."""
        try:
            errors = self.geometry.errors(state)
        except KbfError:
            return limit_px**2
        squares = np.where(np.isfinite(errors), errors**2, np.inf)
        return float(np.minimum(squares, limit_px**2).mean())

    def search(self) -> CameraState:
        """Return the best focal length and direction of a grid; upside down if that is clear."""
        matches = self.matches.thinned(GRID_MATCHES)
        known = matches.mount is not None
        some = EpipolarProblem(self.geometry.of(matches), coarse=True)
        grid = {
            upside_down: [
                CameraState(np.array([np.log(focal), 0.0, pitch, yaw, 0.0, 0.0]), upside_down)
                for focal in (FOCALS if self.geometry.known is None else (1.0,))
                for pitch in ((0.0,) if known else PITCHES)
                for yaw in ((0.0,) if known else YAWS)
            ]
            for upside_down in (False, True)
        }
        upright = some.best_start(grid[False])
        if known:
            return upright[1]
        turned = some.best_start(grid[True])
        return turned[1] if turned[0] < (1.0 - UPRIGHT_MARGIN) * upright[0] else upright[1]

    def best_start(self, states: Sequence[CameraState]) -> tuple[float, CameraState]:
        """Return the lowest cost, and its state, a few steps from the most promising states."""
        costs = [self.truncated(state, GRID_TRUNCATION_PX) for state in states]
        starts = [states[row] for row in np.argsort(costs, kind="stable")[:STARTS]]
        refined = [self.refine(start, COARSE_SCALES_PX, COARSE_STEPS) for start in starts]
        ends = [self.truncated(state, TRUNCATION_PX) for state in refined]
        best = int(np.argmin(ends))
        return ends[best], refined[best]

    def refine(
        self, state: CameraState, scales: Sequence[float] = SCALES_PX, steps: int = STEPS
    ) -> CameraState:
        """Run Levenberg–Marquardt on the robust errors, whose scale is annealed."""
        for scale in scales:
            state = self._descend(state, scale, steps)
        return state

    def from_levers(self, start: CameraState) -> CameraState:
        """Return the best refinement of a start, by wheels' motions with several lever arms."""
        if self.rigid or FORWARD not in self.free:
            return self.refine(start)
        found = []
        for lever in LEVERS_M:
            values = start.values.copy()
            values[FORWARD] = lever
            found.append(self.refine(start.with_values(values)))
        return min(found, key=lambda state: self.cost(state, SCALES_PX[-1]))

    def scan(self, state: CameraState) -> CameraState:
        """Look for a better minimum along the direction that is determined least.

        Outliers near their epipolar lines make the cost uneven where it is flat: between focal
        length and lever arm.
        """
        scale = SCALES_PX[-1]
        for _ in range(SCANS):
            equations = self.normal_equations(state, scale)
            variances, directions = np.linalg.eigh(equations.hessian)
            step = directions[:, 0] / np.sqrt(max(float(variances[0]), 1.0))
            tried = [self._moved(state, equations, np.asarray(k * step)) for k in SCANNED_SIGMAS]
            costs = [self.cost(item, scale) for item in tried]
            better = self._descend(tried[int(np.argmin(costs))], scale)
            if not self.cost(better, scale) < self.cost(state, scale) - 1e-6:
                break
            state = better
        return state

    def _descend(self, state: CameraState, scale: float, steps: int = STEPS) -> CameraState:
        damping, cost = 1e-3, self.cost(state, scale)
        if not np.isfinite(cost):
            return state
        for _ in range(steps):
            equations = self.normal_equations(state, scale)
            hessian = equations.hessian
            while damping < 1e6:
                damped = hessian + np.diag(damping * np.diag(hessian) + 1e-9)
                step = np.asarray(-np.linalg.solve(damped, equations.gradient))
                tried = self._moved(state, equations, step)
                tried_cost = self.cost(tried, scale)
                if tried_cost < cost:
                    break
                damping *= 10.0
            else:
                break
            state, cost, damping = tried, tried_cost, max(damping / 10.0, 1e-9)
            if np.abs(step).max() < CONVERGED:
                break
        return state

    def _moved(self, state: CameraState, equations: Equations, step: Array) -> CameraState:
        """Return the state after a step (free,), the pairs' motions with it."""
        values = np.zeros(VALUES)
        values[self.free] = step
        if self.rigid:
            return state.with_values(within_limits(state.values + values))
        return state.changed(values, equations.motions_for(step))

    def cost(self, state: CameraState, scale: float) -> float:
        """Return half the sum of Geman and McClure's s² / (1 + s² / scale²), and the priors."""
        try:
            squares = self.geometry.errors(state) ** 2
        except KbfError:
            return np.inf
        squares = np.where(np.isfinite(squares), squares, 1e12)
        total = float((squares / (1.0 + squares / scale**2)).sum())
        total += float((state.values**2 * PRIOR_PRECISION).sum())
        if state.motions is not None:
            total += float(((state.motions / self.sigmas) ** 2).sum())
        return 0.5 * total

    def jacobians(self, state: CameraState) -> tuple[Array, Array]:
        """Return derivatives (m, free) and (m, 2) of the errors by the values and the motions."""
        columns, count = [], len(self.matches.first_poses)
        for number in self.free:
            step = np.zeros(VALUES)
            step[number] = _DIFFERENCE
            columns.append(self._slope(state, step, np.zeros((count, 2))))
        by_motion = [np.zeros(len(self.matches.pair))] * 2 if self.rigid else []
        for axis in range(len(by_motion), 2):
            move = np.zeros((count, 2))
            move[:, axis] = _DIFFERENCE
            by_motion.append(self._slope(state, np.zeros(VALUES), move))
        return np.column_stack(columns), np.column_stack(by_motion)

    def _slope(self, state: CameraState, values: Array, motions: Array) -> Array:
        motion = np.zeros_like(motions) if state.motions is None else state.motions
        ahead, back = (
            self.geometry.errors(
                replace(state, values=state.values + sign * values, motions=motion + sign * motions)
            )
            for sign in (1.0, -1.0)
        )
        return np.nan_to_num((ahead - back) / (2.0 * _DIFFERENCE))

    def weights(self, errors: Array, scale: float) -> Array:
        return np.asarray(np.where(np.isfinite(errors), (1.0 + errors**2 / scale**2) ** -2, 0.0))

    def normal_equations(self, state: CameraState, scale: float) -> Equations:
        """Return Gauss–Newton's equations, with the priors."""
        errors = self.geometry.errors(state)
        weights = self.weights(errors, scale)
        return self._equations(state, np.nan_to_num(errors), weights, weights)

    def _equations(
        self, state: CameraState, errors: Array, weights: Array, curvature: Array
    ) -> Equations:
        by_value, by_motion = self.jacobians(state)
        pull = weights * errors
        hessian = by_value.T @ (curvature[:, None] * by_value)
        hessian += np.diag(PRIOR_PRECISION[self.free])
        gradient = by_value.T @ pull + PRIOR_PRECISION[self.free] * state.values[self.free]
        of_pair = self._of_pair
        count, free = len(self.matches.first_poses), len(self.free)
        bent = curvature[:, None] * by_motion
        blocks = of_pair @ (bent[:, :, None] * by_motion[:, None]).reshape(-1, 4)
        mixed = of_pair @ (bent[:, :, None] * by_value[:, None]).reshape(-1, 2 * free)
        pulled = np.asarray(of_pair @ (by_motion * pull[:, None]))
        precision = self.sigmas**-2
        if state.motions is not None:
            pulled = pulled + state.motions * precision
        inverse = np.linalg.inv(_at_least(blocks.reshape(count, 2, 2), precision))
        return Equations.of(
            hessian,
            np.asarray(gradient),
            np.asarray(inverse),
            mixed.reshape(count, 2, free),
            pulled,
        )

    @cached_property
    def _of_pair(self) -> csr_matrix:
        """The sum over each pair's matches, as a matrix (p, m)."""
        pair = self.matches.pair
        shape = (len(self.matches.first_poses), len(pair))
        return csr_matrix((np.ones(len(pair)), (pair, np.arange(len(pair)))), shape=shape)

    def with_found_sigmas(self, state: CameraState) -> EpipolarProblem:
        """Return the problem with the spread of the pairs' motions that shows in the matches.

        The evidence's maximum, by MacKay's iteration (1992): the sum of squares over the number of
        motions that the matches determine.
        """
        if state.motions is None:
            return self
        unknown = self.normal_equations(state, SCALES_PX[-1]).inverse
        left = np.diagonal(unknown, axis1=1, axis2=2) / self.sigmas**2
        determined = np.maximum((1.0 - left).sum(axis=0), 1e-3)
        squares = np.minimum(state.motions**2, MAX_SIGMAS**2).sum(axis=0)
        sigmas = np.sqrt(squares / determined)
        return EpipolarProblem(self.geometry, sigmas=np.clip(sigmas, MIN_SIGMAS, MAX_SIGMAS))

    def deviations(self, state: CameraState) -> Array:
        """Return standard deviations (6,); those of what is not free are 0.

        The errors of a pair's two poses are common to its matches: the covariance of the gradient
        is summed over pairs (the sandwich estimate), not over matches.
        """
        scale = SCALES_PX[-1]
        errors = np.nan_to_num(self.geometry.errors(state), nan=1e6)
        weights = self.weights(errors, scale)
        # The robust cost's own curvature, which outliers lower, not Gauss and Newton's.
        squares = errors**2 / scale**2
        curvature = (1.0 - 3.0 * squares) * (1.0 + squares) ** -3
        equations = self._equations(state, errors, weights, curvature)
        by_value, _ = self.jacobians(state)
        by_pair = np.asarray(self._of_pair @ (by_value * (weights * errors)[:, None]))
        count = len(by_pair)
        values, vectors = np.linalg.eigh(equations.hessian)
        inverse = (vectors / np.maximum(values, MIN_CURVATURE)) @ vectors.T
        covariance = inverse @ (by_pair.T @ by_pair) @ inverse * count / max(count - VALUES, 1)
        # Where the prior decides, pairs pull at nothing: the curvature tells the deviation.
        noise = float(np.median(errors**2)) / CHI2_MEDIAN
        covariance += noise * inverse
        result = np.zeros(VALUES)
        result[self.free] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return result

    def is_behind(self, state: CameraState) -> bool:
        """Return whether most points whose rays are not parallel would lie behind the camera."""
        nearest, clear = self.geometry.depths(state)
        fits = clear & (np.abs(self.geometry.errors(state)) < TRUNCATION_PX)
        return bool((nearest[fits] < 0.0).mean() > 0.5) if fits.any() else False

    def gated(self, state: CameraState) -> EpipolarProblem:
        """Return the problem without impossible matches; itself where too few would remain."""
        nearest, clear = self.geometry.depths(state)
        fits = np.abs(self.geometry.errors(state)) < GATE_PX
        kept = fits & (~clear | (nearest > NEAREST_POINT_M))
        if int(kept.sum()) < MIN_MATCHES // 2:
            return self
        return EpipolarProblem(self.geometry.of(self.matches.rows(kept)), sigmas=self.sigmas)


def _at_least(blocks: Array, precision: Array) -> Array:
    """Return blocks (p, 2, 2) and a prior's precision (2,), which outliers do not lower."""
    values, vectors = np.linalg.eigh(blocks)
    raised = (vectors * np.maximum(values, 0.0)[:, None]) @ vectors.transpose(0, 2, 1)
    return np.asarray(raised + np.diag(precision))
