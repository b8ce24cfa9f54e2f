"""Bundle adjustment: states of images and points, from what is seen and priors on the states.

Points are eliminated (Schur complement): the points of a map image form a group that only a few
images see, so that one small matrix product a group fills the sparse system of the states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import LinearOperator, cg

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.landmarks.bearings import (
    STATES,
    Bearings,
    Pairs,
    positions,
    project,
    rotations_by_components,
    twists,
)
from kbf_localization.landmarks.triangulation import ROBUST_CHI2

POSE_SIGMA = (0.01, 0.01, 0.004)
"""Of given poses, metres and radians, where their source claims nothing else."""
ATTITUDE_SIGMA = (0.01, 0.01, 0.01)
"""Height (m), pitch and roll (rad) of a mapping image on an even floor."""
ANNEALING = (5.0, 3.0, 2.0, 1.0, 1.0)
"""Factors of σ, step by step: wrong poses show as large residuals at first."""
TIGHTENING = ((2.0, 1.0), (1.0, 1.0))
"""Further steps with priors as narrow as the poses moved before: exact poses stay exact."""
MIN_POSE_SIGMA = np.array([5e-4, 5e-4, 2e-4])
"""Metres and radians: no source of poses is better."""
POINT_PRIOR_M = 10.0
"""A prior on a point's movement in one step keeps its block regular."""
MISFIT_SIGMAS = 4.0
"""An image that moved by more than 4 σ of its prior does not fit the others."""
_CG_STEPS = 300


@dataclass(frozen=True)
class CameraSlopes:
    """Derivatives by k values of a camera that is adjusted too.

    `rays` (2, k, v, m) are the residuals' in pixels, since the rays of pixels turn; `growth`
    (k, v, m) are those of the log of the pixels per radian, by which residuals grow. Without it
    longer and longer focal lengths would make noise small. `centre` (3, k) are those of the
    camera's centre in the base frame.
    """

    rays: Array
    growth: Array
    centre: Array


@dataclass(frozen=True)
class PointGroup:
    """Points (m, 3) that the same few images see.

    `images` (v,) are rows of the states; `bearings` (v, m) and `seen` (v, m) are what they see.
    `camera` is None where the camera is known. `keypoints` (v, m) are rows of the images' own, any
    where a point is not seen.
    """

    images: Rows
    bearings: Bearings
    seen: Flags
    points: Array
    camera: CameraSlopes | None = None
    keypoints: NDArray[np.intp] | None = None


@dataclass(frozen=True)
class Adjustment:
    """Adjusted states (n, 6), the groups' points, and what does not fit.

    `misfits` are the rows whose root mean square movement of x, y, heading is beyond 4 σ of the
    prior.
    """

    states: Array
    points: list[Array]
    misfits: Rows


@dataclass(frozen=True)
class Eliminated:
    """What remains of a group: (u, u) and (u,) of the unknowns, and what gives the points back.

    The unknowns are the states (6v,), then the values of a camera that is adjusted too (k,). Points
    move by `solved` (3, m) and, with a change of the unknowns (u,), by `coupling` (u, 3m).
    """

    normal: Array
    gradient: Array
    coupling: Array
    solved: Array

    def moved(self, points: Array, change: Array) -> Array:
        """Return the points (m, 3) after one step that changes the unknowns by `change` (u,)."""
        by_unknowns = (change.ravel() @ self.coupling).reshape(self.solved.shape)
        return np.asarray(points - (self.solved + by_unknowns).T)


