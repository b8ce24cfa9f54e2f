"""Closures: keyframes at the same place, verified by points and by each other's support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from kbf_localization.arrays import Array, Flags, Floats, Rows
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.bearings import CameraMount, bearings_of, in_base
from kbf_localization.landmarks.pose_solver import LandmarkSolver
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.edges import Edges, whitening_of
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.progress import Progress
from kbf_localization.vision.camera import Camera
from kbf_localization.vision.keypoints import Keypoints, mutual_matches, squared_distances

MIN_MATCHES = 20
"""Below it no pose is solved for."""
MIN_INLIERS, MIN_INLIER_FRACTION = 20, 0.40
"""With 12 inliers and 25 % half of the closures within a drive were wrong."""
MIN_SPREAD = 0.19
"""Inliers in fewer than 4 of 16 cells of the image leave the pose open."""
MAX_DISTANCE_M, MAX_TURN_RAD = 6.0, 1.0
"""Views farther apart have too little in common to exclude look-alikes."""
SIGMA_PX = 1.5
"""Of a keypoint against points that were triangulated elsewhere."""
REACH = np.diag([2.0**2, 2.0**2, 0.6**2])
"""Covariance with which the pose is searched round the similar keyframe's."""
MAX_SIGMA_M, MAX_SIGMA_RAD = 0.25, np.radians(2.5)
"""Inliers that leave the pose more open are no proof of a place."""
SIGMA_FACTOR = 2.0
FLOOR_M, FLOOR_RELATIVE, FLOOR_RAD = 0.03, 0.05, np.radians(0.4)
"""A closure's σ: twice the solver's, and 3 cm + 5 % of the distance and 0.4°, for what the points'
own errors have in common."""
SUPPORT_M, SUPPORT_PER_PATH, SUPPORT_PER_DISTANCE = 0.10, 0.05, 0.03
SUPPORT_RAD = np.radians(3.0)
"""Two closures agree within 0.10 m + 5 % of the path between them + 3 % of the distance, and 3°."""
SUPPORT_PATH_M = 6.0
"""Beyond this path the motion between two closures is too uncertain to test them."""
MIN_SUPPORT = 2
"""Other keyframes' closures that agree with a closure."""
GATE_M, GATE_PER_PATH = 0.5, 0.08
GATE_RAD, GATE_RAD_PER_M = np.radians(6.0), np.radians(0.4)
"""A closure within a piece contradicts the path between its keyframes by no more."""
TASKS_AT_ONCE = 32

UNSUPPORTED = "no two other closures agree with it"
AGAINST_ODOMETRY = "contradicts the path between its images"
LOOK_ALIKE = "agrees with others, and all contradict the path between their images"
OUTLIER = "does not fit the other closures"
HELD_APART = "the anchors of its drives place its images elsewhere"
MISFIT_M, MISFIT_RELATIVE, MISFIT_RAD = 0.3, 0.1, np.radians(5.0)
"""A closure that contradicts the final poses by more than 0.3 m + 10 % or 5° is wrong."""
REDUNDANT_M = 2.0
"""Closures whose ends are nearer along both paths see the same points and err alike."""


@dataclass(frozen=True)
class Closure:
    """Keyframe `second` as seen from keyframe `first`: `motion` (3,), `covariance` (3, 3).

    `inliers` of `matched` keypoints agree; `spread` in [0, 1] is the fraction of the image's cells
    that hold them. `pixels` (inliers, 4) are theirs, x and y in the first image and in the second.
    """

    first: int
    second: int
    motion: Array
    covariance: Array
    inliers: int
    matched: int
    spread: float
    pixels: Floats | None = None

    def scaled(self, scale: float) -> Closure:
        """Return the closure with distances times `scale`."""
        factors = np.array([scale, scale, 1.0])
        covariance = self.covariance * np.outer(factors, factors)
        return replace(self, motion=self.motion * factors, covariance=covariance)


@dataclass(frozen=True)
class Rejected:
    """A verified pair of keyframes that is not used, and why."""

    closure: Closure
    reason: str


@dataclass(frozen=True)
class _Task:
    first: int
    second: int
    landmarks: ImageLandmarks
    keypoints: Keypoints


def verify(
    pairs: tuple[Rows, Rows],
    keypoints: Sequence[Keypoints],
    landmarks: Sequence[ImageLandmarks | None],
    camera: Camera,
    mount: CameraMount,
    workers: Workers,
    progress: Progress,
) -> list[Closure]:
    """Return the closures of pairs (query, similar), whose queries are posed on the points.

    `landmarks` of each keyframe are in the frame of that keyframe's own pose.
    """

    def tasks() -> Iterator[_Task]:
        for query, similar in zip(*pairs):
            points = landmarks[int(similar)]
            if points is not None and len(points) >= MIN_MATCHES:
                yield _Task(int(similar), int(query), points, keypoints[int(query)])

    found: list[Closure] = []
    source, done = tasks(), 0
    chunks = iter(lambda: list(islice(source, TASKS_AT_ONCE)), [])
    for part in workers.map(partial(_verify_all, camera, mount), chunks):
        found.extend(part)
        done += TASKS_AT_ONCE
        progress(min(done, len(pairs[0])), len(pairs[0]), "verifying closures")
    return found


