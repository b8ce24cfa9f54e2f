"""Keyframes adjusted jointly to the points that images see, to wheels and to anchors.

A camera that was learned is adjusted with them: tracks of all keyframes tell it far better than the
pairs of images that taught it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Rows
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.adjustment import PointGroup, eliminate
from kbf_localization.landmarks.bearings import STATES
from kbf_localization.landmarks.triangulation import ROBUST_CHI2
from kbf_localization.pose_graph.edges import OdometryEdges
from kbf_localization.pose_graph.graph import (
    Anchors,
    NormalEquations,
    corrected_chi2,
    factorize,
)
from kbf_localization.pose_graph.learned_camera import LearnedCamera

ATTITUDE_SIGMA = (0.01, 0.01, 0.01)
"""Height (m), pitch and roll (rad) of a keyframe on an even floor."""
SIGMA_PX = 1.5
"""Of a keypoint: 1 px, and more as a keypoint counts in the groups of several keyframes."""
ANNEALING = (5.0, 3.0, 2.0, 1.0, 1.0)
"""Factors of the loss's width, step by step: the odometry's poses show as large residuals."""
POINT_PRIOR_M = 1000.0
"""σ of a point's movement in one step. A turn that is corrected moves all points behind it by
metres: with 10 m, thousands of points hold the drift that images contradict."""
ODOMETRY_CAUCHY = 8.0
"""Wheels slip: beyond 8 σ an odometry edge counts less."""


@dataclass(frozen=True)
class Adjusted:
    """States (n, 6) and the wheels' systematic errors (d, 2).

    `camera` is a learned one, adjusted too, and `by_camera` (n, 6, k) how the states follow its
    values; None where the camera is known.
    """

    states: Array
    wheels: Array
    camera: LearnedCamera | None = None
    by_camera: Array | None = None

    @property
    def pose_covariances(self) -> Array:
        """Return the part (n, 3, 3) of the poses' covariances that the learned camera makes."""
        if self.camera is None or self.by_camera is None:
            return np.zeros((len(self.states), 3, 3))
        by_camera = self.by_camera[:, :3]
        return np.asarray(by_camera @ self.camera.covariance @ by_camera.transpose(0, 2, 1))


def adjust_with_odometry(
    states: Array,
    wheels: Array,
    groups: Sequence[PointGroup],
    odometry: OdometryEdges,
    anchors: Anchors,
    camera: LearnedCamera | None = None,
) -> Adjusted:
    """Adjust states (n, 6) to the groups' points, the odometry and the anchors.

    The `camera` is one that was learned, which made the groups; it is adjusted with them.
    """
    points = [group.points for group in groups]
    wheels_at = STATES * len(states)
    camera_at = wheels_at + wheels.size
    precision, moved = (
        (np.empty(0), np.empty(0)) if camera is None else (1.0 / camera.sigmas, camera.moved)
    )
    values, of_camera = np.zeros(len(moved)), camera_at + np.arange(len(moved))
    unknowns_of = [
        np.r_[(group.images[:, None] * STATES + np.arange(STATES)).ravel(), of_camera]
        for group in groups
    ]
    for width in ANNEALING:
        system = NormalEquations(len(states), len(wheels), STATES, len(values))
        parts = [
            eliminate(
                states[group.images],
                group,
                at,
                SIGMA_PX,
                width**2 * ROBUST_CHI2,
                POINT_PRIOR_M,
                values,
            )
            for group, at in zip(groups, points)
        ]
        for unknowns, part in zip(unknowns_of, parts):
            system.add_block(unknowns[None], part.normal[None], part.gradient[None])
        poses = states[:, :3]
        robust = 1.0 / (1.0 + corrected_chi2(odometry, wheels, poses) / ODOMETRY_CAUCHY**2)
        system.add_odometry(odometry, poses, wheels, robust)
        system.add_anchors(anchors, poses)
        system.add(*_attitudes(states))
        pulls = (moved + values) * precision
        system.add(of_camera[:, None], precision[:, None, None], pulls[:, None])
        normal, gradient = system.assembled()
        factor = factorize(normal)
        change = -factor.solve(gradient)
        points = [
            part.moved(at, change[unknowns])
            for unknowns, part, at in zip(unknowns_of, parts, points)
        ]
        states = states + change[:wheels_at].reshape(-1, STATES)
        states[:, 2] = wrap_angle(states[:, 2])
        wheels = wheels + change[wheels_at:camera_at].reshape(-1, 2)
        values = values + change[camera_at:]
    if camera is None:
        return Adjusted(states, wheels)
    columns = np.zeros((system.size, len(values)))
    columns[of_camera, np.arange(len(values))] = 1.0
    columns = factor.solve(columns)
    covariance = columns[of_camera]
    follow = columns[:wheels_at] @ np.linalg.inv(covariance)
    by_camera = follow.reshape(len(states), STATES, len(values))
    return Adjusted(states, wheels, camera.changed(values).with_covariance(covariance), by_camera)


def _attitudes(states: Array) -> tuple[Rows, Array, Array]:
    """Return the priors of height, pitch and roll: unknowns (n, 3), jacobians and residuals."""
    precision = 1.0 / np.array(ATTITUDE_SIGMA)
    unknowns = STATES * np.arange(len(states))[:, None] + np.arange(3, STATES)
    jacobian = np.broadcast_to(np.diag(precision), (len(states), 3, 3))
    return unknowns, jacobian, states[:, 3:] * precision
