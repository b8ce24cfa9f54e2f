"""The landmark table of a map: keypoints of the drives' images, triangulated and adjusted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Image, Rows
from kbf_localization.landmarks.adjustment import POSE_SIGMA, PointGroup, adjust
from kbf_localization.landmarks.bearings import (
    SIGMA_PX,
    Bearings,
    CameraModel,
    CameraMount,
    bearings_of,
    spatial,
)
from kbf_localization.landmarks.table import MAX_PER_IMAGE, ImageLandmarks, LandmarkTable
from kbf_localization.landmarks.triangulation import (
    Sighting,
    Triangulation,
    choose_partners,
    match_views,
    stack_views,
    triangulate,
)
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.threads import one_thread_of_opencv
from kbf_localization.vision.keypoints import Keypoints, detect_keypoints

IMAGES_AT_ONCE = 16
ADJUSTED_AT_ONCE = 400
"""Map images that are adjusted together; memory and time grow with their number."""
POINTS_TO_ADJUST = 60
"""Points a map image in the adjustment, which suffice for six unknowns."""
COARSE_SIGMA_PX = 2.0
"""Of keypoints while the poses are as given: 2 cm and 0.35° are as much."""
ADJUSTED_SIGMA_PX = 0.5
"""Of keypoints in the adjustment's last steps: between rendered and real images'."""
SIGMA_RANGE_PX = (0.2, 2.0)
"""Of keypoints, estimated from the residuals, with adjusted poses."""
SPARSE_PARTNERS = 4
"""With fewer partners two views suffice."""
CELLS = 6
"""Landmarks are spread over 6 by 6 cells of the image's keypoints."""
MIN_ATTITUDE_SIGMA = np.array([0.003, 0.002, 0.002])
"""Metres and radians; a floor is never more even."""

Numbered = tuple[int, Image]
"""An image with its row in the drives' images."""


class KeypointSource(Protocol):
    """Keypoints by the rows of the images."""

    def __contains__(self, row: int) -> bool: ...

    def __getitem__(self, row: int) -> Keypoints: ...


class KeypointStore:
    """Keypoints of many images in a temporary file, so that memory stays bounded."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._places: dict[int, tuple[int, int]] = {}

    def add(self, row: int, keypoints: Keypoints) -> None:
        self._file.seek(0, 2)
        self._places[row] = (self._file.tell(), len(keypoints))
        self._file.write(keypoints.pixels.astype("<f4").tobytes())
        self._file.write(keypoints.descriptors.tobytes())

    def __contains__(self, row: int) -> bool:
        return row in self._places

    def __getitem__(self, row: int) -> Keypoints:
        place, count = self._places[row]
        self._file.seek(place)
        pixels = np.frombuffer(self._file.read(8 * count), dtype="<f4").reshape(-1, 2)
        descriptors = np.frombuffer(self._file.read(128 * count), dtype=np.uint8)
        return Keypoints(pixels, descriptors.reshape(-1, 128))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> KeypointStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class BuiltLandmarks:
    """The table of a map's images and what was estimated with it.

    `sigma_px` is the keypoints' standard deviation; `attitude_sigma` (3,) that of height (m), pitch
    and roll (rad) over the images; `misfits` are rows of all images whose poses do not fit
    what they see, by more than 4 σ.
    """

    table: LandmarkTable
    sigma_px: float
    attitude_sigma: tuple[float, float, float]
    misfits: Rows


@dataclass(frozen=True)
class _Task:
    """A map image and its partners: rows, given states, keypoints, and matches once known."""

    rows: Rows
    states: Array
    keypoints: tuple[Keypoints, ...]
    matches: NDArray[np.int16] | None = None


@dataclass(frozen=True)
class _Coarse:
    """Matches (k, 1 + v) of a map image with its partners, and points for the adjustment."""

    rows: Rows
    matches: NDArray[np.int16]
    group: PointGroup | None


def needed_rows(
    poses: Array, selected: Rows, excluded: Rows | None = None
) -> tuple[Rows, list[Rows]]:
    """Return the rows of all images whose keypoints are needed, and the selected ones' partners."""
    partners = choose_partners(poses, selected, excluded)
    return np.unique(np.concatenate([selected, *partners])).astype(np.intp), partners


def collect_keypoints(
    images: Iterable[Numbered],
    count: int,
    store: KeypointStore,
    workers: Workers,
    progress: Progress,
) -> None:
    """Put the keypoints of `count` images into the store."""
    source = iter(images)
    chunks = iter(lambda: list(islice(source, IMAGES_AT_ONCE)), [])
    for done, part in enumerate(workers.map(_detect, chunks), start=1):
        for row, keypoints in part:
            store.add(row, keypoints)
        progress(min(done * IMAGES_AT_ONCE, count), count, "detecting keypoints")


