"""A camera and its turn on the robot, learned from matched images whose poses are known.

Two images with a known relative pose constrain each match to a line (the epipolar constraint, E).
Turns show the focal length, straight stretches where the camera looks, the image's corners the
radial distortion, and curves how far ahead of the base it sits, which would else be taken for
focal length. The sideways offset is not learned: it shows less than the errors of the poses do.

Wheels turn too far to one side, and slip between two images. Both would be taken for the camera:
where poses are the wheels', their heading bias is learned with it, and each pair's own motion may
err, by as much as the matches of all pairs show.

Of a known camera whose mount is unknown only the turn and the place are learned. A panorama is
never guessed: its model is declared. An image three or more times wider than high most likely is a
panorama of 360°, and the result says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import wrap_angle
from kbf_localization.vision.camera.base import Camera, check_size
from kbf_localization.vision.camera.camera_info import PANORAMA_ASPECT
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera
from kbf_localization.vision.epipolar import (
    DISTORTION,
    FOCAL,
    FORWARD,
    MAX_FOCAL,
    MIN_FOCAL,
    PITCH,
    VALUES,
    YAW,
    CameraState,
    EpipolarGeometry,
    MatchedPair,
    MatchTable,
)
from kbf_localization.vision.epipolar_adjustment import GATES, TRUNCATION_PX, EpipolarProblem

NEAREST_M, FARTHEST_M, MAX_TURN_RAD = 0.15, 0.9, 0.6
"""Distance and turn between the images of a pair: a baseline, and still a common view."""
PAIRS = 80
TURNS_RAD = (0.0, 0.05, 0.15, 0.3, MAX_TURN_RAD)
"""Pairs are spread evenly over these ranges of turns: straight ones show the direction of view,
turning ones the focal length."""
MAX_IMAGES = 2000
"""Images among which pairs are looked for."""
POOR_FOCAL, POOR_TURN_RAD, POOR_DISTORTION = 0.02, 0.01, 0.05
"""Standard deviations (of the focal length relative) beyond which a result is called poor."""
UNDETERMINED_FOCAL, UNDETERMINED_DISTORTION = 0.1, 0.3
UNDETERMINED_RAD, UNDETERMINED_M = 0.1, 0.3
"""Standard deviations beyond which a figure says nothing: it is called not determined."""
MIN_INLIERS = 0.5
"""Fraction of the matches within the truncation, below which the model does not fit."""
FEW_PAIRS = 30
"""Pairs below which an unknown lever arm may be taken for focal length: with 12 in rendered offices
one result of eight was 7 % and eight of its deviations off, with 30 none was beyond 1 %."""
LEVEL_AHEAD = "no mount of the camera is known, nor learned: it is taken to look ahead and be level"


@dataclass(frozen=True)
class SelfCalibration:
    """What was learned, with standard deviations.

    `focal_sigma` is relative; it and `distortion_sigma` are 0 for a known camera.
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
    def sigmas(self) -> Array:
        """The deviations in the order of FOCAL to FORWARD; 0 for what is known."""
        lens = self.focal_sigma, self.distortion_sigma
        return np.array([*lens, self.pitch_sigma, self.yaw_sigma, self.forward_sigma_m])

    @property
    def shows_turn(self) -> bool:
        """Whether the direction of view is determined."""
        certain = max(self.pitch_sigma, self.yaw_sigma) <= UNDETERMINED_RAD
        return certain and self.inliers >= MIN_INLIERS

    @property
    def described(self) -> str:
        """One line for people."""
        yaw, pitch, _ = np.degrees(self.mount.angles)
        turn = "direction of view not determined"
        if max(self.yaw_sigma, self.pitch_sigma) <= UNDETERMINED_RAD:
            turn = (
                f"looks {yaw:.1f}° ± {np.degrees(self.yaw_sigma):.1f}° left and {pitch:.1f}° ± "
                f"{np.degrees(self.pitch_sigma):.1f}° down"
            )
        place = "place ahead of the base not determined"
        if self.forward_sigma_m <= UNDETERMINED_M:
            place = (
                f"{self.mount.translation[0]:.2f} m ± {self.forward_sigma_m:.2f} m ahead of the "
                "base"
            )
        turn = f"{turn}, {place}"
        lens = f"calibrated {type(self.camera).__name__}"
        if isinstance(self.camera, PinholeCamera) and self.focal_sigma > 0.0:
            k1 = self.camera.distortion[0] if self.camera.distortion else 0.0
            lens = "focal length not determined"
            if self.focal_sigma <= UNDETERMINED_FOCAL:
                lens = f"focal length {self.camera.fx:.1f} px ± {100 * self.focal_sigma:.1f} %"
            if self.distortion_sigma <= UNDETERMINED_DISTORTION:
                lens += f", k1 {k1:.3f} ± {self.distortion_sigma:.3f}"
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
    apart = (np.hypot(away[:, 0], away[:, 1]) >= NEAREST_M) & (turn < MAX_TURN_RAD)
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
    camera: Camera | None = None,
    translation: ArrayLike | None = None,
    mount: Mount | None = None,
) -> SelfCalibration:
    """Learn focal length, k1 and the camera's yaw and pitch; of a known `camera` the latter.

    `translation` (3,) is the camera's place on the robot where that is known, else how far ahead it
    sits is learned too; with a known `mount` only the lens is learned. Outliers may be among the
    matches. ParameterError for less than 8 pairs or 200 matches.
    """
    check_size(width, height)
    place = None if translation is None else np.asarray(translation, dtype=np.float64)
    matches = MatchTable.of(pairs, place, mount)
    problem = EpipolarProblem(EpipolarGeometry(matches, width, height, camera))
    if not len(problem.free):
        return _result(problem, CameraState(np.zeros(VALUES)), np.zeros(VALUES))
    best = problem.from_levers(problem.search())
    if mount is None and problem.is_behind(best):
        # The opposite direction has the same epipolar lines; there the points lie ahead.
        best = problem.refine(best.opposite())
    used = problem
    for _ in range(GATES):
        used = problem.gated(best).with_found_sigmas(best)
        best = used.scan(used.refine(best))
    return _result(problem, best, used.deviations(best))


