"""Joint adjustment of keyframes: what their images see and what their wheels say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.adjustment import PointGroup, eliminate
from kbf_localization.landmarks.bearings import STATES
from kbf_localization.pose_graph.graph import (
    Anchors,
    OdometryEdges,
    System,
    add_anchors,
    add_odometry,
    chi2_of,
    diagonal_blocks,
    factorize,
)

ATTITUDE_SIGMA = (0.01, 0.01, 0.01)
"""Height (m), pitch and roll (rad) of a keyframe on an even floor."""
SIGMA_PX = 1.5
"""Of a keypoint: 1 px, and more as a keypoint counts in the groups of several keyframes."""
ANNEALING = (5.0, 3.0, 2.0, 1.0, 1.0)
"""Factors of σ, step by step: the odometry's poses show as large residuals at first."""
ODOMETRY_CAUCHY = 8.0
"""Wheels slip: beyond 8 σ an odometry edge counts less."""


@dataclass(frozen=True)
class Adjusted:
    """States (n, 6), wheels (d, 2) and covariances (n, 3, 3) of the poses, where asked for."""

    states: Array
    wheels: Array
    covariances: Array | None


def adjust_with_odometry(
    states: Array,
    wheels: Array,
    groups: Sequence[PointGroup],
    odometry: OdometryEdges,
    anchors: Anchors,
    covariances: bool = False,
) -> Adjusted:
    """Adjust states (n, 6) to the groups' points, the odometry and the anchors."""
    points = [group.points for group in groups]
    images = [(group.images[:, None] * STATES + np.arange(STATES)).ravel() for group in groups]
    for factor in ANNEALING:
        system = System(STATES * len(states) + wheels.size)
        parts = [
            eliminate(states[group.images], group, at, factor * SIGMA_PX)
            for group, at in zip(groups, points)
        ]
        for unknowns, part in zip(images, parts):
            system.add_block(unknowns[None], part.normal[None], part.gradient[None])
        poses = states[:, :3]
        robust = 1.0 / (1.0 + _corrected_chi2(odometry, wheels, poses) / ODOMETRY_CAUCHY**2)
        add_odometry(system, odometry, poses, wheels, STATES * len(states), robust, STATES)
        add_anchors(system, anchors, poses, STATES)
        _add_attitudes(system, states)
        normal, gradient = system.assembled()
        factors = factorize(normal)
        change = -factors.solve(gradient)
        by_state = change[: STATES * len(states)].reshape(-1, STATES)
        points = [
            at - part.solved - np.tensordot(part.cross, by_state[group.images].ravel(), (0, 0))
            for group, part, at in zip(groups, parts, points)
        ]
        states = states + by_state
        states[:, 2] = wrap_angle(states[:, 2])
        wheels = wheels + change[STATES * len(states) :].reshape(-1, 2)
    blocks = diagonal_blocks(factors, len(change), len(states), STATES) if covariances else None
    return Adjusted(states, wheels, blocks)


def _corrected_chi2(odometry: OdometryEdges, wheels: Array, poses: Array) -> Array:
    corrected = OdometryEdges(
        odometry.first,
        odometry.second,
        odometry.corrected(wheels),
        odometry.whitening,
        odometry.drive,
        odometry.seconds,
    )
    return chi2_of(corrected, poses)


def _add_attitudes(system: System, states: Array) -> None:
    precision = 1.0 / np.array(ATTITUDE_SIGMA)
    unknowns = STATES * np.arange(len(states))[:, None] + np.arange(3, STATES)
    jacobian = np.broadcast_to(np.diag(precision), (len(states), 3, 3))
    system.add(unknowns, jacobian, states[:, 3:] * precision)
