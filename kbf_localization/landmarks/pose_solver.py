"""The pose of a camera image from its keypoints, matched with a few map images' landmarks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgesv  # a third of the time of `np.linalg.solve`

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.bearings import (
    HEIGHT,
    SIGMA_PX,
    SPREAD_CELLS,
    STATES,
    Bearings,
    Pairs,
    X,
    Y,
    in_base,
    project,
    residual_information,
    rotations,
    rotations_by_components,
    spatial,
    twists,
)
from kbf_localization.landmarks.table import LandmarkTable
from kbf_localization.vision.keypoints import distance_columns, distance_rows, mutual_matches

MAX_IMAGES = 64
"""Map images kept ready; with 200 landmarks of 620 bytes, 8 MB."""


@dataclass(frozen=True)
class MapImage:
    """Landmarks of a map image in the map's frame.

    `columns` (m, 130) are the descriptors for distances; `points` (m, 3), `covariances`
    (3, 3, m), `attitude` (3,).
    """

    columns: Floats
    points: Array
    covariances: Array
    attitude: Array

    def __len__(self) -> int:
        return len(self.points)


class MapImages:
    """The landmarks of a table's images at `poses` (n, 3); those used last are kept."""

    def __init__(self, table: LandmarkTable, poses: Array) -> None:
        self._table, self._poses = table, poses
        self._kept: OrderedDict[int, MapImage] = OrderedDict()

    def image(self, row: int) -> MapImage:
        """Return the landmarks of one image."""
        # Threads may each read the same image; what they keep is equal.
        found = self._kept.pop(row, None)
        if found is None:
            placed = self._table.place(np.array([row]), self._poses[[row]])
            found = MapImage(
                distance_columns(placed.descriptors),
                placed.points,
                np.ascontiguousarray(np.moveaxis(placed.covariances, 0, -1)),
                placed.attitudes[0],
            )
        self._kept[row] = found
        while len(self._kept) > MAX_IMAGES:
            self._kept.popitem(last=False)
        return found


@dataclass(frozen=True)
class Matches:
    """Candidate pairs (m,).

    `keypoints` are rows of the image's, `images` numbers of the map images, `landmarks` rows in
    each; `covariances` (3, 3, m) are of the points, `ratios` those to the second nearest.
    """

    keypoints: Rows
    images: Rows
    landmarks: Rows
    pairs: Pairs
    covariances: Array
    ratios: Floats


class ImageMatcher:
    """Matches of an image with map images, each by itself, which shows a landmark once.

    Those of a map image are kept: an image is measured at several places with the same ones.
    """

    def __init__(self, bearings: Bearings, descriptors: NDArray[np.uint8]) -> None:
        self._bearings, self._descriptors = bearings, descriptors
        self._usable = np.flatnonzero(bearings.scale > 0.0)
        self._ready = distance_rows(descriptors[self._usable])
        self._found: dict[int, tuple[Rows, Rows, Floats]] = {}

    def is_of(self, bearings: Bearings, descriptors: NDArray[np.uint8]) -> bool:
        """Tell whether these are its image's."""
        return bearings is self._bearings and descriptors is self._descriptors

    def match(self, rows: Rows, images: Sequence[MapImage]) -> Matches:
        """Return the mutual matches with the map images `rows`, whose landmarks are `images`."""
        for row, image in zip(rows.tolist(), images, strict=True):
            if row not in self._found:
                self._found[row] = mutual_matches(self._ready @ image.columns.T)
        found = [self._found[row] for row in rows.tolist()]
        counts = [len(keypoints) for keypoints, _, _ in found]
        parts = list(zip(images, found, strict=True))
        keypoints = self._usable[np.concatenate([keypoints for keypoints, _, _ in found])]
        points = np.concatenate([image.points[columns] for image, (_, columns, _) in parts])
        return Matches(
            keypoints,
            np.repeat(np.arange(len(images)), counts),
            np.concatenate([columns for _, columns, _ in found]),
            Pairs.of(self._bearings[keypoints], points),
            np.concatenate(
                [image.covariances[..., columns] for image, (_, columns, _) in parts], axis=-1
            ),
            np.concatenate([ratios for _, _, ratios in found]),
        )


