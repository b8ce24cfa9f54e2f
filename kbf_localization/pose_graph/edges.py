"""Edges of the graph: measured motions, those of a drive's wheels or images, and their noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.motion.noise import MotionNoise, fit_motion_noise, triple
from kbf_localization.pose_graph.keyframes import Keyframes

ODOMETRY_M, ODOMETRY_RELATIVE = 0.004, 0.02
ODOMETRY_RAD, ODOMETRY_PER_RAD = np.radians(0.5), 0.04
"""σ of the wheels between keyframes before their noise is fitted: 4 mm + 2 %, 0.5° + 4 %."""
VISUAL_M, VISUAL_RELATIVE = 0.003, 0.02
VISUAL_RAD, VISUAL_PER_RAD = np.radians(0.12), 0.01
"""σ of the motion between keyframes after a drive's own adjustment: images hold the heading."""
WINDOW_M, WINDOW_RAD = 2.0, 2.0
WHEEL_NOISE = MotionNoise((0.001, 0.0045, 0.00025), (0.0003, 0.0002, 0.0008))
"""Of wheels over windows of 2 m, without their heading bias and scale: what covariances claim where
closures do not measure it. Errors of wheels are correlated: this is more than edge by edge."""
SCALE_SIGMA, SCALE_STRETCH_M = 0.05, 5.0
"""Relative error of wheels' distances, and the path over which it is correlated: a radius is known
to some per cent, and changes with floor and load."""
STEP_SIGMA = 1e-3
"""m and rad: the least σ between two keyframes."""
_TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


@dataclass(frozen=True)
class Edges:
    """Measured motions (m, 3) of nodes `second` as seen from nodes `first`, whitened by (m, 3, 3).

    `whitening` W has Wᵀ W = the measurement's information.
    """

    first: Rows
    second: Rows
    motions: Array
    whitening: Array

    def __len__(self) -> int:
        return len(self.first)

    def part(self, rows: Rows | Flags) -> Edges:
        return Edges(self.first[rows], self.second[rows], self.motions[rows], self.whitening[rows])

    @classmethod
    def none(cls) -> Edges:
        empty = np.empty(0, dtype=np.intp)
        return cls(empty, empty, np.empty((0, 3)), np.empty((0, 3, 3)))


@dataclass(frozen=True)
class OdometryEdges(Edges):
    """Edges of the wheels: `drive` (m,) whose wheels, `seconds` (m,) for which they moved."""

    drive: Rows
    seconds: Array

    def scaled(self, scale: float) -> OdometryEdges:
        """Return the edges with distances, and their errors, times `scale`."""
        factors = np.array([scale, scale, 1.0])
        return replace(self, motions=self.motions * factors, whitening=self.whitening / factors)

    def corrected(self, wheels: Array) -> Array:
        """Return the motions (m, 3) without the systematic errors `wheels` (d, 2)."""
        away = self._correction(wheels)
        cos, sin = np.cos(-0.5 * away), np.sin(-0.5 * away)
        x, y, turn = self.motions.T
        return np.stack((cos * x - sin * y, sin * x + cos * y, wrap_angle(turn - away)), axis=1)

    def _correction(self, wheels: Array) -> Array:
        bias, scale = wheels[self.drive].T
        return np.asarray(bias * self.seconds + scale * self.motions[:, 2])

    def by_wheels(self, wheels: Array) -> Array:
        """Return derivatives (m, 3, 2) of the residuals by heading bias and turn scale."""
        moved = self.corrected(wheels)
        by_angle = np.concatenate((0.5 * moved[:, :2] @ _TURN.T, np.ones((len(moved), 1))), axis=1)
        factors = np.stack((self.seconds, self.motions[:, 2]), axis=1)
        return np.asarray(by_angle[:, :, None] * factors[:, None, :])


def odometry_edges(keyframes: Keyframes) -> OdometryEdges:
    """Return the wheels' motions between keyframes, with the noise of wheels."""
    first = keyframes.consecutive()
    motions = relative(keyframes.odometry[first], keyframes.odometry[first + 1])
    driven = keyframes.path_m[first + 1] - keyframes.path_m[first]
    metres = ODOMETRY_M + ODOMETRY_RELATIVE * driven
    radians = ODOMETRY_RAD + ODOMETRY_PER_RAD * np.abs(motions[:, 2])
    return OdometryEdges(
        first,
        first + 1,
        motions,
        _whitening(np.stack((metres, metres, radians), axis=1) ** 2),
        keyframes.drive_of[first],
        keyframes.moving_s[first + 1] - keyframes.moving_s[first],
    )


def visual_edges(keyframes: Keyframes, visual: Array) -> OdometryEdges:
    """Return the motions between poses (n, 3) that a drive's images and wheels gave."""
    edges = odometry_edges(keyframes)
    motions = relative(visual[edges.first], visual[edges.second])
    sigma_m = VISUAL_M + VISUAL_RELATIVE * np.hypot(motions[:, 0], motions[:, 1])
    sigma_rad = VISUAL_RAD + VISUAL_PER_RAD * np.abs(motions[:, 2])
    return replace(
        edges,
        motions=motions,
        whitening=_whitening(np.stack((sigma_m, sigma_m, sigma_rad), axis=1) ** 2),
        seconds=np.zeros(len(edges)),
    )


def fitted_noise(motions: Array, poses: Array, keyframes: Keyframes, rows: Rows) -> MotionNoise:
    """Fit the noise of motions between keyframes to the poses (n, 3), over windows of 2 m."""
    first = keyframes.consecutive()
    pairs = []
    for piece in np.unique(keyframes.piece_of[rows]):
        own = np.flatnonzero(keyframes.piece_of == piece)
        chain = [np.zeros(3)]
        for edge in np.flatnonzero(keyframes.piece_of[first] == piece):
            chain.append(compose(chain[-1], motions[edge]))
        if len(own) > 2:
            pairs.append((poses[own], np.array(chain)))
    return fit_motion_noise(pairs, WINDOW_M, WINDOW_RAD)


def at_least_wheel_noise(noise: MotionNoise) -> MotionNoise:
    """Return the noise, nowhere below that of wheels.

    Poses that follow the wheels fit them better than the truth would.
    """
    return MotionNoise(
        triple(np.maximum(noise.per_metre, WHEEL_NOISE.per_metre)),
        triple(np.maximum(noise.per_radian, WHEEL_NOISE.per_radian)),
        noise.set_aside,
    )


def with_noise(edges: OdometryEdges, noise: MotionNoise, keyframes: Keyframes) -> OdometryEdges:
    """Return the edges with this noise."""
    driven = keyframes.path_m[edges.second] - keyframes.path_m[edges.first]
    turned = np.abs(edges.motions[:, 2])
    variances = driven[:, None] * np.array(noise.per_metre)
    variances = variances + turned[:, None] * np.array(noise.per_radian) + STEP_SIGMA**2
    return replace(edges, whitening=_whitening(variances))


def _whitening(variances: Array) -> Array:
    return whitening_of(variances[:, :, None] * np.eye(3))


def whitening_of(covariances: Array) -> Array:
    """Return W (m, 3, 3) with Wᵀ W = the inverse of each covariance (m, 3, 3)."""
    lower = np.linalg.cholesky(covariances)
    return np.asarray(np.linalg.inv(lower))
