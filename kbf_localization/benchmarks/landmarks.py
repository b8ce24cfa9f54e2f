"""Keypoints against OpenCV's SIFT, and a landmark fix against OpenCV's solvePnPRansac."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Array, Image
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.landmarks.bearings import Bearings, bearings_of, in_base, spatial
from kbf_localization.landmarks.pose_solver import ImageMatcher, LandmarkSolver, MapImages
from kbf_localization.landmarks.table import ImageLandmarks, LandmarkTable
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.threads import one_thread_of_opencv
from kbf_localization.vision.camera.mount import Mount
from kbf_localization.vision.camera.pinhole import PinholeCamera
from kbf_localization.vision.keypoints import (
    Keypoints,
    detect_keypoints,
    mutual_matches,
    root_sift,
    squared_distances,
)

Detect = Callable[[Image], Keypoints]

FRAMES = 4
SIZE = (320, 240)
KEYPOINTS = 400
SHIFT_PX = (5.3, 3.6)
"""Of the second image that keypoints are matched with."""
RIGHT_PX = 1.5
"""A match nearer than that to the shift is right."""
ROUNDS = 15
IMAGES = 20
POINTS = 400
LANDMARKS = 200
"""Points of the room, and how many of them a map image has."""
NOISE_PX = 0.5
WRONG_FRACTION = 0.4
"""Keypoints whose place in the image is random."""
POINT_SIGMA_M = 0.01
CAMERA = PinholeCamera.from_focal(*SIZE, 230.0)
MOUNT = Mount.ahead(1.1)
MAP_POSES = np.array([[0.0, 0.0, 0.0], [0.3, 0.1, 0.1], [-0.2, -0.1, -0.1], [0.1, 0.2, 0.05]])
PRIOR_SIGMA = np.array([0.1, 0.1, 0.05])
"""Metres and radians from the prior's pose to the true pose."""


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Measure both cases in processor time with one thread of OpenCV, and their accuracy."""
    with (
        one_thread_of_opencv(),
        tempfile.TemporaryDirectory(prefix="kbf-bench-landmarks-") as folder,
    ):
        return _measure_keypoints(Path(folder), progress) | _measure_fixes(progress)


def opencv_keypoints() -> Detect:
    """Return OpenCV's SIFT with as many keypoints, its descriptors in the same bytes."""
    create: Any = getattr(cv2, "SIFT_create")  # noqa: B009
    sift = create(KEYPOINTS)

    def detect(image: Image) -> Keypoints:
        found, raw = sift.detectAndCompute(image, None)
        if not found:
            return Keypoints.none()
        return Keypoints(np.asarray(cv2.KeyPoint.convert(found), np.float32), root_sift(raw))

    return detect


def _in_turns(
    methods: Mapping[str, Callable[[Any], object]],
    images: Sequence[Any],
    doing: str,
    progress: Progress,
) -> dict[str, list[float]]:
    """Return each method's mean milliseconds an image, round by round.

    They take turns, so that whatever else the machine does meets all alike.
    """
    spent: dict[str, list[float]] = {name: [] for name in methods}
    for _ in tracked(range(ROUNDS), doing, progress):
        for name, method in methods.items():
            times = [milliseconds(method, image, clock=process_time) for image in images]
            spent[name].append(float(np.mean(times)))
    return spent


def _measure_keypoints(folder: Path, progress: Progress) -> dict[str, Any]:
    (drive,) = simulate(folder, runs=1, seed=7, frames=FRAMES, size=SIZE)
    images = [image for _, image in ColdDrive(drive).images(range(FRAMES)) if image is not None]
    detectors = {"": detect_keypoints, "_opencv": opencv_keypoints()}
    spent = _in_turns(detectors, images, "timing keypoints", progress)
    metrics: dict[str, Any] = {
        "keypoints_320x240": case(
            spent[""], spent["_opencv"], f"OpenCV SIFT.detectAndCompute, {KEYPOINTS} keypoints"
        )
    }
    for name, detect in detectors.items():
        matched, errors = _shift_errors(detect, images)
        right = errors < RIGHT_PX
        metrics[f"keypoints_right_matches{name}"] = float(right.sum()) / len(images)
        metrics[f"keypoints_right_fraction{name}"] = float(right.mean()) if matched else 0.0
        metrics[f"keypoints_median_error_px{name}"] = float(np.median(errors[right]))
    return metrics


def _shift_errors(detect: Detect, images: Sequence[Image]) -> tuple[int, Array]:
    """Return how far matches with the same image, shifted, are from the shift, in pixels."""
    shift = np.array([[1.0, 0.0, SHIFT_PX[0]], [0.0, 1.0, SHIFT_PX[1]]])
    errors = [np.empty(0)]
    for image in images:
        moved = np.asarray(
            cv2.warpAffine(
                image, shift, SIZE, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
            ),
            dtype=np.uint8,
        )
        first, second = detect(image), detect(moved)
        rows, columns, _ = mutual_matches(squared_distances(first.descriptors, second.descriptors))
        off = second.pixels[columns] - first.pixels[rows] - np.array(SHIFT_PX)
        errors.append(np.hypot(off[:, 0], off[:, 1]))
    found = np.concatenate(errors)
    return len(found), found


