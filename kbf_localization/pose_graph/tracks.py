"""Matches between keyframes, and the points that several of them see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Rows
from kbf_localization.landmarks.adjustment import PointGroup
from kbf_localization.landmarks.bearings import CameraModel, CameraMount, bearings_of
from kbf_localization.landmarks.build import as_landmarks, best_spread
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.landmarks.triangulation import (
    Sighting,
    match_views,
    stack_views,
    triangulate,
)
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.keyframes import Keyframes
from kbf_localization.progress import Progress
from kbf_localization.vision.keypoints import Keypoints

OFFSETS = (1, 2, 4)
"""Keyframes before and after that a keyframe is matched with."""
MAX_PATH_M, MAX_TURN_RAD = 1.5, 0.6
"""Partners farther along the path show another view."""
COARSE_SIGMA_PX = 3.0
"""Of keypoints while the poses are the odometry's: half a degree is 2 px."""
FINE_SIGMA_PX = 1.0
"""Of keypoints with adjusted poses."""
MIN_VIEWS = 3
GROUP_POINTS = 50
"""Points of a keyframe in an adjustment: more slow it down and add little."""
TASKS_AT_ONCE = 16


@dataclass(frozen=True)
class Task:
    """A keyframe and its partners: rows, states (v, 6), keypoints; matches (k,) with each partner.

    Matches are rows of the partner's keypoints, -1 without one; None where they are not known yet.
    """

    rows: Rows
    states: Array
    keypoints: tuple[Keypoints, ...]
    matches: tuple[NDArray[np.int16] | None, ...]
    sigma_px: float
    landmarks: bool


@dataclass(frozen=True)
class Points:
    """What the views of a keyframe agree on; None where that is nothing."""

    matches: NDArray[np.int16]
    group: PointGroup | None
    landmarks: ImageLandmarks | None


def neighbours(keyframes: Keyframes) -> list[Rows]:
    """Return the partners of each keyframe along its own piece."""
    found = []
    for row in range(len(keyframes)):
        rows = [row + sign * offset for offset in OFFSETS for sign in (-1, 1)]
        found.append(
            np.array(
                [
                    other
                    for other in rows
                    if 0 <= other < len(keyframes)
                    and keyframes.piece_of[other] == keyframes.piece_of[row]
                    and abs(keyframes.path_m[other] - keyframes.path_m[row]) < MAX_PATH_M
                    and _turn(keyframes, row, other) < MAX_TURN_RAD
                ],
                dtype=np.intp,
            )
        )
    return found


def _turn(keyframes: Keyframes, row: int, other: int) -> float:
    away = keyframes.odometry[row, 2] - keyframes.odometry[other, 2]
    return float(abs((away + np.pi) % (2.0 * np.pi) - np.pi))


class TrackBuilder:
    """Triangulates the keyframes' points at given poses; images are matched once."""

    def __init__(
        self,
        keypoints: Sequence[Keypoints],
        camera: CameraModel,
        mount: CameraMount,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.keypoints, self.camera, self.mount = keypoints, camera, mount
        self._workers, self._progress = workers, progress
        self._matches: dict[tuple[int, int], NDArray[np.int16]] = {}

    def points(
        self,
        states: Array,
        partners: Sequence[Rows],
        sigma_px: float,
        doing: str,
        landmarks: bool = False,
    ) -> list[Points]:
        """Return the points of each keyframe, whose states are (n, 6)."""
        made: list[Points] = []
        tasks = self._tasks(states, partners, sigma_px, landmarks)
        chunks = iter(lambda: list(islice(tasks, TASKS_AT_ONCE)), [])
        work = partial(_triangulate_all, self.camera, self.mount)
        for part in self._workers.map(work, chunks):
            for points in part:
                self._keep(len(made), partners[len(made)], points.matches)
                made.append(points)
            self._progress(len(made), len(partners), doing)
        return made

    def _keep(self, row: int, others: Rows, matches: NDArray[np.int16]) -> None:
        """Keep the matches with each partner, in both directions."""
        for column, other in enumerate(others.tolist(), start=1):
            if (row, other) not in self._matches:
                there = matches[:, column]
                back = np.full(len(self.keypoints[other]), -1, dtype=np.int16)
                found = np.flatnonzero(there >= 0)
                back[there[found]] = found
                self._matches[row, other], self._matches[other, row] = there.copy(), back

    def _tasks(
        self, states: Array, partners: Sequence[Rows], sigma_px: float, landmarks: bool
    ) -> Iterator[Task]:
        for row, others in enumerate(partners):
            rows = np.array([row, *others], dtype=np.intp)
            known = tuple(self._matches.get((row, other)) for other in others.tolist())
            keypoints = tuple(self.keypoints[int(value)] for value in rows)
            yield Task(rows, states[rows], keypoints, known, sigma_px, landmarks)


def _triangulate_all(camera: CameraModel, mount: CameraMount, tasks: list[Task]) -> list[Points]:
    return [_triangulate(task, camera, mount) for task in tasks]


def _triangulate(task: Task, camera: CameraModel, mount: CameraMount) -> Points:
    sightings = [
        Sighting(state, bearings_of(found.pixels, camera, mount), found.descriptors)
        for state, found in zip(task.states, task.keypoints)
    ]
    image, *partners = sightings
    matches = _match(image, partners, task.matches)
    views = min(MIN_VIEWS, len(sightings))
    if len(sightings) < 2:
        return Points(matches.astype(np.int16), None, None)
    found = triangulate(image, partners, views, task.sigma_px, matches)
    if not len(found.keypoints):
        return Points(matches.astype(np.int16), None, None)
    group, landmarks = None, None
    if task.landmarks:
        landmarks = as_landmarks(task.states[0], image, found)
    else:
        best = best_spread(image, found, GROUP_POINTS)
        stacked = stack_views(sightings, found.matches[best])
        group = PointGroup(task.rows, stacked.bearings, stacked.seen, found.points[best])
    return Points(matches.astype(np.int16), group, landmarks)


def _match(
    image: Sighting, partners: Sequence[Sighting], known: Sequence[NDArray[np.int16] | None]
) -> NDArray[np.intp]:
    """Return matches (k, 1 + v) with the partners, those that are known already from there."""
    missing = [partner for partner, found in zip(partners, known) if found is None]
    matched = match_views(image, missing)
    columns = iter(matched.T[1:])
    found = [next(columns) if there is None else there.astype(np.intp) for there in known]
    return np.stack([matched[:, 0], *found], axis=1)