SAMPLES = 60
"""Pairs of matches that are tried; with half of the matches right, none is all right in 3e-8."""
SAMPLE_STEPS = 4
GATE_CHI2 = 16.0
"""A match beyond 4 σ is no inlier."""
SCORE_SIGMAS = 2.0
"""Samples are scored at 2 σ: a pose from two points is inexact."""
STUDENT_NU = 4.0
MAX_REFINEMENTS = 12
CONVERGED_CHI2 = 1e-3
"""A step this small, relative to the covariance, is the last."""
MAX_LAST_CHI2 = 0.1
"""A fit that still moves by more is none."""
MIN_INLIERS = 4
"""Below this the three unknowns of the plane are not tested by anything."""
ATTITUDE_SIGMA = (0.02, 0.008, 0.008)
"""Height (m), pitch and roll (rad) of an image relative to its map images' on an even floor."""
WIDE_M, WIDE_RAD = 100.0, 3.0
"""A prior so wide that it only keeps the normal equations regular."""
MIN_REACH = np.array([0.5, 0.5, 0.3])
MAX_REACH = np.array([3.0, 3.0, 1.5])
"""Bounds of how far (m, m, rad) samples are searched from a start, which may be a map image."""
MAX_STEP = np.array([1.0, 1.0, 0.3, 0.3, 0.1, 0.1])
"""No step of Gauss–Newton goes farther than it is valid."""
MIN_EXTENT_RAD = 0.03
"""Inliers in one spot of the image leave the pose open, and Gauss–Newton without a basis; in one
upright line they fit a wrong place that sees a wall from its edge."""
TILTED_RAD = 0.015
"""Where the tilt is less sure than this, samples have three points."""
_PLACE = [X, Y, HEIGHT]


@dataclass(frozen=True)
class LandmarkFix:
    """A pose measured by landmarks.

    `pose` (3,) and `covariance` (3, 3), which is the inverse of the normal matrix, times max(1,
    chi² / dof) and matched / inliers; `LandmarkMap` turns it into that of the true error. `state`
    (6,) adds height, pitch, roll. `inliers` of `matched` keypoints with a match agree, a
    `matched_fraction` of the landmarks that the image should show. `spread` in [0, 1] is the
    fraction of the image's cells that hold inliers. `keypoints`, `points` (i, 3) and `landmarks`
    (rows of the table's image and number in it, (i, 2)) are the inliers. `log_likelihood_ratio` is
    that of the place against another, which `LandmarkMap` knows; 0 until then.
    """

    pose: Array
    covariance: Array
    state: Array
    inliers: int
    matched: int
    matched_fraction: float
    spread: float
    keypoints: Rows
    points: Array
    landmarks: NDArray[np.intp]
    log_likelihood_ratio: float = 0.0

    @property
    def best_row(self) -> int:
        """Return the map image with most of the inliers."""
        rows, counts = np.unique(self.landmarks[:, 0], return_counts=True)
        return int(rows[np.argmax(counts)])


