"""Epipolar errors of matches between images with known poses, as a function of camera and mount.

An error is Sampson's, in pixels; its robust sum is minimized by Levenberg and Marquardt's method
from the best of a grid of focal lengths and directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.geometry import wrap_angle
from kbf_localization.vision.camera.base import Camera, as_pixels
from kbf_localization.vision.camera.camera_info import (
    declared_panorama,
)
from kbf_localization.vision.camera.mount import Mount, rotation_of
from kbf_localization.vision.camera.pinhole import PinholeCamera

MIN_PAIRS, MIN_MATCHES = 8, 200
"""Below them nothing is learned."""
MAX_MATCHES = 40
"""Matches of a pair that are used: more say little beyond, as the pair's pose error is the same."""
FOCALS = np.geomspace(0.4, 2.5, 10)
"""The focal lengths that are tried, in image widths."""
YAWS, PITCHES = np.arange(-4, 4) * np.pi / 8, (0.0, 0.15, -0.15, 0.3, -0.3)
"""The directions of view that are tried; the opposite ones have the same epipolar lines."""
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
nearer to it. Along its line a wrong match lies anywhere, a right one from infinity to there."""
MIN_PARALLAX_RAD = 0.01
"""Rays nearer to parallel have no depth."""
SCANS, SCANNED_SIGMAS = 3, np.arange(-12.0, 12.5, 1.5)
"""How often, and how far, a better minimum is looked for along the flattest direction."""
COARSE_STEPS, STEPS, CONVERGED = 5, 12, 1e-5
"""Steps at each scale at most, and the change of log f, k1, radians or metres that ends them."""
DISTORTION_SIGMA, FORWARD_SIGMA_M = 0.3, 0.3
"""Priors: lenses that are called pinhole have less k1, small robots a shorter lever arm."""
MAX_DISTORTION, MAX_FORWARD_M = 0.6, 2.0
UPRIGHT_MARGIN = 0.05
"""Relative cost by which an upside-down camera must fit better to be believed."""
FOCAL, DISTORTION, PITCH, YAW, FORWARD = range(5)
"""What is learned: log f in image widths, k1, radians, and metres."""
MIN_CURVATURE = 1e-2
"""Of the cost, below which nothing is known: ten radians, or tens of times the focal length."""
CHI2_MEDIAN = 0.455
"""Of one degree of freedom: the median of squares over their mean."""
PRIOR_PRECISION = np.array([0.0, DISTORTION_SIGMA**-2, 0.0, 0.0, FORWARD_SIGMA_M**-2])
KEPT_LENSES = 6
"""Lenses whose rays are kept: those of a numeric derivative."""
_DIFFERENCE = 1e-4
"""Step of the numeric derivatives: of log f, k1 and radians."""


@dataclass(frozen=True)
class MatchedPair:
    """Two images of one camera: the base's poses, and pixels (k, 2) that show the same.

    A pose is (x, y, heading), or with the base's height, pitch and roll where these are known.
    """

    first_pose: Array
    second_pose: Array
    first_pixels: Array
    second_pixels: Array


@dataclass(frozen=True)
class CameraState:
    """`values` (5,) in the order of FOCAL to FORWARD; an upside-down camera has roll π."""

    values: Array
    upside_down: bool = False

    def with_values(self, values: Array) -> CameraState:
        return replace(self, values=values)

    def opposite(self) -> CameraState:
        values = self.values.copy()
        values[PITCH], values[YAW] = -values[PITCH], float(wrap_angle(values[YAW] + np.pi))
        return self.with_values(values)


@dataclass(frozen=True)
class MatchTable:
    """All matches in one table: pixels (m, 2) each, the pair (m,), the base's states (p, 6) each.

    A state is (x, y, heading, height, pitch, roll).
    """

    first: Array
    second: Array
    pair: Rows
    first_poses: Array
    second_poses: Array
    translation: Array | None
    mount: Mount | None

    @classmethod
    def of(
        cls, pairs: Sequence[MatchedPair], translation: Array | None, mount: Mount | None
    ) -> MatchTable:
        if translation is not None and not (
            translation.shape == (3,) and np.isfinite(translation).all()
        ):
            raise ParameterError("the camera's translation is not three finite numbers")
        kept: list[tuple[Array, Array, Array, Array]] = []
        for pair in pairs:
            poses = [np.asarray(pose, np.float64) for pose in (pair.first_pose, pair.second_pose)]
            first, second = as_pixels(pair.first_pixels), as_pixels(pair.second_pixels)
            if any(pose.shape not in ((3,), (6,)) for pose in poses) or len(first) != len(second):
                raise ParameterError(
                    "a pair has two poses of (3,) or (6,) and equally many pixels in each"
                )
            finite = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
            away = poses[1][:2] - poses[0][:2]
            if not finite.any() or not np.isfinite(poses).all() or not away.any():
                continue
            rows = np.flatnonzero(finite)
            rows = rows[:: max(1, -(-len(rows) // MAX_MATCHES))]
            states = [np.append(pose, np.zeros(6 - len(pose))) for pose in poses]
            kept.append((first[rows], second[rows], states[0], states[1]))
        count = sum(len(item[0]) for item in kept)
        if len(kept) < MIN_PAIRS or count < MIN_MATCHES:
            raise ParameterError(
                f"the camera cannot be calibrated from {count} matches in {len(kept)} pairs of "
                f"images; {MIN_MATCHES} in {MIN_PAIRS} are needed: give its calibration"
            )
        return cls(
            np.concatenate([item[0] for item in kept]),
            np.concatenate([item[1] for item in kept]),
            np.repeat(np.arange(len(kept)), [len(item[0]) for item in kept]),
            np.stack([item[2] for item in kept]),
            np.stack([item[3] for item in kept]),
            translation,
            mount,
        )

    @cached_property
    def base_motions(self) -> tuple[Array, Array]:
        """Rotations (p, 3, 3) and translations (p, 3) from the base's first to its second frame."""
        first, second = (
            Rotation.from_euler("ZYX", poses[:, [2, 4, 5]]).as_matrix()
            for poses in (self.first_poses, self.second_poses)
        )
        moved = (self.first_poses - self.second_poses)[:, None, [0, 1, 3]] @ second
        return np.swapaxes(second, 1, 2) @ first, moved[:, 0]

    def rows(self, kept: Flags) -> MatchTable:
        """Return only the matches that are `kept` (m,); the pairs stay."""
        return replace(self, first=self.first[kept], second=self.second[kept], pair=self.pair[kept])

    def thinned(self, count: int) -> MatchTable:
        """Return about `count` of the matches, for a coarse search."""
        return self.rows(np.arange(len(self.pair)) % max(1, len(self.pair) // count) == 0)


@dataclass(frozen=True)
class MatchRays:
    """Unit rays (3, m) of the matches' pixels, and the solid angles (m,) of a pixel there."""

    first: Array
    second: Array
    first_pixel_rad2: Array
    second_pixel_rad2: Array


class EpipolarProblem:
    """Epipolar errors in pixels as a function of the state, and their minimum."""

    def __init__(
        self,
        matches: MatchTable,
        width: int,
        height: int,
        panorama: str | None,
        coarse: bool = False,
    ) -> None:
        self.matches, self.width, self.height, self.panorama = matches, width, height, panorama
        self._declared = None if panorama is None else declared_panorama(panorama, width, height)
        lens = [] if panorama else [FOCAL] if coarse else [FOCAL, DISTORTION]
        lever = [] if coarse or matches.translation is not None else [FORWARD]
        turn = [PITCH, YAW, *lever] if matches.mount is None else []
        self.free = np.array([*lens, *turn], dtype=np.intp)
        self._seen: dict[tuple[float, float, int], MatchRays] = {}

    def camera(self, state: CameraState) -> Camera:
        if self._declared is not None:
            return self._declared
        log_focal, k1 = float(state.values[FOCAL]), float(state.values[DISTORTION])
        lens = () if k1 == 0.0 else (k1, 0.0, 0.0, 0.0)
        focal = float(np.exp(log_focal)) * self.width
        return PinholeCamera.from_focal(self.width, self.height, focal, lens)

    def mount(self, state: CameraState) -> Mount:
        return self.matches.mount or Mount(*self._mounted(state))

    def _mounted(self, state: CameraState) -> tuple[Array, Array]:
        """Return the mount's rotation (3, 3) and translation (3,)."""
        if self.matches.mount is not None:
            return self.matches.mount.rotation, self.matches.mount.translation
        pitch, yaw, forward = (float(value) for value in state.values[PITCH:])
        known = self.matches.translation
        place = np.array([forward, 0.0, 0.0]) if known is None else known
        return rotation_of(yaw, pitch, np.pi if state.upside_down else 0.0), place

    def errors(self, state: CameraState, matches: MatchTable) -> Array:
        """Return Sampson errors (m,) in pixels; NaN beyond the lens."""
        seen = self.rays(state, matches)
        essential = self._essential(state, matches).take(matches.pair, axis=2)
        at_second = (essential * seen.first).sum(axis=1)
        at_first = (essential * seen.second[:, None]).sum(axis=0)
        error = (seen.second * at_second).sum(axis=0)
        # Gradients on the unit sphere, a pixel being 1 / pixels_per_radian.
        slope_first = (at_first**2).sum(axis=0) - error**2
        slope_second = (at_second**2).sum(axis=0) - error**2
        variance = slope_first * seen.first_pixel_rad2 + slope_second * seen.second_pixel_rad2
        return np.asarray(error / np.sqrt(np.maximum(variance, 1e-24)))

    def rays(self, state: CameraState, matches: MatchTable) -> MatchRays:
        """Return what the matches' pixels see; it is kept for the last few lenses."""
        key = (float(state.values[FOCAL]), float(state.values[DISTORTION]), len(matches.pair))
        if key not in self._seen:
            camera, half = self.camera(state), len(matches.pair)
            pixels = np.concatenate([matches.first, matches.second])
            by_pixel, scales = camera.rays_and_scales(pixels)
            rays, areas = np.ascontiguousarray(by_pixel.T), scales**-2
            if len(self._seen) >= KEPT_LENSES:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = MatchRays(rays[:, :half], rays[:, half:], areas[:half], areas[half:])
        return self._seen[key]

    def _relative_poses(self, state: CameraState, matches: MatchTable) -> tuple[Array, Array]:
        """Rotations (p, 3, 3) and translations (p, 3) from the first into the second camera."""
        turn, place = self._mounted(state)
        rotations, translations = matches.base_motions
        moved = (translations + rotations @ place - place) @ turn
        length = np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
        return turn.T @ rotations @ turn, moved / length

    def _essential(self, state: CameraState, matches: MatchTable) -> Array:
        """Return the pairs' essential matrices (3, 3, p): translation × rotation."""
        rotation, place = self._relative_poses(state, matches)
        columns, (x, y, z) = rotation.transpose(1, 2, 0), place.T
        return np.stack(
            [
                y * columns[2] - z * columns[1],
                z * columns[0] - x * columns[2],
                x * columns[1] - y * columns[0],
            ]
        )

    def truncated(self, state: CameraState, limit_px: float) -> float:
        """Return the mean of min(error², limit²) in px²."""
        try:
            errors = self.errors(state, self.matches)
        except KbfError:
            return limit_px**2
        squares = np.where(np.isfinite(errors), errors**2, np.inf)
        return float(np.minimum(squares, limit_px**2).mean())

    def search(self) -> CameraState:
        """Return the best focal length and direction of a grid, upright unless it fits worse."""
        matches = self.matches.thinned(GRID_MATCHES)
        known = matches.mount is not None
        some = EpipolarProblem(matches, self.width, self.height, self.panorama, coarse=True)
        grid = {
            upside_down: [
                CameraState(np.array([np.log(focal), 0.0, pitch, yaw, 0.0]), upside_down)
                for focal in ((1.0,) if self.panorama else FOCALS)
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

    def scan(self, state: CameraState) -> CameraState:
        """Look for a better minimum along the direction that is determined least.

        Outliers near their epipolar lines make the cost uneven where it is flat: between focal
        length and lever arm.
        """
        scale = SCALES_PX[-1]
        for _ in range(SCANS):
            hessian, _ = self.normal_equations(state, scale)
            variances, directions = np.linalg.eigh(hessian)
            step = np.zeros(5)
            step[self.free] = directions[:, 0] / np.sqrt(max(float(variances[0]), 1.0))
            tried = [
                state.with_values(_within_limits(state.values + k * step)) for k in SCANNED_SIGMAS
            ]
            costs = [self._robust_cost(item, scale) for item in tried]
            better = self._descend(tried[int(np.argmin(costs))], scale)
            if not self._robust_cost(better, scale) < self._robust_cost(state, scale) - 1e-6:
                break
            state = better
        return state

    def _descend(self, state: CameraState, scale: float, steps: int = STEPS) -> CameraState:
        damping, cost = 1e-3, self._robust_cost(state, scale)
        if not np.isfinite(cost):
            return state
        for _ in range(steps):
            hessian, gradient = self.normal_equations(state, scale)
            while damping < 1e6:
                damped = hessian + np.diag(damping * np.diag(hessian) + 1e-9)
                step = np.zeros(5)
                step[self.free] = -np.linalg.solve(damped, gradient)
                tried = state.with_values(_within_limits(state.values + step))
                tried_cost = self._robust_cost(tried, scale)
                if tried_cost < cost:
                    break
                damping *= 10.0
            else:
                break
            state, cost, damping = tried, tried_cost, max(damping / 10.0, 1e-9)
            if np.abs(step).max() < CONVERGED:
                break
        return state

    def _robust_cost(self, state: CameraState, scale: float) -> float:
        """Return half the sum of Geman and McClure's s² / (1 + s² / scale²), and the prior."""
        try:
            squares = self.errors(state, self.matches) ** 2
        except KbfError:
            return np.inf
        squares = np.where(np.isfinite(squares), squares, 1e12)
        total = 0.5 * float((squares / (1.0 + squares / scale**2)).sum())
        return total + 0.5 * float((state.values**2 * PRIOR_PRECISION).sum())

    def jacobian(self, state: CameraState) -> Array:
        """Return derivatives (m, free) of the errors by the free values."""
        columns = []
        for number in self.free:
            step = np.zeros(5)
            step[number] = _DIFFERENCE
            ahead = self.errors(state.with_values(state.values + step), self.matches)
            back = self.errors(state.with_values(state.values - step), self.matches)
            columns.append((ahead - back) / (2.0 * _DIFFERENCE))
        return np.nan_to_num(np.column_stack(columns))

    def weights(self, errors: Array, scale: float) -> Array:
        return np.asarray(np.where(np.isfinite(errors), (1.0 + errors**2 / scale**2) ** -2, 0.0))

    def normal_equations(self, state: CameraState, scale: float) -> tuple[Array, Array]:
        """Return Gauss–Newton's matrix and gradient, with the prior of k1."""
        errors = self.errors(state, self.matches)
        weights, jacobian = self.weights(errors, scale), self.jacobian(state)
        hessian = jacobian.T @ (weights[:, None] * jacobian)
        gradient = jacobian.T @ (weights * np.nan_to_num(errors))
        hessian += np.diag(PRIOR_PRECISION[self.free])
        gradient += PRIOR_PRECISION[self.free] * state.values[self.free]
        return np.asarray(hessian), np.asarray(gradient)

    def deviations(self, state: CameraState) -> Array:
        """Return standard deviations (5,); those of what is not free are 0.

        The errors of a pair's two poses are common to its matches: the covariance of the gradient
        is summed over pairs (the sandwich estimate), not over matches.
        """
        scale = SCALES_PX[-1]
        errors = np.nan_to_num(self.errors(state, self.matches), nan=1e6)
        jacobian, weights = self.jacobian(state), self.weights(errors, scale)
        count = len(self.matches.first_poses)
        by_pair = np.zeros((count, len(self.free)))
        np.add.at(by_pair, self.matches.pair, jacobian * (weights * errors)[:, None])
        # The robust cost's own curvature, which outliers lower, not Gauss and Newton's.
        squares = errors**2 / scale**2
        curvature = (1.0 - 3.0 * squares) * (1.0 + squares) ** -3
        hessian = jacobian.T @ (curvature[:, None] * jacobian)
        hessian += np.diag(PRIOR_PRECISION[self.free])
        values, vectors = np.linalg.eigh(hessian)
        inverse = (vectors / np.maximum(values, MIN_CURVATURE)) @ vectors.T
        covariance = inverse @ (by_pair.T @ by_pair) @ inverse * count / max(count - 5, 1)
        # Where the prior decides, pairs pull at nothing: the curvature tells the deviation.
        noise = float(np.median(errors**2)) / CHI2_MEDIAN
        covariance += noise * inverse
        result = np.zeros(5)
        result[self.free] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return result

    def is_behind(self, state: CameraState) -> bool:
        """Return whether most points whose rays are not parallel would lie behind the camera."""
        nearest, clear = self._depths(state)
        fits = clear & (np.abs(self.errors(state, self.matches)) < TRUNCATION_PX)
        return bool((nearest[fits] < 0.0).mean() > 0.5) if fits.any() else False

    def gated(self, state: CameraState) -> EpipolarProblem:
        """Return the problem without impossible matches; itself where too few would remain."""
        nearest, clear = self._depths(state)
        fits = np.abs(self.errors(state, self.matches)) < GATE_PX
        kept = fits & (~clear | (nearest > NEAREST_POINT_M))
        if int(kept.sum()) < MIN_MATCHES // 2:
            return self
        return EpipolarProblem(self.matches.rows(kept), self.width, self.height, self.panorama)

    def _depths(self, state: CameraState) -> tuple[Array, Flags]:
        """Return the smaller of a point's two depths in metres (m,), and whether its rays cross."""
        seen = self.rays(state, self.matches)
        rotation, place = self._relative_poses(state, self.matches)
        by_match = rotation.transpose(1, 2, 0).take(self.matches.pair, axis=2)
        first_ray = (by_match * seen.first).sum(axis=1)
        second_ray, moved = seen.second, place.T.take(self.matches.pair, axis=1)
        # d₂ second_ray = d₁ first_ray + moved, in the second camera's frame, by least squares.
        cosine, along = (first_ray * second_ray).sum(axis=0), (second_ray * moved).sum(axis=0)
        parallax = np.maximum(1.0 - cosine**2, 1e-12)
        depth = (along * cosine - (first_ray * moved).sum(axis=0)) / parallax
        nearest = np.minimum(depth, depth * cosine + along)
        away = self.matches.second_poses - self.matches.first_poses
        baseline = np.linalg.norm(away[:, [0, 1, 3]], axis=1)[self.matches.pair]
        return np.asarray(nearest * baseline), np.asarray(parallax > MIN_PARALLAX_RAD**2)


def _within_limits(values: Array) -> Array:
    """Return the state within its limits."""
    low, high = np.log([0.5 * FOCALS[0], 2.0 * FOCALS[-1]])
    log_focal, k1, pitch, yaw, forward = values
    return np.array(
        [
            np.clip(log_focal, low, high),
            np.clip(k1, -MAX_DISTORTION, MAX_DISTORTION),
            np.clip(pitch, -1.5, 1.5),
            float(wrap_angle(yaw)),
            np.clip(forward, -MAX_FORWARD_M, MAX_FORWARD_M),
        ]
    )