@dataclass(frozen=True)
class _Seen:
    """An image of the room: its true pose, keypoints with bearings, and where it is expected."""

    pose: Array
    keypoints: Keypoints
    bearings: Bearings
    prior: Array


def _measure_fixes(progress: Progress) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    table, seen = _room(rng)
    solver = LandmarkSolver(table, MAP_POSES, NOISE_PX)
    kept = MapImages(table, MAP_POSES)
    rows = np.arange(len(MAP_POSES))
    covariance = np.diag(PRIOR_SIGMA**2)

    def ours(image: _Seen) -> Array | None:
        fix = solver.measure(
            image.bearings, image.keypoints.descriptors, rows, image.prior, covariance
        )
        return None if fix is None else fix.pose

    def reference(image: _Seen) -> Array | None:
        return _ransac_pose(image, kept)

    methods = {"": ours, "_opencv": reference}
    spent = _in_turns(methods, seen, "timing landmark fixes", progress)
    metrics: dict[str, Any] = {
        "fix": case(
            spent[""],
            spent["_opencv"],
            f"cv2.solvePnPRansac on the same matches, {WRONG_FRACTION:.0%} of the keypoints wrong",
        )
    }
    for name, method in methods.items():
        found = [(method(image), image.pose) for image in seen]
        errors = [np.hypot(*(pose - true)[:2]) for pose, true in found if pose is not None]
        metrics[f"fix_found_fraction{name}"] = len(errors) / len(seen)
        metrics[f"fix_median_error_m{name}"] = float(np.median(errors)) if errors else np.inf
    return metrics


def _room(rng: np.random.Generator) -> tuple[LandmarkTable, list[_Seen]]:
    """Return a table of random points ahead of the map poses, and images near those poses."""
    x = rng.uniform(2.0, 8.0, POINTS)
    points = np.column_stack(
        (x, x * rng.uniform(-0.6, 0.6, POINTS), 1.1 + x * rng.uniform(-0.45, 0.45, POINTS))
    )
    descriptors = root_sift(rng.gamma(0.5, 1.0, (POINTS, 128)).astype(np.float32))
    images = []
    for pose in MAP_POSES:
        rows = np.flatnonzero(np.isfinite(_pixels(pose, points)[:, 0]))[:LANDMARKS]
        known = points[rows] + rng.normal(0.0, POINT_SIGMA_M, (len(rows), 3))
        spread = np.broadcast_to(np.eye(3) * POINT_SIGMA_M**2, (len(rows), 3, 3))
        offsets = in_base(spatial(pose), known)
        images.append(ImageLandmarks(descriptors[rows], offsets, spread, np.zeros(3)))
    seen = []
    for _ in range(IMAGES):
        pose = rng.normal(0.0, [0.2, 0.2, 0.05])
        pixels = _pixels(pose, points)
        rows = np.flatnonzero(np.isfinite(pixels[:, 0]))
        pixels = pixels[rows] + rng.normal(0.0, NOISE_PX, (len(rows), 2))
        wrong = rng.random(len(rows)) < WRONG_FRACTION
        pixels[wrong] = rng.uniform(0.0, SIZE, (int(wrong.sum()), 2))
        keypoints = Keypoints(pixels.astype(np.float32), descriptors[rows])
        bearings = bearings_of(keypoints.pixels, CAMERA, MOUNT)
        seen.append(_Seen(pose, keypoints, bearings, pose + rng.normal(0.0, PRIOR_SIGMA)))
    return LandmarkTable.of_images(images), seen


def _pixels(pose: Array, points: Array) -> Array:
    """Return where points (m, 3) of the map appear from a pose (3,), NaN outside the image."""
    return CAMERA.project(MOUNT.to_optical(in_base(spatial(pose), points)))


def _ransac_pose(image: _Seen, kept: MapImages) -> Array | None:
    """Return the pose (3,) by OpenCV from the same matches; None where it finds none."""
    rows = np.arange(len(MAP_POSES))
    matcher = ImageMatcher(image.bearings, image.keypoints.descriptors)
    matches = matcher.match(rows, [kept.image(row) for row in range(len(rows))])
    intrinsic = np.array([[CAMERA.fx, 0.0, CAMERA.cx], [0.0, CAMERA.fy, CAMERA.cy], [0, 0, 1.0]])
    found, turn, shift, _ = cv2.solvePnPRansac(
        np.ascontiguousarray(matches.pairs.points.T),
        image.keypoints.pixels[matches.keypoints].astype(np.float64),
        intrinsic,
        None,
        reprojectionError=4.0 * NOISE_PX,
    )
    if not found:
        return None
    optical = cv2.Rodrigues(turn)[0]
    rotation = (MOUNT.rotation @ optical).T
    base = -optical.T @ shift[:, 0] - rotation @ MOUNT.translation
    return np.array([base[0], base[1], np.arctan2(rotation[1, 0], rotation[0, 0])])
