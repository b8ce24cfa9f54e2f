"""A camera and its turn on the robot, learned from matched images whose poses are known.

Two images with a known relative pose constrain each match to a line (the epipolar constraint, E).
Turns show the focal length, straight stretches where the camera looks, the image's corners the
radial distortion, and curves how far ahead of the base it sits, which would else be taken for
focal length. The sideways offset is not learned: it shows less than the errors of the poses do.

A panorama is never guessed: its model is declared. An image three or more times wider than high
most likely is a panorama of 360°, and the result says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.errors import KbfError, ParameterError
from kbf_localization.geometry import wrap_angle
from kbf_localization.vision.camera.base import Camera, as_pixels, check_size
from kbf_localization.vision.camera.camera_info import (
    PANORAMA_ASPECT,
    PANORAMAS,
    declared_panorama,
)
from kbf_localization.vision.camera.mount import Mount, rotation_of
from kbf_localization.vision.camera.pinhole import PinholeCamera

NEAREST_M, FARTHEST_M, LARGEST_TURN_RAD = 0.15, 0.9, 0.6
"""Distance and turn between the images of a pair: a baseline, and still a common view."""
PAIRS = 80
TURNS_RAD = (0.0, 0.05, 0.15, 0.3, LARGEST_TURN_RAD)
"""Pairs are spread evenly over these ranges of turns: straight ones show the direction of view,
turning ones the focal length."""
MAX_IMAGES = 2000
"""Images among which pairs are looked for."""
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
POOR_FOCAL, POOR_TURN_RAD, POOR_DISTORTION = 0.02, 0.01, 0.05
"""Standard deviations (of the focal length relative) beyond which a result is called poor."""
MIN_INLIERS = 0.5
"""Fraction of the matches within the truncation, below which the model does not fit."""
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
class SelfCalibration:
    """What was learned, with standard deviations.

    `focal_sigma` is relative; it and `distortion_sigma` are 0 for a panorama, whose model is given.
    `error_px` is the RMS of the inliers' epipolar errors, `inliers` their fraction. `warnings` say
    what is poorly determined.
    """

    camera: Camera
    mount: Mount
    focal_sigma: float
    distortion_sigma: float
    pitch_sigma: float
    yaw_sigma: float
    forward_sigma_m: float
    error_px: float
    inliers: float
    pairs: int
    matches: int
    warnings: tuple[str, ...]

    @property
    def is_determined(self) -> bool:
        """Whether there is no warning."""
        return not self.warnings

    @property
    def described(self) -> str:
        """One line for people."""
        yaw, pitch, _ = np.degrees(self.mount.angles)
        turn = (
            f"looks {yaw:.1f}° ± {np.degrees(self.yaw_sigma):.1f}° left and {pitch:.1f}° ± "
            f"{np.degrees(self.pitch_sigma):.1f}° down, {self.mount.translation[0]:.2f} m ± "
            f"{self.forward_sigma_m:.2f} m ahead of the base"
        )
        lens = f"{type(self.camera).__name__}"
        if isinstance(self.camera, PinholeCamera):
            k1 = self.camera.distortion[0] if self.camera.distortion else 0.0
            lens = (
                f"focal length {self.camera.fx:.1f} px ± {100 * self.focal_sigma:.1f} %, k1 "
                f"{k1:.3f} ± {self.distortion_sigma:.3f}"
            )
        return (
            f"{lens}, {turn}; {self.error_px:.2f} px RMS, {100 * self.inliers:.0f} % of "
            f"{self.matches} matches in {self.pairs} pairs"
        )


def choose_pairs(poses: ArrayLike, count: int = PAIRS, seed: int = 0) -> Rows:
    """Return rows (p, 2) of images to be matched, at most `count`, of poses (t, 3).

    The pairs are 0.15 to 0.9 m and less than 0.6 rad apart, spread over turns; images with a pose
    that is not finite are in none.
    """
    poses = np.asarray(poses, dtype=np.float64)
    usable = np.flatnonzero(np.isfinite(poses).all(axis=1))
    rows = usable[:: max(1, -(-len(usable) // MAX_IMAGES))]
    if len(rows) < 2:
        return np.zeros((0, 2), dtype=np.intp)
    # Neighbours of a drive are near each other: leaving images out must not leave pairs out.
    near = cKDTree(poses[rows, :2]).query_pairs(FARTHEST_M, output_type="ndarray")
    pairs = rows[near]
    away = poses[pairs[:, 1]] - poses[pairs[:, 0]]
    turn = np.abs(wrap_angle(away[:, 2]))
    apart = (np.hypot(away[:, 0], away[:, 1]) >= NEAREST_M) & (turn < LARGEST_TURN_RAD)
    pairs, turn = pairs[apart], turn[apart]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pairs))
    kind = np.digitize(turn[order], TURNS_RAD)
    # The k-th of each kind comes before the (k + 1)-th of any.
    rank = np.zeros(len(order), dtype=np.intp)
    for item in np.unique(kind):
        rank[kind == item] = np.arange(int((kind == item).sum()))
    chosen = order[np.argsort(rank, kind="stable")[:count]]
    return np.asarray(pairs[np.sort(chosen)], dtype=np.intp)


def calibrate(
    pairs: Sequence[MatchedPair],
    width: int,
    height: int,
    *,
    panorama: str | None = None,
    translation: ArrayLike | None = None,
    mount: Mount | None = None,
) -> SelfCalibration:
    """Learn focal length, k1 and the camera's yaw and pitch; of a declared panorama the latter.

    `panorama` is "cylindrical" or "equirectangular"; `translation` (3,) the camera's place on the
    robot where that is known, else how far ahead it sits is learned too; with a known `mount` only
    the lens is learned. Outliers may be among the matches. ParameterError for less than 8 pairs or
    200 matches.
    """
    check_size(width, height)
    if panorama is not None and panorama not in PANORAMAS:
        declared_panorama(panorama, width, height)
    place = None if translation is None else np.asarray(translation, dtype=np.float64)
    matches = _Matches.of(pairs, place, mount)
    problem = _Problem(matches, width, height, panorama)
    if not len(problem.free):
        return _result(problem, _State(np.zeros(5)), np.zeros(5))
    best = problem.refine(problem.search())
    if mount is None and problem.is_behind(best):
        # The opposite direction has the same epipolar lines; there the points lie ahead.
        best = problem.refine(best.opposite())
    used = problem
    for _ in range(GATES):
        used = problem.gated(best)
        best = used.scan(used.refine(best))
    return _result(problem, best, used.deviations(best))


@dataclass(frozen=True)
class _State:
    """`values` (5,) in the order of FOCAL to FORWARD; an upside-down camera has roll π."""

    values: Array
    upside_down: bool = False

    def with_values(self, values: Array) -> _State:
        return replace(self, values=values)

    def opposite(self) -> _State:
        values = self.values.copy()
        values[PITCH], values[YAW] = -values[PITCH], float(wrap_angle(values[YAW] + np.pi))
        return self.with_values(values)


@dataclass(frozen=True)
class _Matches:
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
    ) -> _Matches:
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

    def rows(self, kept: Flags) -> _Matches:
        """Only the matches that are `kept` (m,); the pairs stay."""
        return replace(self, first=self.first[kept], second=self.second[kept], pair=self.pair[kept])

    def thinned(self, count: int) -> _Matches:
        """About `count` of the matches, for a coarse search."""
        return self.rows(np.arange(len(self.pair)) % max(1, len(self.pair) // count) == 0)


@dataclass(frozen=True)
class _Rays:
    """Unit rays (3, m) of the matches' pixels, and the solid angles (m,) of a pixel there."""

    first: Array
    second: Array
    first_pixel_rad2: Array
    second_pixel_rad2: Array