def _result(problem: EpipolarProblem, state: CameraState, sigma: Array) -> SelfCalibration:
    errors = problem.geometry.errors(state)
    fits = np.abs(errors) < TRUNCATION_PX
    inliers = float(fits.mean())
    return SelfCalibration(
        camera=problem.geometry.camera(state),
        mount=problem.geometry.mount(state),
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


def _warnings(
    problem: EpipolarProblem, state: CameraState, sigma: Array, inliers: float
) -> list[str]:
    """Return what is not to be relied on, a line each."""
    lines, geometry = [], problem.geometry
    focal = float(np.exp(state.values[FOCAL]))
    remedy = "record turns on the spot and curves, or give the camera's calibration"
    if geometry.known is None:
        if sigma[FOCAL] > UNDETERMINED_FOCAL:
            lines.append(f"the focal length is not determined: {remedy}")
        elif sigma[FOCAL] > POOR_FOCAL or not MIN_FOCAL < focal < MAX_FOCAL:
            lines.append(
                f"the focal length is poorly determined, {focal * geometry.width:.0f} px ± "
                f"{100 * sigma[FOCAL]:.0f} %: {remedy}"
            )
        pairs = len(problem.matches.first_poses)
        if FORWARD in problem.free and pairs < FEW_PAIRS:
            lines.append(
                f"{pairs} pairs of images do not tell focal length and lever arm apart: {remedy}"
            )
        if POOR_DISTORTION < sigma[DISTORTION] <= UNDETERMINED_DISTORTION:
            lines.append(f"the distortion is poorly determined, k1 ± {sigma[DISTORTION]:.2f}")
        if geometry.width >= PANORAMA_ASPECT * geometry.height:
            lines.append(
                f"images of {geometry.width}x{geometry.height} look like a panorama; declare it "
                "(cylindrical or equirectangular) if it is one"
            )
    turn = float(max(sigma[PITCH], sigma[YAW]))
    if turn > UNDETERMINED_RAD:
        lines.append(
            "the camera's turn is not determined: record straight stretches, or give the mount by "
            "tf"
        )
    elif turn > POOR_TURN_RAD:
        lines.append(
            f"the camera's turn is poorly determined, ± {np.degrees(turn):.1f}°: "
            "record straight stretches, or give the mount by tf"
        )
    if state.upside_down:
        lines.append("the camera seems to be upside down")
    if inliers < MIN_INLIERS:
        lines.append(
            f"only {100 * inliers:.0f} % of the matches fit: the camera tilts, its poses or stamps "
            "are wrong, or it is no such camera; the deviations are too small"
        )
    return lines
