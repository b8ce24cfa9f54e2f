"""Tracks: the points that several keyframes see, triangulated at given poses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Floats, Rows
from kbf_localization.landmarks.adjustment import CameraSlopes, PointGroup
from kbf_localization.landmarks.bearings import bearings_of
from kbf_localization.landmarks.build import as_landmarks, best_spread
from kbf_localization.landmarks.table import ImageLandmarks
from kbf_localization.landmarks.triangulation import MAX_DEPTH_ERROR as LANDMARK_DEPTH_ERROR
from kbf_localization.landmarks.triangulation import (
    Sighting,
    match_views,
    stack_views,
    triangulate,
)
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.keyframes import MAX_PATH_M, MAX_TURN_RAD, Keyframes
from kbf_localization.pose_graph.learned_camera import LearnedCamera
from kbf_localization.progress import Progress
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.keypoints import Keypoints

OFFSETS = (1, 2, 4)
"""Keyframes before and after that a keyframe is matched with."""
COARSE_SIGMA_PX = 3.0
"""Of keypoints while the poses are the odometry's: half a degree is 2 px."""
FINE_SIGMA_PX = 1.0
"""Of keypoints with adjusted poses."""
MIN_VIEWS = 3
MAX_DEPTH_ERROR = 1.0
"""σ of a point's depth, relative, in an adjustment: a robot that turns on the spot sees no depths,
and such points still hold its heading."""
GROUP_POINTS = 50
"""Points of a keyframe in an adjustment: more slow it down and add little."""
TASKS_AT_ONCE = 16


@dataclass(frozen=True)
class Task:
    """A keyframe and its partners: rows and sightings (v,); matches (k,) with each partner.

    Matches are rows of the partner's keypoints, -1 without one; None where they are not known yet.
    Partners whose matches are known come without descriptors.
    """

    rows: Rows
    sightings: tuple[Sighting, ...]
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
        camera: Camera,
        mount: Mount,
        workers: Workers,
        progress: Progress,
        learned: LearnedCamera | None = None,
        matches: dict[tuple[int, int], NDArray[np.int16]] | None = None,
    ) -> None:
        """Builders of the same keypoints may share their `matches`."""
        self.keypoints, self.camera, self.mount, self.learned = keypoints, camera, mount, learned
        self._workers, self._progress = workers, progress
        self._bearings = [bearings_of(found.pixels, camera, mount) for found in keypoints]
        self._matches = {} if matches is None else matches
        self._slopes: list[Floats] = []
        if learned is not None:
            pixels = np.concatenate([found.pixels for found in keypoints])
            ends = np.cumsum([len(found) for found in keypoints])
            self._slopes = np.split(learned.slopes(pixels), ends[:-1])

    def with_camera(self, learned: LearnedCamera) -> TrackBuilder:
        """Return a builder of the same matches with another camera."""
        return TrackBuilder(
            self.keypoints,
            learned.camera,
            learned.mount,
            self._workers,
            self._progress,
            learned,
            self._matches,
        )

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
        for part in self._workers.map(_triangulate_all, chunks):
            for points in part:
                self._keep(len(made), partners[len(made)], points.matches)
                made.append(self._with_camera_slopes(points))
            self._progress(len(made), len(partners), doing)
        return made

    def _with_camera_slopes(self, points: Points) -> Points:
        """Return the points, whose group also tells how a camera that is learned moves them."""
        group = points.group
        if self.learned is None or group is None or group.keypoints is None:
            return points
        own = [self._slopes[row][rows] for row, rows in zip(group.images, group.keypoints)]
        by_pixels = np.stack(own, axis=2).transpose(1, 3, 2, 0)
        slopes = CameraSlopes(by_pixels[:2], by_pixels[2], self.learned.by_centre)
        return replace(points, group=replace(group, camera=slopes))

    def _keep(self, row: int, others: Rows, matches: NDArray[np.int16]) -> None:
        """Keep the matches with each partner, in both directions."""
        for column, other in enumerate(others.tolist(), start=1):
            if (row, other) not in self._matches:
                there = matches[:, column]
                back = _reversed(there, len(self.keypoints[other])).astype(np.int16)
                self._matches[row, other], self._matches[other, row] = there.copy(), back

    def _tasks(
        self, states: Array, partners: Sequence[Rows], sigma_px: float, landmarks: bool
    ) -> Iterator[Task]:
        for row, others in enumerate(partners):
            rows = np.array([row, *others], dtype=np.intp)
            known = tuple(self._matches.get((row, other)) for other in others.tolist())
            sightings = tuple(
                Sighting(
                    states[other],
                    self._bearings[other],
                    (Keypoints.none() if found is not None else self.keypoints[other]).descriptors,
                )
                for other, found in zip(rows.tolist(), (None, *known))
            )
            yield Task(rows, sightings, known, sigma_px, landmarks)


def _triangulate_all(tasks: list[Task]) -> list[Points]:
    return [_triangulate(task) for task in tasks]


def _triangulate(task: Task) -> Points:
    sightings = task.sightings
    image, *partners = sightings
    matches = _match(image, partners, task.rows, task.matches)
    views = min(MIN_VIEWS, len(sightings))
    if len(sightings) < 2:
        return Points(matches.astype(np.int16), None, None)
    depth_error = LANDMARK_DEPTH_ERROR if task.landmarks else MAX_DEPTH_ERROR
    found = triangulate(image, partners, views, task.sigma_px, matches, depth_error)
    if not len(found.keypoints):
        return Points(matches.astype(np.int16), None, None)
    group, landmarks = None, None
    if task.landmarks:
        landmarks = as_landmarks(image.state, image, found)
    else:
        best = best_spread(image, found, GROUP_POINTS)
        stacked = stack_views(sightings, found.matches[best])
        keypoints = found.matches[best].T
        group = PointGroup(
            task.rows, stacked.bearings, stacked.seen, found.points[best], None, keypoints
        )
    return Points(matches.astype(np.int16), group, landmarks)


def _match(
    image: Sighting,
    partners: Sequence[Sighting],
    rows: Rows,
    known: Sequence[NDArray[np.int16] | None],
) -> NDArray[np.intp]:
    """Return matches (k, 1 + v) with the partners, those that are known already from there.

    Of two keyframes that of the lower row is matched with the other. The ratio test is not
    symmetric, and which matches are known already depends on how far other workers have come.
    """
    count, own = len(image.bearings), int(rows[0])
    found = [match_views(image, ())[:, 0]]
    for partner, other, there in zip(partners, rows[1:].tolist(), known):
        if there is not None:
            found.append(there.astype(np.intp))
        elif own < other:
            found.append(match_views(image, [partner])[:, 1])
        else:
            found.append(_reversed(match_views(partner, [image])[:, 1], count))
    return np.stack(found, axis=1)


def _reversed(matches: NDArray[np.integer[Any]], count: int) -> NDArray[np.intp]:
    """Return for each of `count` keypoints which of `matches` (k,) it is, -1 for none."""
    back = np.full(count, -1, dtype=np.intp)
    found = np.flatnonzero(matches >= 0)
    back[matches[found]] = found
    return back
