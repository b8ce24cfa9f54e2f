"""Epipolar errors of matches between images with known poses, by camera and mount.

An error is Sampson's, in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.spatial.transform import Rotation

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.errors import ParameterError
from kbf_localization.geometry import wrap_angle
from kbf_localization.vision.camera.base import Camera, as_pixels
from kbf_localization.vision.camera.mount import Mount, rotation_of
from kbf_localization.vision.camera.pinhole import PinholeCamera

MIN_PAIRS, MIN_MATCHES = 8, 200
"""Below them nothing is learned."""
MAX_MATCHES = 40
"""Matches of a pair that are used: more say little beyond, as the pair's pose error is the same."""
MIN_PARALLAX_RAD = 0.01
"""Rays nearer to parallel have no depth."""
MIN_FOCAL, MAX_FOCAL = 0.4, 2.5
"""Focal lengths that are looked for, in image widths; what is found may be twice as far out."""
MAX_DISTORTION, MAX_FORWARD_M, MAX_BIAS = 0.6, 2.0, 0.1
FOCAL, DISTORTION, PITCH, YAW, FORWARD, BIAS = range(6)
"""What is learned: log f in image widths, k1, radians, metres, and the wheels' rad/s."""
VALUES = 6
MAX_LENSES = 6
"""Lenses whose rays are kept: those of a numeric derivative."""


@dataclass(frozen=True)
class MatchedPair:
    """Two images of one camera: the base's poses, and pixels (k, 2) that show the same.

    A pose is (x, y, heading), or with the base's height, pitch and roll where these are known.
    Between poses that wheels report the robot moved for `seconds`, with a heading bias that is
    learned; with 0 the poses are taken as they are.
    """

    first_pose: Array
    second_pose: Array
    first_pixels: Array
    second_pixels: Array
    seconds: float = 0.0


@dataclass(frozen=True)
class CameraState:
    """`values` (6,) in the order of FOCAL to BIAS; an upside-down camera has roll π.

    `motions` (p, 2) are by how much each pair's poses turn too far left, and by how much the
    direction of their motion does, rad; None: by nothing.
    """

    values: Array
    upside_down: bool = False
    motions: Array | None = None

    def with_values(self, values: Array) -> CameraState:
        return replace(self, values=values)

    def changed(self, values: Array, motions: Array) -> CameraState:
        before = 0.0 if self.motions is None else self.motions
        return replace(self, values=within_limits(self.values + values), motions=before + motions)

    def opposite(self) -> CameraState:
        values = self.values.copy()
        values[PITCH], values[YAW] = -values[PITCH], float(wrap_angle(values[YAW] + np.pi))
        return self.with_values(values)


@dataclass(frozen=True)
class MatchTable:
    """All matches in one table: pixels (m, 2) each, the pair (m,), the base's states (p, 6) each.

    A state is (x, y, heading, height, pitch, roll). Wheels moved for `seconds` (p,).
    """

    first: Array
    second: Array
    pair: Rows
    first_poses: Array
    second_poses: Array
    seconds: Array
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
        seconds: list[float] = []
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
            seconds.append(pair.seconds)
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
            np.array(seconds),
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