class LandmarkSolver:
    """Measures poses on a map's landmarks.

    `poses` (n, 3) are the table's images' poses. `attitude_sigma` are the standard deviations of
    height (m), pitch and roll (rad) of a camera image about those of the nearest map images.
    """

    def __init__(
        self,
        table: LandmarkTable,
        poses: Array,
        sigma_px: float = SIGMA_PX,
        attitude_sigma: tuple[float, float, float] = ATTITUDE_SIGMA,
    ) -> None:
        self.table, self.poses = table, np.asarray(poses, dtype=np.float64)
        self.sigma_px = sigma_px
        self.attitude_sigma = np.asarray(attitude_sigma)
        self._images = MapImages(table, self.poses)
        self._last: ImageMatcher | None = None

    def measure(
        self,
        bearings: Bearings,
        descriptors: NDArray[np.uint8],
        rows: Rows,
        prior_pose: Array,
        prior_covariance: Array,
    ) -> LandmarkFix | None:
        """Return the pose of an image near `prior_pose`, on the landmarks of the map images `rows`.

        The prior only starts the search; the fix is what most landmarks agree with. None where
        fewer than four keypoints agree on a pose.
        """
        rows = np.asarray(rows, dtype=np.intp)
        prior_pose = np.asarray(prior_pose, dtype=np.float64)
        if not len(bearings) or not len(rows) or not np.isfinite(prior_pose).all():
            return None
        placed = [self._images.image(int(row)) for row in rows]
        matches = self._matcher(bearings, descriptors).match(rows, placed)
        if len(matches.keypoints) < MIN_INLIERS:
            return None
        attitudes = np.stack([image.attitude for image in placed])
        attitude = _nearest_attitude(attitudes, self.poses[rows], prior_pose)
        starts = np.concatenate((prior_pose[None], self.poses[rows]))
        reach = _reach(prior_covariance)
        states = spatial(starts, attitude)
        seen = (attitude, matches, placed, bearings, rows)
        try:
            near = self._refine(states[0], *seen)
            if near is not None and 2 * near.inliers > near.matched:
                # Most keypoints agree with it, so that no other pose can have as many for itself.
                return near
            fix = self._refine(self._search(matches, states, reach), *seen)
        except np.linalg.LinAlgError:  # Numbers of a damaged map, of too many orders of magnitude.
            return None
        # Samples are scored without the landmarks' own errors, so that flat scenes may have a
        # better-looking wrong pose: the pose with more inliers is the fix.
        return near if fix is None or (near is not None and near.inliers > fix.inliers) else fix

    def _matcher(self, bearings: Bearings, descriptors: NDArray[np.uint8]) -> ImageMatcher:
        """Return that of the image; the last image's is kept."""
        # Threads may each replace it; what they go on with is their own.
        matcher = self._last
        if matcher is None or not matcher.is_of(bearings, descriptors):
            self._last = matcher = ImageMatcher(bearings, descriptors)
        return matcher

    def _search(self, matches: Matches, starts: Array, reach: Array) -> Array:
        """Return the state (6,) with the best robust score among samples and starts."""
        # The same image gives the same samples.
        rng = np.random.default_rng(len(matches.keypoints))
        size = 3 if max(self.attitude_sigma[1:]) > TILTED_RAD else 2
        pairs = _sample(rng, matches, size)
        states = starts[np.arange(len(pairs)) % len(starts)]
        sampled = self._solve_samples(matches, pairs, states, reach)
        states = np.concatenate((sampled, starts))
        scores = _scores(states, matches, SCORE_SIGMAS * self.sigma_px)
        return np.asarray(states[scores.argmin()])

    def _solve_samples(
        self, matches: Matches, pairs: NDArray[np.intp], states: Array, reach: Array
    ) -> Array:
        """Return states (s, 6) of the samples (s, 2) by Gauss–Newton from `states`."""
        # Samples are the last axis: (size, s).
        pairs_seen = matches.pairs.chosen(pairs.T)
        weak = np.concatenate((reach, self.attitude_sigma)) ** -2.0
        start = states
        for _ in range(SAMPLE_STEPS):
            by_component = states.T
            rotation = rotations_by_components(by_component)
            at = project(rotation[:, :, None], by_component[_PLACE][:, None], pairs_seen)
            twist = twists(by_component, rotation).transpose(2, 0, 1)
            by_twist = at.by_twist().transpose(3, 0, 2, 1).reshape(len(pairs), -1, STATES)
            J = np.matmul(by_twist, twist) / self.sigma_px
            r = np.minimum(at.residuals, 1e4).transpose(2, 0, 1) / self.sigma_px
            transposed = np.swapaxes(J, 1, 2)
            H = np.matmul(transposed, J)
            H[:, np.arange(STATES), np.arange(STATES)] += weak
            gradient = np.matmul(transposed, r.reshape(len(pairs), -1, 1))
            gradient += (weak * (states - start))[..., None]
            change = np.linalg.solve(H, gradient)[..., 0]
            states = states - np.clip(change, -MAX_STEP, MAX_STEP)
        return states

    def _refine(
        self,
        state: Array,
        attitude: Array,
        matches: Matches,
        placed: Sequence[MapImage],
        bearings: Bearings,
        rows: Rows,
    ) -> LandmarkFix | None:
        """Solve robust least squares of all six states on the inliers, chosen at every step."""
        weak = np.array([WIDE_M, WIDE_M, WIDE_RAD, *self.attitude_sigma]) ** -2.0
        weak_information = np.diag(weak)
        prior = np.concatenate((state[:3], attitude))
        for step in range(MAX_REFINEMENTS):
            rotation = rotations_by_components(state)
            at = project(rotation, state[_PLACE, None], matches.pairs)
            off = at.residuals
            information = residual_information(
                at.slope, matches.covariances, rotation, self.sigma_px**2
            )
            (a, b), (_, d) = information
            chi2 = a * off[0] ** 2 + 2.0 * b * off[0] * off[1] + d * off[1] ** 2
            # The gate closes from far, since the sample's pose is inexact.
            chosen = _one_each(matches, chi2, GATE_CHI2 * (4.0 if step == 0 else 1.0))
            if len(chosen) < MIN_INLIERS:
                return None
            weights = (STUDENT_NU + 2.0) / (STUDENT_NU + chi2[chosen])
            J = at.by_twist(chosen)
            W = information.take(chosen, axis=-1) * weights
            WJ = (W[:, :, None] * J).sum(axis=1)
            turned = twists(state, rotation)
            normal = np.matmul(WJ, J.transpose(0, 2, 1)).sum(axis=0)
            H = turned.T @ normal @ turned + weak_information
            gradient = np.matmul(WJ, off.take(chosen, axis=1)[..., None]).sum(axis=0)[:, 0]
            gradient = gradient @ turned + weak * (state - prior)
            _, _, change, singular = dgesv(H, gradient)
            if singular:
                return None
            moved = float(gradient @ change)
            if step and moved < CONVERGED_CHI2:
                break
            state = state - np.minimum(np.maximum(change, -MAX_STEP), MAX_STEP)
        extent = _extent(matches.pairs.axes[0][:, chosen])
        if not moved < MAX_LAST_CHI2 or extent < MIN_EXTENT_RAD:
            return None
        total = np.linalg.inv(H)
        dof = max(2 * len(chosen) - 3, 1)
        robust = float((weights * chi2[chosen]).sum()) / dof
        matched = len(np.unique(matches.keypoints))
        # The fewer of the matches agree, the more of these do so by chance.
        covariance = total[:3, :3] * max(1.0, robust) * (matched / len(chosen))
        if not (np.isfinite(covariance).all() and np.isfinite(state).all()):
            return None
        visible = _visible(state, placed, bearings)
        pose = state[:3].copy()
        pose[2] = wrap_angle(pose[2])
        keypoints = matches.keypoints[chosen]
        return LandmarkFix(
            pose=pose,
            covariance=0.5 * (covariance + covariance.T),
            state=state,
            inliers=len(chosen),
            matched=matched,
            matched_fraction=min(1.0, len(chosen) / max(visible, 1)),
            spread=_spread(bearings, keypoints),
            keypoints=keypoints,
            points=np.ascontiguousarray(matches.pairs.points[:, chosen].T),
            landmarks=np.stack((rows[matches.images[chosen]], matches.landmarks[chosen]), axis=1),
        )


