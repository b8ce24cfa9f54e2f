"""Makes the landmarks of a map from the keypoints of all images of its drives."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array, Rows
from kbf_localization.datasets.drive import Drive, camera_of, mount_of
from kbf_localization.errors import KbfError, MapError
from kbf_localization.geometry import relative
from kbf_localization.landmarks.adjustment import POSE_SIGMA
from kbf_localization.landmarks.bearings import spatial
from kbf_localization.landmarks.build import (
    KeypointSource,
    KeypointStore,
    needed_rows,
    triangulate_all,
)
from kbf_localization.landmarks.calibration import MIN_EXAMPLES, MIN_INLIERS, HeldOutImage
from kbf_localization.landmarks.calibration import calibrate as calibrate_fixes
from kbf_localization.landmarks.landmark_map import LandmarkDescription, LandmarkMap
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.landmarks.triangulation import MAX_BASELINE_M
from kbf_localization.mapping.describing import detect_frames, image_size
from kbf_localization.mapping.frames import Frames, cover, gather_frames
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import MapObservation, TrainingMap
from kbf_localization.vision.camera import Camera, Mount
from kbf_localization.vision.camera.mount import OPTICAL_IN_BASE
from kbf_localization.vision.epipolar import MatchedPair
from kbf_localization.vision.keypoints import mutual_matches, squared_distances
from kbf_localization.vision.self_calibration import LEVEL_AHEAD, calibrate, choose_pairs

_log = logging.getLogger(__name__)

HELD_OUT_IMAGES, HELD_OUT_FRACTION = 80, 0.2
"""Images that calibrate the landmarks and take no part in making them: at most so many, and such a
part of the drives' images, since its neighbours lack it as a partner."""

MIN_SOLVED = 0.3
"""Fraction of held-out images that landmarks must measure to be kept: blank walls take a part."""

SIMILAR_ROWS = 40
"""Most similar map images among which the wrong places are."""

ELSEWHERE = 1.5
"""Separation, in the map's scales, from which on a place is another place."""

TILTING_RAD = float(np.radians(2.0))
"""Standard deviation of pitch or roll over the map's images from which on a camera tilts: a robot's
on a floor has a few tenths of a degree."""

NAMED_PLACES = 3
"""Without landmarks, in a warning."""

POSE_TOLERANCE_M = 1e-6
"""Metres, and radians, within which a pose of the map is that of a drive's image."""


def held_out_count(frames: int) -> int:
    """Return how many of the drives' `frames` are held out to calibrate the landmarks."""
    return min(HELD_OUT_IMAGES, int(HELD_OUT_FRACTION * frames))


def partner_rows(frames: Frames, rows: Rows) -> Rows:
    """Return the rows of all images whose keypoints the landmarks of the map images `rows` need."""
    return needed_rows(frames.poses, rows)[0]


@dataclass(frozen=True)
class MapCamera:
    """The camera of a map's drives on its mount, with warnings about what is uncertain."""

    camera: Camera
    mount: Mount
    warnings: tuple[str, ...] = ()


def find_camera(
    frames: Frames, keypoints: KeypointSource, image_size: tuple[int, int]
) -> MapCamera | str:
    """Return the camera of the drives, learned from them where none knows it.

    Returns why there is none, where the drives have several cameras or nothing can be learned. So
    is the mount of a known camera; where the drives do not show it, it looks ahead and is level. A
    camera whose own height, pitch and roll are known at each image does so, but for these.
    """
    cameras = {camera_of(drive) for drive in frames.drives}
    mounts = {mount_of(drive) for drive in frames.drives}
    if frames.attitudes is not None:
        places = [np.zeros(3) if mount is None else mount.translation for mount in mounts]
        mounts = {Mount(OPTICAL_IN_BASE, place) for place in places}
    if len(cameras) > 1 or len(mounts) > 1:
        return "the drives have different cameras, so the map has no landmarks"
    camera, mount = cameras.pop(), mounts.pop()
    if camera is not None and mount is not None:
        return MapCamera(camera, mount)
    unknown = "camera" if camera is None else "mount of the camera"
    try:
        pairs = list(_matched_pairs(frames, keypoints))
        found = calibrate(pairs, *image_size, camera=camera, mount=mount)
    except KbfError as error:
        if camera is not None:
            return MapCamera(camera, Mount.ahead(), (f"{LEVEL_AHEAD}: {error}",))
        return f"no camera is known and none can be learned, so the map has no landmarks: {error}"
    if camera is not None and not found.shows_turn:
        return MapCamera(camera, Mount.ahead(), (LEVEL_AHEAD, *found.warnings))
    learned = f"no {unknown} is known; learned from the drives: {found.described}"
    return MapCamera(found.camera, found.mount, (learned, *found.warnings))