def _detect(images: list[Numbered]) -> list[tuple[int, Keypoints]]:
    # There are as many workers as cores already.
    with one_thread_of_opencv():
        return [(row, detect_keypoints(image)) for row, image in images]


def triangulate_all(
    poses: Array,
    selected: Rows,
    partners: Sequence[Rows],
    store: KeypointSource,
    camera: CameraModel,
    mount: CameraMount,
    workers: Workers,
    progress: Progress,
    pose_sigma: tuple[float, float, float] = POSE_SIGMA,
    attitudes: Array | None = None,
) -> BuiltLandmarks:
    """Return the table of the selected images; one whose image could not be read has no landmarks.

    Points are first triangulated with the poses as given. Then poses, heights and tilts are
    adjusted, and the points are triangulated again. They are stored relative to the given poses.
    `attitudes` (n, 3) are the images' heights, pitches and rolls, zero if not given.
    """
    given = spatial(poses, attitudes)
    made: list[ImageLandmarks] = []
    sigmas: list[float] = []
    misfits: list[Rows] = []
    for first in range(0, len(selected), ADJUSTED_AT_ONCE):
        part = slice(first, first + ADJUSTED_AT_ONCE)
        coarse: list[_Coarse] = []
        tasks = _tasks(given, selected[part], partners[part], store)
        for found in workers.map(partial(_coarse, camera, mount), _chunks(tasks)):
            coarse.extend(found)
            progress(first + len(coarse), len(selected), "matching keypoints")
        states, wrong = _adjusted(given, coarse, pose_sigma)
        misfits.append(wrong)
        again = _with_states(coarse, states, store)
        for landmarks in workers.map(partial(_fine, camera, mount), _chunks(again)):
            for image, sigma_px in landmarks:
                row = selected[len(made)]
                made.append(relative_to(poses[row], image))
                sigmas.append(sigma_px)
            progress(len(made), len(selected), "triangulating landmarks")
    known = [sigma for sigma in sigmas if sigma > 0.0]
    sigma_px = float(np.clip(np.median(known), *SIGMA_RANGE_PX)) if known else SIGMA_RANGE_PX[1]
    table = LandmarkTable.of_images(made)
    return BuiltLandmarks(
        table,
        sigma_px,
        _attitude_sigma(table),
        np.unique(np.concatenate(misfits or [selected])),
    )


def _chunks(tasks: Iterator[_Task]) -> Iterator[list[_Task]]:
    return iter(lambda: list(islice(tasks, IMAGES_AT_ONCE)), [])


def _tasks(
    states: Array, selected: Rows, partners: Sequence[Rows], store: KeypointSource
) -> Iterator[_Task]:
    for row, others in zip(selected, partners):
        rows = np.array([row, *(other for other in others if int(other) in store)], dtype=np.intp)
        yield _Task(rows, states[rows], _keypoints(rows, store))


def _keypoints(rows: Rows, store: KeypointSource) -> tuple[Keypoints, ...]:
    return tuple(store[int(row)] if int(row) in store else Keypoints.none() for row in rows)


def _with_states(
    coarse: Sequence[_Coarse], states: dict[int, Array], store: KeypointSource
) -> Iterator[_Task]:
    for found in coarse:
        own = np.stack([states[int(row)] for row in found.rows])
        yield _Task(found.rows, own, _keypoints(found.rows, store), found.matches)


def _sightings(
    camera: CameraModel, mount: CameraMount, tasks: Sequence[_Task]
) -> Iterator[tuple[_Task, list[Sighting]]]:
    """Yield each task with its images; neighbours have many in common."""
    bearings: dict[int, Bearings] = {}
    for task in tasks:
        sightings = []
        for row, state, found in zip(task.rows.tolist(), task.states, task.keypoints):
            if row not in bearings:
                bearings[row] = bearings_of(found.pixels, camera, mount)
            sightings.append(Sighting(state, bearings[row], found.descriptors))
        yield task, sightings


def _min_views(partners: int) -> int:
    return 3 if partners >= SPARSE_PARTNERS else 2


def _coarse(camera: CameraModel, mount: CameraMount, tasks: list[_Task]) -> list[_Coarse]:
    return [_match_coarsely(*each) for each in _sightings(camera, mount, tasks)]


