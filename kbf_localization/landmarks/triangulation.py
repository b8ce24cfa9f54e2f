"""Points from the keypoints of a map image and of neighbouring images whose poses are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.bearings import (
    SIGMA_PX,
    Bearings,
    gnomonic,
    positions,
    rotations,
)
from kbf_localization.vision.keypoints import mutual_matches, squared_distances

PARTNERS = 10
"""Images a map image is matched with; more add little."""
BASELINE_M = (0.04, 1.2)
"""Nearer images show no parallax, farther images another view."""
FEW_PARTNERS = 4
"""With fewer at these baselines, as in a fast or sparse drive, the nearest of all serve."""
MAX_BASELINE_M = 6.0
"""A fifth of the farthest landmark's depth: its direction changes by 0.2 rad."""
UNIT_BASELINE_M = 0.5 * BASELINE_M[0]
"""Where the logarithm of a baseline is zero."""
MAX_TURN_RAD = 0.6
"""The images must overlap."""
HEADING_METRES = 1.0
"""A turn by a radian changes the view about as much as a metre does."""

DEPTHS_M = np.geomspace(0.3, 25.0, 40)
"""Depths to start from: steps of 12 %."""
STEPS = 6
MAX_CHI2 = 9.0
"""Of one view's residual: 3 σ."""
ROBUST_CHI2 = 6.0
"""Weights are (1 + q / 6)⁻²."""
MAX_DEPTH_ERROR = 0.25
"""Standard deviation of the depth, relative to the depth."""
DEPTH_RANGE_M = (0.25, 30.0)
POINT_PRIOR_M = 100.0
"""A wide prior on points keeps the normal equations regular."""


@dataclass(frozen=True)
class Sighting:
    """The keypoints of one image as bearings and descriptors (k, 128), and its state (6,)."""

    state: Array
    bearings: Bearings
    descriptors: NDArray[np.uint8]


@dataclass(frozen=True)
class Triangulation:
    """Points of a map image's keypoints.

    `keypoints` (m,) are rows of the image's keypoints, `points` (m, 3) lie in the map,
    `covariances` (m, 3, 3); `views` (m,) counts the images that agree; `matches` (m, v) are the
    keypoints' rows in the image itself (first) and its partners, -1 where there is none or it does
    not agree; `sigma_px` is the keypoints' deviation by the residuals, 0 where there are none.
    """

    keypoints: Rows
    points: Array
    covariances: Array
    views: NDArray[np.intp]
    matches: NDArray[np.intp]
    sigma_px: float


def choose_partners(
    poses: Array, rows: Rows, excluded: Rows | None = None, count: int = PARTNERS
) -> list[Rows]:
    """Choose for each of `rows` up to `count` of all `poses` (n, 3) at useful baselines.

    They are spread out; the rows `excluded` are no partners.
    """
    tree = cKDTree(poses[:, :2])
    usable = np.ones(len(poses), dtype=bool)
    usable[[] if excluded is None else excluded] = False
    partners = []
    for row in rows:
        near, places = _overlapping(tree, poses, row, BASELINE_M[1], usable)
        chosen = _spread_out(_logarithmic(places), count)
        if len(near) < min(FEW_PARTNERS, count):
            near, places = _overlapping(tree, poses, row, MAX_BASELINE_M, usable)
            distance = np.hypot(places[:, 0], places[:, 1])
            chosen = np.argsort(distance, kind="stable")[: min(FEW_PARTNERS, count)]
        partners.append(near[chosen])
    return partners


def _overlapping(
    tree: cKDTree, poses: Array, row: int, reach: float, usable: Flags
) -> tuple[Rows, Array]:
    """Return the usable rows (k,) within `reach` that see much the same as `row`.

    Their places (k, 3) are relative to it: metres, and the turn in metres.
    """
    near = np.array(tree.query_ball_point(poses[row, :2], reach), dtype=np.intp)
    offset = poses[near] - poses[row]
    turn = wrap_angle(offset[:, 2])
    distance = np.hypot(offset[:, 0], offset[:, 1])
    useful = (distance >= BASELINE_M[0]) & (np.abs(turn) < MAX_TURN_RAD) & usable[near]
    return near[useful], np.column_stack((offset[:, :2], turn * HEADING_METRES))[useful]