def _reach(covariance: Array) -> Array:
    """Return how far (3,) a sample may lie from its start: 3 σ of the prior, within bounds."""
    sigma = 3.0 * np.sqrt(np.abs(np.nan_to_num(np.diagonal(covariance))))
    return np.asarray(np.clip(sigma, MIN_REACH, MAX_REACH))


def _nearest_attitude(attitudes: Array, poses: Array, pose: Array) -> Array:
    """Return mean height, pitch, roll (3,) of the three map images nearest to the pose."""
    offset = poses - pose
    distance = offset[:, 0] ** 2 + offset[:, 1] ** 2 + wrap_angle(offset[:, 2]) ** 2
    return np.asarray(attitudes[np.argsort(distance, kind="stable")[:3]].mean(axis=0))


def _sample(rng: np.random.Generator, matches: Matches, size: int) -> NDArray[np.intp]:
    """Return matches (s, size) of different keypoints, the distinctive more often."""
    weights = np.maximum(1.0 - matches.ratios.astype(np.float64), 0.02)
    edges = np.cumsum(weights)
    drawn = np.searchsorted(edges, rng.random((SAMPLES, size)) * edges[-1], side="right")
    return np.asarray(np.minimum(drawn, len(weights) - 1), dtype=np.intp)


def _scores(states: Array, matches: Matches, sigma_px: float) -> Array:
    """Return Σ min(q / gate, 1) (s,) of states (s, 6): one matrix product projects all points.

    A component a · (Rᵀ (P − t) − c) is linear in the entries of R and of Rᵀ t + c.
    """
    origin = states[0, _PLACE]
    rotation = rotations(states)
    shift = np.einsum("sij,si->sj", rotation, states[:, _PLACE] - origin)
    shift += matches.pairs.centre
    unknown = np.concatenate((rotation.reshape(-1, 9), shift), axis=1).astype(np.float32)
    points, axes = matches.pairs.points - origin[:, None], matches.pairs.axes
    count = points.shape[1]
    features = np.empty((12, 3, count), dtype=np.float32)
    # (i, j, component, match): the derivative by R_ij.
    grid = features[:9].reshape(3, 3, 3, count)
    np.multiply(points[:, None, None], axes.swapaxes(0, 1), out=grid, casting="same_kind")
    np.negative(axes.swapaxes(0, 1), out=features[9:], casting="same_kind")
    along = (unknown @ features.reshape(12, -1)).reshape(-1, 3, count)
    nearest = np.float32(1e-3)
    depth = np.maximum(along[:, 0], nearest)
    chi2 = (along[:, 1] ** 2 + along[:, 2] ** 2) / depth**2
    chi2 *= ((matches.pairs.scale / sigma_px) ** 2 / GATE_CHI2).astype(np.float32)
    chi2[along[:, 0] <= nearest] = 1.0
    np.minimum(chi2, np.float32(1.0), out=chi2)
    return np.asarray(chi2.sum(axis=1), dtype=np.float64)