def _matched_pairs(frames: Frames, keypoints: KeypointSource) -> Iterator[MatchedPair]:
    """Match the keypoints of pairs of images with known poses."""
    known = np.array([row for row in range(len(frames.poses)) if row in keypoints], dtype=np.intp)
    if len(known) == 0:
        return
    states = spatial(frames.poses, frames.attitudes)
    for first, second in known[choose_pairs(frames.poses[known])]:
        a, b = keypoints[int(first)], keypoints[int(second)]
        rows, columns, _ = mutual_matches(squared_distances(a.descriptors, b.descriptors))
        yield MatchedPair(
            states[first],
            states[second],
            a.pixels[rows].astype(np.float64),
            b.pixels[columns].astype(np.float64),
        )


def make_landmarks(
    frames: Frames,
    rows: Rows,
    keypoints: KeypointSource,
    camera: MapCamera,
    workers: Workers | None = None,
    progress: Progress = no_progress,
    held_out: Rows | None = None,
) -> LandmarkMap:
    """Triangulate the landmarks of the map images `rows` from the keypoints of all frames.

    The frames `held_out` take no part, so that they can calibrate the landmarks.
    """
    _, partners = needed_rows(frames.poses, rows, held_out)
    # Estimated poses say by how much they err; others are as exact as a laser's.
    sigmas = [getattr(drive, "pose_sigma", POSE_SIGMA) for drive in frames.drives]
    built = triangulate_all(
        frames.poses,
        rows,
        partners,
        keypoints,
        camera.camera,
        camera.mount,
        workers or Serial(),
        progress,
        max(sigmas),
        frames.attitudes,
    )
    if len(built.misfits):
        drives = sorted({frames.drives[int(d)].name for d in frames.drive_of[built.misfits]})
        _log.warning(
            "%d images of %s do not fit their poses", len(built.misfits), ", ".join(drives)
        )
    description = LandmarkDescription(
        camera.camera, camera.mount, built.sigma_px, built.attitude_sigma
    )
    return description.with_table(built.table, frames.poses[rows])


def calibrate_landmarks(
    training_map: TrainingMap, observations: Sequence[MapObservation], poses: Array, drives: Rows
) -> TrainingMap:
    """Calibrate covariance and evidence on held-out images with `poses` (p, 3) of `drives` (p,).

    Wrong places are the map's most similar images beyond the calibrated map's own scale. Landmarks
    that do not measure the held-out images better than whole images do are left out, with a
    warning: the camera's model is wrong, or the poses are.
    """
    landmarks = training_map.landmarks
    if landmarks is None:
        return training_map
    similarity = training_map.calibration.similarity
    images = []
    for observation, pose, drive in zip(observations, poses, drives):
        keypoints, bearings = observation.description.keypoints, observation.bearings
        if keypoints is None or bearings is None:
            continue
        similar = observation.best_rows(SIMILAR_ROWS)
        away = similarity.separation(relative(training_map.poses[similar], pose))
        wrong = similar[away > ELSEWHERE]
        images.append(HeldOutImage(bearings, keypoints.descriptors, pose, int(drive), wrong))
    scales = similarity.distance_m, similarity.angle_rad
    found = calibrate_fixes(landmarks.solver, training_map.source_of, images, scales)
    model = training_map.calibration.relative_pose
    best = model.variances(model.prominence_range[1], model.separation_range[0])
    read_out_m = float(np.sqrt(best[:2].max()))
    if found.covered < MIN_EXAMPLES:
        _log.warning(
            "%d held-out images are too few to tell what the landmarks are worth: the default "
            "covariance holds",
            found.covered,
        )
    elif found.solved < MIN_SOLVED or found.median_error_m > read_out_m:
        warning = (
            f"the landmarks are left out: of held-out images they measure "
            f"{100 * found.solved:.0f} %, with a median error of {found.median_error_m:.2f} m; "
            "the camera's calibration or the drives' poses may be wrong"
        )
        warnings = (*training_map.warnings, warning)
        return replace(training_map, landmarks=None, warnings=warnings)
    description = replace(
        landmarks.description, covariance=found.covariance, evidence=found.evidence
    )
    return replace(training_map, landmarks=replace(landmarks, description=description))