def adjust(
    states: Array,
    groups: Sequence[PointGroup],
    sigma_px: float,
    pose_sigma: Array | tuple[float, float, float] = POSE_SIGMA,
    attitude_sigma: tuple[float, float, float] = ATTITUDE_SIGMA,
    tighten: bool = True,
) -> Adjustment:
    """Adjust states (n, 6), which are also the priors' means; `pose_sigma` (3,) or (n, 3).

    With `tighten`, poses that prove better than their σ get narrower priors.
    """
    count = len(states)
    sigma = np.concatenate(
        (
            np.broadcast_to(np.asarray(pose_sigma, dtype=np.float64), (count, 3)),
            np.broadcast_to(np.asarray(attitude_sigma, dtype=np.float64), (count, 3)),
        ),
        axis=1,
    )
    prior = states
    narrow = sigma
    points = [group.points for group in groups]
    for factors in (ANNEALING, *(TIGHTENING if tighten else ())):
        for factor in factors:
            states, points = _step(states, prior, points, groups, factor * sigma_px, narrow)
        narrow = _tightened(sigma, states - prior, groups)
    moved = np.sqrt((((states - prior) / sigma)[:, :3] ** 2).mean(axis=1))
    return Adjustment(states, points, np.flatnonzero(moved > MISFIT_SIGMAS))


def _step(
    states: Array,
    prior: Array,
    points: list[Array],
    groups: Sequence[PointGroup],
    sigma_px: float,
    sigma: Array,
) -> tuple[Array, list[Array]]:
    """Make one step of Gauss–Newton for all states (n, 6) and points."""
    parts = [
        eliminate(states[group.images], group, at, sigma_px) for group, at in zip(groups, points)
    ]
    change = _solve(groups, parts, sigma**-2.0, states - prior)
    moved = [part.moved(at, change[group.images]) for group, part, at in zip(groups, parts, points)]
    return np.asarray(states + change), moved


def _tightened(sigma: Array, moved: Array, groups: Sequence[PointGroup]) -> Array:
    """Return priors (n, 6) whose x, y, heading are no wider than what images with points moved."""
    if not groups:
        return sigma
    seeing = np.unique(np.concatenate([group.images for group in groups]))
    spread = 1.4826 * np.median(np.abs(moved[seeing, :3]), axis=0)
    spread[:2] = spread[:2].mean()
    bound = np.concatenate((np.maximum(spread, MIN_POSE_SIGMA), np.full(3, np.inf)))
    return np.asarray(np.minimum(sigma, bound))


def eliminate(
    states: Array,
    group: PointGroup,
    points: Array,
    sigma_px: float,
    robust_chi2: float = ROBUST_CHI2,
    point_prior_m: float = POINT_PRIOR_M,
    camera: Array | None = None,
) -> Eliminated:
    """Return the normal equations of a group's images after its points are eliminated.

    Points move by `point_prior_m` in one step (σ): where whole stretches of a drive move with their
    points, it must be far wider than they move. `camera` (k,) are the changes so far of the values
    of a camera that is adjusted too.
    """
    views, count = group.seen.shape
    rotation = rotations_by_components(states.T)
    bearings = group.bearings
    axes = np.ascontiguousarray(bearings.axes.transpose(2, 3, 0, 1))
    slopes, centre = group.camera, bearings.centre
    if slopes is not None and camera is not None:
        centre = centre + slopes.centre @ camera
    pairs = Pairs(axes, bearings.scale, points.T[:, None], centre)
    at = project(rotation[..., None], positions(states).T[..., None], pairs)
    residuals = at.residuals
    if slopes is not None and camera is not None:
        residuals = residuals * (1.0 + np.tensordot(camera, slopes.growth, axes=1))
        residuals = residuals + np.tensordot(slopes.rays, camera, axes=(1, 0))
    chi2 = (residuals**2).sum(axis=0) / sigma_px**2
    root = group.seen / (sigma_px * (1.0 + chi2 / robust_chi2))
    off = residuals * root
    by_twist = at.by_twist() * root
    by_point = (rotation[..., None] * at.slope[:, None]).sum(axis=2) * root

    # By images: twists of the base become changes of the state by one small matrix each.
    to_twists = twists(states.T, rotation).transpose(2, 1, 0)
    rows = by_twist.transpose(2, 1, 0, 3).reshape(views, STATES, 2 * count)
    own = to_twists @ (rows @ rows.swapaxes(1, 2)) @ to_twists.swapaxes(1, 2)
    gradient = to_twists @ (rows @ off.transpose(1, 0, 2).reshape(views, 2 * count, 1))
    mixed = (by_twist[:, :, None] * by_point[:, None]).sum(axis=0)
    cross = to_twists @ mixed.transpose(2, 0, 1, 3).reshape(views, STATES, 3 * count)
    cross = cross.reshape(views * STATES, 3, count)
    pulls = gradient.ravel()
    if slopes is not None:
        by_centre = np.tensordot(slopes.centre, at.slope, axes=(0, 1)).swapaxes(0, 1)
        by_camera = slopes.rays + residuals[:, None] * slopes.growth - by_centre
        by_camera = by_camera * root
        columns = by_camera.transpose(2, 0, 3, 1).reshape(views, 2 * count, -1)
        with_camera = (to_twists @ (rows @ columns)).reshape(views * STATES, -1)
        of_camera = np.einsum("vrk,vrl->kl", columns, columns)
        pull_camera = np.einsum("vrk,vr->k", columns, off.swapaxes(0, 1).reshape(views, -1))
        to_points = (by_camera[:, :, None] * by_point[:, None]).sum(axis=(0, 3))
        cross = np.concatenate((cross, to_points))
        pulls = np.concatenate((pulls, pull_camera))

    block = (by_point[:, :, None] * by_point[:, None]).sum(axis=(0, 3)).transpose(2, 0, 1)
    pull = (by_point * off[:, None]).sum(axis=(0, 2))
    inverse = np.linalg.inv(block + np.eye(3) / point_prior_m**2).transpose(1, 2, 0)
    coupling = sum(cross[:, axis, None] * inverse[axis] for axis in range(3))
    coupling = np.asarray(coupling).reshape(len(cross), 3 * count)
    normal = -coupling @ cross.reshape(len(cross), 3 * count).T
    for view in range(views):
        part = slice(view * STATES, (view + 1) * STATES)
        normal[part, part] += own[view]
    if slopes is not None:
        images = views * STATES
        normal[:images, images:] += with_camera
        normal[images:, :images] += with_camera.T
        normal[images:, images:] += of_camera
    solved = (inverse * pull).sum(axis=1)
    return Eliminated(normal, pulls - coupling @ pull.ravel(), coupling, solved)