def _verify_all(camera: Camera, mount: CameraMount, tasks: list[_Task]) -> list[Closure]:
    found = (_verify(task, camera, mount) for task in tasks)
    return [closure for closure in found if closure is not None]


def _verify(task: _Task, camera: Camera, mount: CameraMount) -> Closure | None:
    if min(len(task.keypoints), len(task.landmarks)) < MIN_MATCHES:
        return None
    distances = squared_distances(task.keypoints.descriptors, task.landmarks.descriptors)
    rows, columns, _ = mutual_matches(distances)
    if len(rows) < MIN_MATCHES:
        return None
    matched = ImageLandmarks(
        task.landmarks.descriptors[columns],
        task.landmarks.offsets[columns],
        task.landmarks.covariances[columns],
        task.landmarks.attitude,
    )
    bearings = bearings_of(task.keypoints.pixels[rows], camera, mount)
    solver = LandmarkSolver(LandmarkTable.of_images([matched]), np.zeros((1, 3)), SIGMA_PX)
    fix = solver.measure(
        bearings, task.keypoints.descriptors[rows], np.zeros(1, np.intp), np.zeros(3), REACH
    )
    if fix is None or fix.inliers < MIN_INLIERS:
        return None
    if fix.inliers < MIN_INLIER_FRACTION * len(rows) or fix.spread < MIN_SPREAD:
        return None
    sigma = SIGMA_FACTOR * np.sqrt(np.diag(fix.covariance))
    if sigma[:2].max() > MAX_SIGMA_M or sigma[2] > MAX_SIGMA_RAD:
        return None
    distance = float(np.hypot(*fix.pose[:2]))
    if distance > MAX_DISTANCE_M or abs(fix.pose[2]) > MAX_TURN_RAD:
        return None
    floor = np.array([FLOOR_M + FLOOR_RELATIVE * distance] * 2 + [FLOOR_RAD])
    covariance = SIGMA_FACTOR**2 * fix.covariance + np.diag(floor**2)
    # What the first image sees of the points, whose frame is its own.
    state = np.concatenate((np.zeros(3), task.landmarks.attitude))
    there = (in_base(state, fix.points) - mount.translation) @ mount.rotation
    here = task.keypoints.pixels[rows[fix.keypoints]]
    pixels = np.concatenate((camera.project(there), here), axis=1).astype(np.float32)
    return Closure(
        task.first, task.second, fix.pose, covariance, fix.inliers, len(rows), fix.spread, pixels
    )


def supported(
    closures: Sequence[Closure], keyframes: Keyframes, poses: Array
) -> tuple[list[Closure], list[Rejected], NDArray[np.intp]]:
    """Split closures by whether others support them; return also the support of those kept.

    `poses` (n, 3) are the keyframes' in the frames of their pieces. Two closures between the same
    pieces support each other if the paths between their ends agree with them.
    """
    kept: list[Closure] = []
    rejected: list[Rejected] = []
    within = [_within_gate(closure, keyframes, poses) for closure in closures]
    usable = [closure for closure, fits in zip(closures, within) if fits]
    against = [closure for closure, fits in zip(closures, within) if not fits]
    rejected += [
        Rejected(closure, LOOK_ALIKE if count >= MIN_SUPPORT else AGAINST_ODOMETRY)
        for closure, count in zip(against, _support(against, keyframes, poses))
    ]
    counts = _support(usable, keyframes, poses)
    support: list[int] = []
    for closure, count in zip(usable, counts):
        if count >= MIN_SUPPORT:
            kept.append(closure)
            support.append(int(count))
        else:
            rejected.append(Rejected(closure, UNSUPPORTED))
    return kept, rejected, np.array(support, dtype=np.intp)


def _within_gate(closure: Closure, keyframes: Keyframes, poses: Array) -> bool:
    first, second = closure.first, closure.second
    if keyframes.piece_of[first] != keyframes.piece_of[second]:
        return True
    path = abs(float(keyframes.path_m[first] - keyframes.path_m[second]))
    away = relative(poses[first], poses[second]) - closure.motion
    turn = abs(float(wrap_angle(away[2])))
    turn_gate = GATE_RAD + GATE_RAD_PER_M * path
    return bool(np.hypot(*away[:2]) < GATE_M + GATE_PER_PATH * path and turn < turn_gate)