def _match_coarsely(task: _Task, sightings: list[Sighting]) -> _Coarse:
    image, *partners = sightings
    matches = match_views(image, partners)
    found = triangulate(image, partners, _min_views(len(partners)), COARSE_SIGMA_PX, matches)
    group = None
    if len(found.keypoints):
        best = best_spread(image, found, POINTS_TO_ADJUST)
        views = stack_views(sightings, found.matches[best])
        group = PointGroup(task.rows, views.bearings, views.seen, found.points[best])
    return _Coarse(task.rows, matches.astype(np.int16), group)


def _adjusted(
    states: Array, coarse: Sequence[_Coarse], pose_sigma: tuple[float, float, float]
) -> tuple[dict[int, Array], Rows]:
    """Return adjusted states of the images by row, and the rows of those that do not fit.

    `states` (n, 6) are those of all images as given.
    """
    rows = np.unique(np.concatenate([found.rows for found in coarse]))
    groups = [
        PointGroup(np.searchsorted(rows, group.images), group.bearings, group.seen, group.points)
        for group in (found.group for found in coarse)
        if group is not None
    ]
    found = adjust(states[rows], groups, ADJUSTED_SIGMA_PX, pose_sigma)
    return dict(zip(rows.tolist(), found.states)), rows[found.misfits]


def _fine(
    camera: CameraModel, mount: CameraMount, tasks: list[_Task]
) -> list[tuple[ImageLandmarks, float]]:
    return [_triangulate_finely(*each) for each in _sightings(camera, mount, tasks)]


def _triangulate_finely(task: _Task, sightings: list[Sighting]) -> tuple[ImageLandmarks, float]:
    """Return landmarks in the map's frame, and the keypoints' deviation (0 where unknown)."""
    image, *partners = sightings
    assert task.matches is not None
    matches = task.matches.astype(np.intp)
    found = triangulate(image, partners, _min_views(len(partners)), matches=matches)
    sigma_px = float(np.clip(found.sigma_px, *SIGMA_RANGE_PX)) if found.sigma_px else 0.0
    scaled = replace(found, covariances=found.covariances * (sigma_px / SIGMA_PX) ** 2)
    return as_landmarks(task.states[0], image, scaled), sigma_px


def relative_to(pose: Array, image: ImageLandmarks) -> ImageLandmarks:
    """Return landmarks given in the map's frame in that of the image's planar pose."""
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    turn = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return ImageLandmarks(
        image.descriptors,
        (image.offsets - np.array([pose[0], pose[1], 0.0])) @ turn.T,
        turn @ image.covariances @ turn.T,
        image.attitude,
    )


def _attitude_sigma(table: LandmarkTable) -> tuple[float, float, float]:
    """Return robust deviations of the images' heights, pitches and rolls about their medians.

    Neighbours along one drive differ by less than two visits of a place do.
    """
    attitudes = table.attitudes[table.counts() > 0].astype(np.float64)
    if not len(attitudes):
        attitudes = np.zeros((1, 3))
    spread = 1.4826 * np.median(np.abs(attitudes - np.median(attitudes, axis=0)), axis=0)
    height, pitch, roll = np.maximum(1.5 * spread, MIN_ATTITUDE_SIGMA).tolist()
    return height, pitch, roll


def as_landmarks(state: Array, image: Sighting, found: Triangulation) -> ImageLandmarks:
    """Return the best landmarks, in the map's frame."""
    chosen = best_spread(image, found, MAX_PER_IMAGE)
    return ImageLandmarks(
        image.descriptors[found.keypoints[chosen]],
        found.points[chosen],
        found.covariances[chosen],
        state[3:].copy(),
    )


def best_spread(image: Sighting, found: Triangulation, most: int) -> Rows:
    """Return at most `most` rows: those with most views, cell by cell in turn over the image."""
    count = len(found.keypoints)
    order = np.argsort(-found.views, kind="stable")
    if count <= most:
        return np.asarray(order)
    rays = image.bearings.axes[found.keypoints[order], 0]
    ranks = np.stack(
        (np.argsort(np.argsort(rays[:, 1])), np.argsort(np.argsort(rays[:, 2]))), axis=1
    )
    cell = (ranks * CELLS // count) @ np.array([CELLS, 1])
    # The place of each within its own cell, best first.
    by_cell = np.argsort(cell, kind="stable")
    first = np.searchsorted(cell[by_cell], cell[by_cell])
    turn = np.empty(count, dtype=np.intp)
    turn[by_cell] = np.arange(count) - first
    return np.asarray(order[np.argsort(turn, kind="stable")[:most]])