def _logarithmic(places: Array) -> Array:
    """Return places (k, 3) in their directions, at the logarithms of their distances.

    What baseline shows parallax and still a common view depends on how far the scene is: spread
    over the logarithm, partners have short and long baselines.
    """
    distance = np.maximum(np.linalg.norm(places, axis=1), BASELINE_M[0])
    return np.asarray(places * (np.log(distance / UNIT_BASELINE_M) / distance)[:, None])


def _spread_out(places: Array, count: int) -> Rows:
    """Return up to `count` of the places (k, 3), each farthest from the origin and those before."""
    chosen: list[int] = []
    gap = np.linalg.norm(places, axis=1)
    for _ in range(min(count, len(places))):
        best = int(gap.argmax())
        chosen.append(best)
        away = np.linalg.norm(places - places[best], axis=1)
        gap = np.minimum(gap, away)
        gap[best] = -1.0
    return np.array(chosen, dtype=np.intp)


def match_views(image: Sighting, partners: Sequence[Sighting]) -> NDArray[np.intp]:
    """Return (k, 1 + v): each keypoint's row in the image and its partners, -1 where unmatched."""
    count = len(image.bearings)
    matches = np.full((count, 1 + len(partners)), -1, dtype=np.intp)
    matches[:, 0] = np.where(image.bearings.scale > 0.0, np.arange(count), -1)
    for number, partner in enumerate(partners, start=1):
        distances = squared_distances(image.descriptors, partner.descriptors)
        rows, columns, _ = mutual_matches(distances)
        matches[rows, number] = np.where(partner.bearings.scale[columns] > 0.0, columns, -1)
    return matches


def triangulate(
    image: Sighting,
    partners: Sequence[Sighting],
    min_views: int = 3,
    sigma_px: float = SIGMA_PX,
    matches: NDArray[np.intp] | None = None,
    max_depth_error: float = MAX_DEPTH_ERROR,
) -> Triangulation:
    """Return points that at least `min_views` images, this included, agree on.

    Their depth's σ is at most `max_depth_error` of the depth.
    """
    if matches is None:
        matches = match_views(image, partners)
    rows = np.flatnonzero(((matches >= 0).sum(axis=1) >= min_views) & (matches[:, 0] >= 0))
    matches = matches[rows]
    if not len(rows):
        return _nothing(1 + len(partners))
    views = stack_views((image, *partners), matches)
    points = _scan_depths(views)
    points, information, chi2 = _refine(views, points, sigma_px)
    agree = views.seen & (chi2 < MAX_CHI2)
    covariances: Array = np.asarray(np.linalg.inv(information), dtype=np.float64)
    kept = _kept(image, points, covariances, agree, min_views, max_depth_error)
    matches = np.where(agree.T, matches, -1)
    number = agree.sum(axis=0)
    # Residuals are that much smaller than errors, since each point has three unknowns.
    fitted = np.where(agree, chi2, np.nan) * (2.0 * number / np.maximum(2.0 * number - 3.0, 1.0))
    trusted = fitted[:, kept][agree[:, kept]]
    # Half of the squared lengths of Gaussian residuals in the plane are below 2 ln 2 σ².
    estimate = float(np.sqrt(np.median(trusted) / (2.0 * np.log(2.0)))) if len(trusted) else 0.0
    return Triangulation(
        rows[kept],
        points[kept],
        covariances[kept],
        number[kept],
        matches[kept],
        estimate * sigma_px,
    )


def _kept(
    image: Sighting,
    points: Array,
    covariances: Array,
    agree: Flags,
    min_views: int,
    max_depth_error: float,
) -> Flags:
    centre = positions(image.state) + rotations(image.state) @ image.bearings.centre
    offset = points - centre
    depth = np.linalg.norm(offset, axis=1)
    ray = offset / np.maximum(depth, 1e-9)[:, None]
    error = np.sqrt(np.einsum("ki,kij,kj->k", ray, covariances, ray))
    return np.asarray(
        (agree.sum(axis=0) >= min_views)
        & agree[0]
        & (depth > DEPTH_RANGE_M[0])
        & (depth < DEPTH_RANGE_M[1])
        & (error < max_depth_error * depth)
    )


def _nothing(views: int) -> Triangulation:
    return Triangulation(
        np.empty(0, np.intp),
        np.empty((0, 3)),
        np.empty((0, 3, 3)),
        np.empty(0, np.intp),
        np.empty((0, views), np.intp),
        0.0,
    )