def _support(closures: Sequence[Closure], keyframes: Keyframes, poses: Array) -> NDArray[np.intp]:
    """Return how many keyframes' other closures agree with each."""
    counts = np.zeros(len(closures), dtype=np.intp)
    first, second, motions = _stacked(closures)
    pieces = np.sort(np.stack((keyframes.piece_of[first], keyframes.piece_of[second])), axis=0)
    # In the order of the pieces, so that closures of both directions compare.
    swap = keyframes.piece_of[first] > keyframes.piece_of[second]
    swap |= (pieces[0] == pieces[1]) & (first > second)
    here, other = np.where(swap, second, first), np.where(swap, first, second)
    seen = np.where(swap[:, None], relative(motions, np.zeros(3)), motions)
    distance = np.hypot(motions[:, 0], motions[:, 1])
    for number in range(len(closures)):
        gap = np.abs(keyframes.path_m[here] - keyframes.path_m[here[number]])
        gap_other = np.abs(keyframes.path_m[other] - keyframes.path_m[other[number]])
        path = gap + gap_other
        near = np.flatnonzero(
            (pieces[0] == pieces[0, number])
            & (pieces[1] == pieces[1, number])
            & (path < SUPPORT_PATH_M)
            & (second != second[number])
        )
        if not len(near):
            continue
        moved = relative(poses[here[number]], poses[here[near]])
        moved_other = relative(poses[other[near]], poses[other[number]])
        predicted = compose(compose(moved, seen[near]), moved_other)
        away = predicted - seen[number]
        bound = SUPPORT_M + SUPPORT_PER_PATH * path[near]
        bound += SUPPORT_PER_DISTANCE * (distance[near] + distance[number])
        agree = (np.hypot(away[:, 0], away[:, 1]) < bound) & (
            np.abs(wrap_angle(away[:, 2])) < SUPPORT_RAD
        )
        counts[number] = len(np.unique(second[near[agree]]))
    return counts


def _stacked(closures: Sequence[Closure]) -> tuple[Rows, Rows, Array]:
    return (
        np.array([closure.first for closure in closures], dtype=np.intp),
        np.array([closure.second for closure in closures], dtype=np.intp),
        np.array([closure.motion for closure in closures]).reshape(-1, 3),
    )


def as_edges(closures: Sequence[Closure]) -> Edges:
    """Return the closures as edges of the graph."""
    if not closures:
        return Edges.none()
    covariances = np.stack([closure.covariance for closure in closures])
    return Edges(*_stacked(closures), whitening_of(covariances))


def components(closures: Sequence[Closure], piece_of: Rows, minimum: int = 3) -> Rows:
    """Return the component (p,) of each piece; pieces with `minimum` closures belong together."""
    count = int(piece_of.max()) + 1
    first, second, _ = _stacked(closures)
    links = coo_matrix(
        (np.ones(len(first)), (piece_of[first], piece_of[second])), shape=(count, count)
    ).tocsr()
    links = links + links.T
    links.data = np.where(links.data >= minimum, 1.0, 0.0)
    links.eliminate_zeros()
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.intp)


def place_pieces(
    closures: Sequence[Closure], support: NDArray[np.intp], piece_of: Rows, poses: Array, root: int
) -> tuple[Array, Flags]:
    """Return poses (n, 3) in the frame of the piece `root`, and which pieces are placed.

    Each further piece is placed by the closure that most others agree with.
    """
    poses = poses.copy()
    placed = np.zeros(int(piece_of.max()) + 1, dtype=bool)
    placed[root] = True
    while True:
        best: tuple[int, Closure] | None = None
        for closure, count in zip(closures, support):
            ends = placed[piece_of[closure.first]], placed[piece_of[closure.second]]
            if ends[0] != ends[1] and (best is None or count > best[0]):
                best = int(count), closure
        if best is None:
            return poses, placed
        closure = best[1]
        if placed[piece_of[closure.first]]:
            piece, at = piece_of[closure.second], closure.second
            target = compose(poses[closure.first], closure.motion)
        else:
            piece, at = piece_of[closure.first], closure.first
            target = compose(poses[closure.second], relative(closure.motion, np.zeros(3)))
        own = piece_of == piece
        poses[own] = compose(target, relative(poses[at], poses[own]))
        placed[piece] = True


def misfits(closures: Sequence[Closure], poses: Array) -> Flags:
    """Return which closures (c,) contradict the poses (n, 3)."""
    first, second, motions = _stacked(closures)
    away = relative(poses[first], poses[second]) - motions
    bound = MISFIT_M + MISFIT_RELATIVE * np.hypot(motions[:, 0], motions[:, 1])
    far = np.hypot(away[:, 0], away[:, 1]) > bound
    return np.asarray(far | (np.abs(wrap_angle(away[:, 2])) > MISFIT_RAD))


def counted_once(closures: Sequence[Closure], keyframes: Keyframes) -> list[Closure]:
    """Return the closures with covariances by which those that see the same points count once."""
    counts = redundancy(closures, keyframes)
    return [
        replace(closure, covariance=closure.covariance * count)
        for closure, count in zip(closures, counts)
    ]


def redundancy(closures: Sequence[Closure], keyframes: Keyframes) -> Array:
    """Return how many closures (c,), itself included, see the same points as each."""
    first, second, _ = _stacked(closures)
    swap = first > second
    here, other = np.where(swap, second, first), np.where(swap, first, second)
    pieces = keyframes.piece_of[here], keyframes.piece_of[other]
    paths = keyframes.path_m[here], keyframes.path_m[other]
    counts = np.ones(len(closures))
    for number in range(len(closures)):
        near = np.ones(len(closures), dtype=bool)
        for piece, path in zip(pieces, paths):
            near &= (piece == piece[number]) & (np.abs(path - path[number]) < REDUNDANT_M)
        counts[number] = near.sum()
    return counts