def _solve(
    groups: Sequence[PointGroup], parts: Sequence[Eliminated], information: Array, moved: Array
) -> Array:
    """Return the states' change (n, 6) of one step."""
    count = len(information)
    unknowns = [(group.images[:, None] * STATES + np.arange(STATES)).ravel() for group in groups]
    diagonal = np.arange(count * STATES)
    rows = [np.repeat(index, len(index)) for index in unknowns]
    columns = [np.tile(index, len(index)) for index in unknowns]
    values = [part.normal.ravel() for part in parts]
    shape = (count * STATES, count * STATES)
    normal = coo_matrix(
        (
            np.concatenate([information.ravel(), *values]),
            (np.concatenate([diagonal, *rows]), np.concatenate([diagonal, *columns])),
        ),
        shape=shape,
    ).tocsr()
    gradient = (information * moved).ravel()
    for index, part in zip(unknowns, parts):
        np.add.at(gradient, index, part.gradient)
    blocks = _diagonal_blocks(unknowns, parts, information)
    inverse = np.linalg.inv(blocks)

    def precondition(vector: Array) -> Array:
        found: Array = np.einsum("nab,nb->na", inverse, vector.reshape(-1, STATES)).ravel()
        return found

    operator = LinearOperator(shape, matvec=precondition)
    change, _ = cg(normal, -gradient, maxiter=_CG_STEPS, M=operator)
    return np.asarray(change).reshape(-1, STATES)


def _diagonal_blocks(
    unknowns: Sequence[Rows], parts: Sequence[Eliminated], information: Array
) -> Array:
    blocks = np.zeros((len(information), STATES, STATES))
    blocks[:, np.arange(STATES), np.arange(STATES)] = information
    for index, part in zip(unknowns, parts):
        images = index[::STATES] // STATES
        grid = part.normal.reshape(len(images), STATES, len(images), STATES)
        np.add.at(blocks, images, grid[np.arange(len(images)), :, np.arange(len(images))])
    return blocks