def can_measure(landmarks: LandmarkMap) -> bool:
    """Tell whether any map image has enough landmarks to measure a pose."""
    return bool((landmarks.table.counts() >= MIN_INLIERS).any())


def landmark_warnings(landmarks: LandmarkMap) -> Iterator[str]:
    """Name what the landmarks lack, and where."""
    rise_m, *tilts = landmarks.description.attitude_sigma
    if max(tilts) > TILTING_RAD:
        pitch, roll = np.degrees(tilts)
        yield (
            f"the camera tilts: its pitch varies by {pitch:.1f}°, its roll by {roll:.1f}° and its "
            f"height by {100.0 * rise_m:.0f} cm over the map's images (standard deviations); "
            "landmarks allow for it, the comparison of whole images errs more"
        )
    counts = landmarks.table.counts()
    poor = np.flatnonzero(counts < MIN_INLIERS)
    if not len(poor):
        return
    if len(poor) == len(counts):
        yield (
            f"no map image has {MIN_INLIERS} landmarks, so the map has none: blank walls, or no "
            f"other images within {MAX_BASELINE_M:.0f} m that see the same"
        )
        return
    rows = poor[cover(landmarks.poses[poor], NAMED_PLACES, seed=0)]
    places = ", ".join(f"({x:.1f}, {y:.1f})" for x, y, _ in landmarks.poses[rows])
    yield (
        f"{len(poor)} of {len(counts)} map images have fewer than {MIN_INLIERS} landmarks and "
        f"measure no pose by them (blank walls, no neighbours), such as at {places}; the others "
        f"have {np.median(counts[counts >= MIN_INLIERS]):.0f}"
    )


def add_landmarks(
    training_map: TrainingMap,
    drives: Sequence[Drive],
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> TrainingMap:
    """Return the map with landmarks of its images, made from the drives it was built from.

    A map image is found in the drive of its source by its pose; MapError where none is found.
    """
    workers = workers or Serial()
    frames = gather_frames(drives)
    rows = _rows_of_map(training_map, frames)
    found = np.flatnonzero(rows >= 0)
    if len(found) == 0:
        named = ", ".join(source.name for source in training_map.sources)
        raise MapError(f"none of the map's images is in these drives: it was built from {named}")
    with KeypointStore() as store:
        detect_frames(frames, partner_rows(frames, rows[found]), store, workers, progress)
        camera = find_camera(frames, store, image_size(frames) or (0, 0))
        if isinstance(camera, str):
            raise MapError(camera)
        made = make_landmarks(frames, rows[found], store, camera, workers, progress)
    images = [ImageLandmarks.none()] * len(training_map)
    for place, row in enumerate(found):
        images[int(row)] = made.table.image(place)
    landmarks = replace(made, table=LandmarkTable.of_images(images), poses=training_map.poses)
    warnings = (*training_map.warnings, *camera.warnings, *landmark_warnings(landmarks))
    return replace(training_map, landmarks=landmarks, warnings=warnings)


def _rows_of_map(training_map: TrainingMap, frames: Frames) -> Rows:
    """Return the row of the frames that each map image came from, −1 where there is none."""
    rows = np.full(len(training_map), -1, dtype=np.intp)
    names = [drive.name for drive in frames.drives]
    for number, source in enumerate(training_map.sources):
        if source.name not in names:
            continue
        own = np.flatnonzero(frames.drive_of == names.index(source.name))
        images = np.flatnonzero(training_map.source_of == number)
        distances, nearest = cKDTree(frames.poses[own]).query(training_map.poses[images])
        same = distances < POSE_TOLERANCE_M
        rows[images[same]] = own[np.asarray(nearest)[same]]
    return rows