class EpipolarGeometry:
    """Epipolar errors of `matches` in images of `width` by `height` pixels, by the camera's state.

    `known` is the camera where that is known, None for a pinhole camera to be learned.
    """

    def __init__(self, matches: MatchTable, width: int, height: int, known: Camera | None) -> None:
        self.matches, self.width, self.height, self.known = matches, width, height, known
        self._seen: dict[tuple[float, float], MatchRays] = {}

    def of(self, matches: MatchTable) -> EpipolarGeometry:
        """Return that of other matches in the same images."""
        return EpipolarGeometry(matches, self.width, self.height, self.known)

    def camera(self, state: CameraState) -> Camera:
        if self.known is not None:
            return self.known
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
        pitch, yaw, forward = (float(value) for value in state.values[PITCH:BIAS])
        known = self.matches.translation
        place = np.array([forward, 0.0, 0.0]) if known is None else known
        return rotation_of(yaw, pitch, np.pi if state.upside_down else 0.0), place

    def errors(self, state: CameraState) -> Array:
        """Return Sampson errors (m,) in pixels; NaN beyond the lens."""
        seen = self.rays(state)
        essential = self._essential(state).take(self.matches.pair, axis=2)
        at_second = (essential * seen.first).sum(axis=1)
        at_first = (essential * seen.second[:, None]).sum(axis=0)
        error = (seen.second * at_second).sum(axis=0)
        # Gradients on the unit sphere, a pixel being 1 / pixels_per_radian.
        slope_first = (at_first**2).sum(axis=0) - error**2
        slope_second = (at_second**2).sum(axis=0) - error**2
        variance = slope_first * seen.first_pixel_rad2 + slope_second * seen.second_pixel_rad2
        return np.asarray(error / np.sqrt(np.maximum(variance, 1e-24)))

    def rays(self, state: CameraState) -> MatchRays:
        """Return what the matches' pixels see; it is kept for the last few lenses."""
        key = float(state.values[FOCAL]), float(state.values[DISTORTION])
        if key not in self._seen:
            camera, half = self.camera(state), len(self.matches.pair)
            pixels = np.concatenate([self.matches.first, self.matches.second])
            by_pixel, scales = camera.rays_and_scales(pixels)
            rays, areas = np.ascontiguousarray(by_pixel.T), scales**-2
            if len(self._seen) >= MAX_LENSES:
                self._seen.pop(next(iter(self._seen)))
            self._seen[key] = MatchRays(rays[:, :half], rays[:, half:], areas[:half], areas[half:])
        return self._seen[key]

    def depths(self, state: CameraState) -> tuple[Array, Flags]:
        """Return the smaller of a point's two distances in metres (m,), and whether its rays cross.

        The base's motion is taken for the camera's, to which a lever arm adds in turns.
        """
        seen = self.rays(state)
        rotation, place = self._relative_poses(state)
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

    def _relative_poses(self, state: CameraState) -> tuple[Array, Array]:
        """Rotations (p, 3, 3) and translations (p, 3) from the first into the second camera."""
        turn, place = self._mounted(state)
        rotations, translations = self.matches.base_motions
        turns, directions = state.values[BIAS] * self.matches.seconds, np.zeros(len(rotations))
        if state.motions is not None:
            turns, directions = turns + state.motions[:, 0], state.motions[:, 1]
        if turns.any() or directions.any():
            rotations = about_up(turns) @ rotations
            # The chord of an arc turns by half of it.
            chords = about_up(0.5 * turns + directions)
            translations = (chords @ translations[..., None])[..., 0]
        moved = (translations + rotations @ place - place) @ turn
        length = np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
        return turn.T @ rotations @ turn, moved / length

    def _essential(self, state: CameraState) -> Array:
        """Return the pairs' essential matrices (3, 3, p): translation × rotation."""
        rotation, place = self._relative_poses(state)
        columns, (x, y, z) = rotation.transpose(1, 2, 0), place.T
        return np.stack(
            [
                y * columns[2] - z * columns[1],
                z * columns[0] - x * columns[2],
                x * columns[1] - y * columns[0],
            ]
        )


def about_up(angles: Array) -> Array:
    """Return rotations (p, 3, 3) by angles (p,) about the vertical axis."""
    return np.asarray(Rotation.from_euler("z", angles[:, None]).as_matrix())


def within_limits(values: Array) -> Array:
    """Return the state within its limits."""
    low, high = np.log([0.5 * MIN_FOCAL, 2.0 * MAX_FOCAL])
    log_focal, k1, pitch, yaw, forward, bias = values
    return np.array(
        [
            np.clip(log_focal, low, high),
            np.clip(k1, -MAX_DISTORTION, MAX_DISTORTION),
            np.clip(pitch, -1.5, 1.5),
            float(wrap_angle(yaw)),
            np.clip(forward, -MAX_FORWARD_M, MAX_FORWARD_M),
            np.clip(bias, -MAX_BIAS, MAX_BIAS),
        ]
    )