def _one_each(matches: Matches, chi2: Array, gate: float) -> Rows:
    """Return the rows of the matches within the gate, the best-fitting of each keypoint."""
    near = np.flatnonzero(chi2 < gate)
    # Of values assigned to the same place the last remains: the best comes last.
    order = near[np.argsort(chi2[near], kind="stable")[::-1]]
    best = np.full(matches.keypoints.max() + 1, -1, dtype=np.intp)
    best[matches.keypoints[order]] = order
    return np.asarray(best[best >= 0])


def _visible(state: Array, placed: Sequence[MapImage], bearings: Bearings) -> int:
    """Return how many landmarks lie within the cone that holds the image's keypoints.

    Landmarks of several images may be one point: the count is the largest of one image.
    """
    points = np.concatenate([image.points for image in placed])
    seen = in_base(state, points) - bearings.centre
    seen /= np.maximum(np.sqrt(np.einsum("ij,ij->i", seen, seen)), 1e-9)[:, None]
    inside = bearings.field_of_view.holds(seen)
    ends = np.cumsum([0, *(len(image) for image in placed)])
    total = np.concatenate(([0], np.cumsum(inside)))
    return int(np.diff(total[ends]).max(initial=0))


def _extent(rays: Array) -> float:
    """Return the standard deviation (rad) of directions (3, k) across, to the left and right."""
    ahead = rays[:2].sum(axis=1)
    across = (ahead[0] * rays[1] - ahead[1] * rays[0]) / max(float(np.hypot(*ahead)), 1e-9)
    return float(across.std())


def _spread(bearings: Bearings, keypoints: Rows) -> float:
    """Return the fraction of 4 by 4 cells, over all keypoints' directions, that hold inliers."""
    return len(np.unique(bearings.cells[keypoints])) / SPREAD_CELLS**2