class _Problem:
    """Epipolar errors in pixels as a function of the state, and their minimum."""

    def __init__(
        self,
        matches: _Matches,
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
        self._seen: dict[tuple[float, float, int], _Rays] = {}

    def camera(self, state: _State) -> Camera:
        if self._declared is not None:
            return self._declared
        log_focal, k1 = float(state.values[FOCAL]), float(state.values[DISTORTION])
        lens = () if k1 == 0.0 else (k1, 0.0, 0.0, 0.0)
        focal = float(np.exp(log_focal)) * self.width
        return PinholeCamera.from_focal(self.width, self.height, focal, lens)

    def mount(self, state: _State) -> Mount:
        return self.matches.mount or Mount(*self._mounted(state))

    def _mounted(self, state: _State) -> tuple[Array, Array]:
        """Return the mount's rotation (3, 3) and translation (3,)."""
        if self.matches.mount is not None:
            return self.matches.mount.rotation, self.matches.mount.translation
        pitch, yaw, forward = (float(value) for value in state.values[PITCH:])
        known = self.matches.translation
        place = np.array([forward, 0.0, 0.0]) if known is None else known
        return rotation_of(yaw, pitch, np.pi if state.upside_down else 0.0), place

    def errors(self, state: _State, matches: _Matches) -> Array:
        """Sampson errors (m,) in pixels; NaN beyond the lens."""
        seen = self.rays(state, matches)
        essential = self._essential(state, matches).take(matches.pair, axis=2)
        at_other = (essential * seen.first).sum(axis=1)
        at_one = (essential * seen.second[:, None]).sum(axis=0)
        error = (seen.second * at_other).sum(axis=0)
        # Gradients on the unit sphere, a pixel being 1 / pixels_per_radian.
        slope_one = (at_one**2).sum(axis=0) - error**2
        slope_other = (at_other**2).sum(axis=0) - error**2
        variance = slope_one * seen.first_pixel_rad2 + slope_other * seen.second_pixel_rad2
        return np.asarray(error / np.sqrt(np.maximum(variance, 1e-24)))

    def rays(self, state: _State, matches: _Matches) -> _Rays:
        """Return what the matches' pixels see.

        Kept for the last few lenses, as the mount varies.
        """
        key = (float(state.values[FOCAL]), float(state.values[DISTORTION]), len(matches.pair))
        if key not in self._seen:
            camera, half = self.camera(state), len(matches.pair)
            pixels = np.concatenate([matches.first, matches.second])
            rays = np.ascontiguousarray(camera.rays(pixels).T)
            areas = camera.pixels_per_radian(pixels) ** -2
            if len(self._seen) >= KEPT_LENSES:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = _Rays(rays[:, :half], rays[:, half:], areas[:half], areas[half:])
        return self._seen[key]

    def _relative_poses(self, state: _State, matches: _Matches) -> tuple[Array, Array]:
        """Rotations (p, 3, 3) and translations (p, 3) from the first into the second camera."""
        turn, place = self._mounted(state)
        rotations, translations = matches.base_motions
        moved = (translations + rotations @ place - place) @ turn
        length = np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
        return turn.T @ rotations @ turn, moved / length

    def _essential(self, state: _State, matches: _Matches) -> Array:
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

    def truncated(self, state: _State, limit_px: float) -> float:
        """Return the mean of min(error², limit²) in px²."""
        try:
            errors = self.errors(state, self.matches)
        except KbfError:
            return limit_px**2
        squares = np.where(np.isfinite(errors), errors**2, np.inf)
        return float(np.minimum(squares, limit_px**2).mean())

    def search(self) -> _State:
        """Return the best of a grid of focal lengths and directions.

        Upright unless that fits worse.
        """
        matches = self.matches.thinned(GRID_MATCHES)
        known = matches.mount is not None
        some = _Problem(matches, self.width, self.height, self.panorama, coarse=True)
        grid = {
            upside_down: [
                _State(np.array([np.log(focal), 0.0, pitch, yaw, 0.0]), upside_down)
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

    def best_start(self, states: Sequence[_State]) -> tuple[float, _State]:
        """Return the best of the states after a few steps from the most promising ones.

        And its cost.
        """
        costs = [self.truncated(state, GRID_TRUNCATION_PX) for state in states]
        starts = [states[row] for row in np.argsort(costs, kind="stable")[:STARTS]]
        refined = [self.refine(start, COARSE_SCALES_PX, COARSE_STEPS) for start in starts]
        ends = [self.truncated(state, TRUNCATION_PX) for state in refined]
        best = int(np.argmin(ends))
        return ends[best], refined[best]

    def refine(
        self, state: _State, scales: Sequence[float] = SCALES_PX, steps: int = STEPS
    ) -> _State:
        """Levenberg–Marquardt on the robust errors, whose scale is annealed."""
        for scale in scales:
            state = self._descend(state, scale, steps)
        return state

    def scan(self, state: _State) -> _State:
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
            tried = [state.with_values(_within(state.values + k * step)) for k in SCANNED_SIGMAS]
            costs = [self._robust_cost(item, scale) for item in tried]
            better = self._descend(tried[int(np.argmin(costs))], scale)
            if not self._robust_cost(better, scale) < self._robust_cost(state, scale) - 1e-6:
                break
            state = better
        return state

    def _descend(self, state: _State, scale: float, steps: int = STEPS) -> _State:
        damping, cost = 1e-3, self._robust_cost(state, scale)
        if not np.isfinite(cost):
            return state
        for _ in range(steps):
            hessian, gradient = self.normal_equations(state, scale)
            while damping < 1e6:
                damped = hessian + np.diag(damping * np.diag(hessian) + 1e-9)
                step = np.zeros(5)
                step[self.free] = -np.linalg.solve(damped, gradient)
                tried = state.with_values(_within(state.values + step))
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

    def _robust_cost(self, state: _State, scale: float) -> float:
        """Half the sum of Geman and McClure's s² / (1 + s² / scale²), and the prior."""
        try:
            squares = self.errors(state, self.matches) ** 2
        except KbfError:
            return np.inf
        squares = np.where(np.isfinite(squares), squares, 1e12)
        total = 0.5 * float((squares / (1.0 + squares / scale**2)).sum())
        return total + 0.5 * float((state.values**2 * PRIOR_PRECISION).sum())

    def jacobian(self, state: _State) -> Array:
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

    def normal_equations(self, state: _State, scale: float) -> tuple[Array, Array]:
        """Gauss–Newton's matrix and gradient, with the prior of k1."""
        errors = self.errors(state, self.matches)
        weights, jacobian = self.weights(errors, scale), self.jacobian(state)
        hessian = jacobian.T @ (weights[:, None] * jacobian)
        gradient = jacobian.T @ (weights * np.nan_to_num(errors))
        hessian += np.diag(PRIOR_PRECISION[self.free])
        gradient += PRIOR_PRECISION[self.free] * state.values[self.free]
        return np.asarray(hessian), np.asarray(gradient)

    def deviations(self, state: _State) -> Array:
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

    def is_behind(self, state: _State) -> bool:
        """Whether most points whose rays are not parallel would lie behind the camera."""
        nearest, clear = self._depths(state)
        fits = clear & (np.abs(self.errors(state, self.matches)) < TRUNCATION_PX)
        return bool((nearest[fits] < 0.0).mean() > 0.5) if fits.any() else False

    def gated(self, state: _State) -> _Problem:
        """Return the problem without the matches that cannot be right.

        Itself where too few remain.
        """
        nearest, clear = self._depths(state)
        fits = np.abs(self.errors(state, self.matches)) < GATE_PX
        kept = fits & (~clear | (nearest > NEAREST_POINT_M))
        if int(kept.sum()) < MIN_MATCHES // 2:
            return self
        return _Problem(self.matches.rows(kept), self.width, self.height, self.panorama)

    def _depths(self, state: _State) -> tuple[Array, Flags]:
        """Return the smaller of a point's two depths in metres (m,), and whether its rays cross."""
        seen = self.rays(state, self.matches)
        rotation, place = self._relative_poses(state, self.matches)
        by_match = rotation.transpose(1, 2, 0).take(self.matches.pair, axis=2)
        one = (by_match * seen.first).sum(axis=1)
        other, moved = seen.second, place.T.take(self.matches.pair, axis=1)
        # d₂ other = d₁ one + moved, in the second camera's frame, by least squares.
        cosine, along = (one * other).sum(axis=0), (other * moved).sum(axis=0)
        parallax = np.maximum(1.0 - cosine**2, 1e-12)
        first = (along * cosine - (one * moved).sum(axis=0)) / parallax
        nearest = np.minimum(first, first * cosine + along)
        away = self.matches.second_poses - self.matches.first_poses
        baseline = np.linalg.norm(away[:, [0, 1, 3]], axis=1)[self.matches.pair]
        return np.asarray(nearest * baseline), np.asarray(parallax > MIN_PARALLAX_RAD**2)


def _within(values: Array) -> Array:
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


def _result(problem: _Problem, state: _State, sigma: Array) -> SelfCalibration:
    errors = problem.errors(state, problem.matches)
    fits = np.abs(errors) < TRUNCATION_PX
    inliers = float(fits.mean())
    return SelfCalibration(
        camera=problem.camera(state),
        mount=problem.mount(state),
        focal_sigma=float(sigma[FOCAL]),
        distortion_sigma=float(sigma[DISTORTION]),
        pitch_sigma=float(sigma[PITCH]),
        yaw_sigma=float(sigma[YAW]),
        forward_sigma_m=float(sigma[FORWARD]),
        error_px=float(np.sqrt((errors[fits] ** 2).mean())) if fits.any() else float("inf"),
        inliers=inliers,
        pairs=len(problem.matches.first_poses),
        matches=len(problem.matches.pair),
        warnings=tuple(_warnings(problem, state, sigma, inliers)),
    )


def _warnings(problem: _Problem, state: _State, sigma: Array, inliers: float) -> list[str]:
    """Return what is not to be relied on, a line each."""
    lines = []
    focal = float(np.exp(state.values[FOCAL]))
    remedy = "record turns on the spot and curves, or give the camera's calibration"
    if problem.panorama is None:
        if sigma[FOCAL] > POOR_FOCAL or not FOCALS[0] < focal < FOCALS[-1]:
            lines.append(
                f"the focal length is poorly determined, {focal * problem.width:.0f} px ± "
                f"{100 * sigma[FOCAL]:.0f} %: {remedy}"
            )
        if sigma[DISTORTION] > POOR_DISTORTION:
            lines.append(f"the distortion is poorly determined, k1 ± {sigma[DISTORTION]:.2f}")
        if problem.width >= PANORAMA_ASPECT * problem.height:
            lines.append(
                f"images of {problem.width}x{problem.height} look like a panorama; declare it "
                "(cylindrical or equirectangular) if it is one"
            )
    turn = float(max(sigma[PITCH], sigma[YAW]))
    if turn > POOR_TURN_RAD:
        lines.append(
            f"the camera's turn is poorly determined, ± {np.degrees(turn):.1f}°: "
            "record straight stretches, or give the mount by tf"
        )
    if state.upside_down:
        lines.append("the camera seems to be upside down")
    if inliers < MIN_INLIERS:
        lines.append(
            f"only {100 * inliers:.0f} % of the matches fit: the camera tilts, its poses are "
            "wrong, or it is no such camera"
        )
    return lines