@dataclass(frozen=True)
class Views:
    """Bearings (v, m) of m points in v images; `states` (v, 6); `seen` (v, m)."""

    states: Array
    bearings: Bearings
    seen: Flags


def stack_views(images: Sequence[Sighting], matches: NDArray[np.intp]) -> Views:
    # Where a view does not see a point, the image's own bearing holds the place.
    axes = np.repeat(images[0].bearings.axes[matches[:, 0]][None], len(images), axis=0)
    scale = np.repeat(images[0].bearings.scale[matches[:, 0]][None], len(images), axis=0)
    for number, image in enumerate(images):
        seen = np.flatnonzero(matches[:, number] >= 0)
        axes[number, seen] = image.bearings.axes[matches[seen, number]]
        scale[number, seen] = image.bearings.scale[matches[seen, number]]
    states = np.stack([image.state for image in images])
    return Views(states, Bearings(axes, scale, images[0].bearings.centre), matches.T >= 0)


def _scan_depths(views: Views) -> Array:
    """Return points (m, 3) on the first image's rays at the depth of least truncated error."""
    rotation, centre = rotations(views.states), views.bearings.centre
    eyes = positions(views.states) + rotation @ centre
    rays = views.bearings.axes[0, :, 0] @ rotation[0].T
    # In another image a point is start + depth · slope, in that camera's frame.
    start = np.einsum("vij,vi->vj", rotation, eyes[0] - eyes)
    slope = np.matmul(rays, rotation)
    axes = views.bearings.axes
    fixed = np.einsum("vmij,vj->vmi", axes[1:], start[1:])
    moving = np.einsum("vmij,vmj->vmi", axes[1:], slope[1:])
    if not len(fixed):
        return np.asarray(eyes[0] + rays * DEPTHS_M[len(DEPTHS_M) // 2])
    scale = np.where(views.seen, views.bearings.scale, 0.0)[1:] / SIGMA_PX
    total = np.empty((len(DEPTHS_M), rays.shape[0]))
    for number, depth in enumerate(DEPTHS_M):
        along = fixed + depth * moving
        away = np.maximum(along[..., 0], 1e-3)
        chi2 = (along[..., 1] ** 2 + along[..., 2] ** 2) * (scale / away) ** 2
        # The step between depths moves far more than σ: the truncation is as wide.
        total[number] = np.minimum(chi2, 100.0).sum(axis=0)
    return np.asarray(eyes[0] + rays * DEPTHS_M[total.argmin(axis=0)][:, None])


def _refine(views: Views, points: Array, sigma_px: float) -> tuple[Array, Array, Array]:
    """Return points (m, 3) by robust Gauss–Newton, their information (m, 3, 3), and chi² (v, m)."""
    rotation = rotations(views.states)
    eyes = (positions(views.states) + rotation @ views.bearings.centre).T[..., None]
    in_map = views.bearings.axes @ rotation.swapaxes(1, 2)[:, None]
    axes = np.ascontiguousarray(in_map.transpose(2, 3, 0, 1))
    seen = views.seen.astype(np.float64) / sigma_px**2
    prior = np.eye(3)[..., None] / POINT_PRIOR_M**2
    at = np.ascontiguousarray(points.T)
    for step in range(STEPS + 1):
        off, slope = gnomonic(axes, views.bearings.scale, at[:, None] - eyes)
        chi2 = (off**2).sum(axis=0) / sigma_px**2
        weighted = slope * (seen / (1.0 + chi2 / ROBUST_CHI2) ** 2)
        information = (weighted[:, :, None] * slope[:, None]).sum(axis=(0, 3)) + prior
        if step == STEPS:
            break
        gradient = (weighted * off[:, None]).sum(axis=(0, 2))
        change = np.linalg.solve(information.transpose(2, 0, 1), gradient.T[..., None])[..., 0].T
        # No step beyond half the distance, so a point never jumps behind its camera.
        length = np.linalg.norm(change, axis=0)
        reach = 0.5 * np.linalg.norm(at - eyes[:, 0], axis=0)
        at = at - change * np.minimum(1.0, reach / np.maximum(length, 1e-12))
    return np.ascontiguousarray(at.T), information.transpose(2, 0, 1), chi2
