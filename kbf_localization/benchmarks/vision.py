"""Dense SIFT and image description against OpenCV's SIFT on the same grid of patches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import cv2
import numpy as np

from kbf_localization.arrays import Floats, Image, Rows
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.mapping.frames import select_frames
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.simulated_drives import simulate
from kbf_localization.threads import one_thread_of_opencv
from kbf_localization.vision.dense_sift import DescriberSettings, dense_sift
from kbf_localization.vision.visual_words import (
    PyramidGallery,
    Vocabulary,
    learn_vocabulary,
    pyramid_histogram,
)

Describe = Callable[[Image], Floats]

SPEED_FRAMES = 4
ROUNDS = 15
DRIVE_FRAMES = 400
DRIVE_SIZE = (320, 240)
MAP_POSES = 200
DESCRIPTORS_PER_IMAGE = 300


def run(progress: Progress = no_progress) -> dict[str, Any]:
    """Measure speed at 640x480 with one thread on both sides, and both nearest-image errors.

    Times are processor time. OpenCV's is measured with keypoints as large as the grid's step, the
    customary choice for dense SIFT, and with keypoints so small that its patch is 16 pixels too.
    """
    with (
        one_thread_of_opencv(),
        tempfile.TemporaryDirectory(prefix="kbf-bench-vision-") as folder,
    ):
        speed = _measure_speed(Path(folder) / "large", progress)
        return speed | _measure_error(Path(folder) / "small", progress)


def opencv_descriptors(settings: DescriberSettings, size: float) -> Describe:
    """Return OpenCV's SIFT.compute on the settings' grid, upright, keypoints of `size` pixels."""
    rows, columns = settings.grid_shape
    middle = (settings.patch_size - 1) / 2.0
    keypoints = [
        cv2.KeyPoint(
            settings.grid_step * column + middle, settings.grid_step * row + middle, size, 0.0
        )
        for row in range(rows)
        for column in range(columns)
    ]
    sift = cv2.SIFT.create()

    def describe(image: Image) -> Floats:
        _, descriptors = sift.compute(image, keypoints)
        # OpenCV scales unit length to 512.
        return np.divide(descriptors, 512.0, dtype=np.float32)

    return describe


def _measure_speed(folder: Path, progress: Progress) -> dict[str, Any]:
    settings = DescriberSettings()
    (drive,) = simulate(folder, runs=1, seed=7, frames=SPEED_FRAMES)
    images = _images(ColdDrive(drive), range(SPEED_FRAMES))
    # OpenCV's cells are one and a half keypoint sizes wide: 2.7 pixels give the same patch.
    customary = opencv_descriptors(settings, settings.grid_step)
    same_patch = opencv_descriptors(settings, settings.patch_size / 6.0)
    words = learn_vocabulary(
        np.concatenate([dense_sift(image, settings) for image in images]), settings.words
    )

    def ours(image: Image) -> Floats:
        return dense_sift(image, settings)

    calls: dict[str, Callable[[Image], object]] = {
        "ours": ours,
        "customary": customary,
        "same patch": same_patch,
        "ours whole": lambda image: _histogram(words, ours(image), settings),
        "customary whole": lambda image: _histogram(words, customary(image), settings),
    }
    spent: dict[str, list[float]] = {name: [] for name in calls}
    # In turns and in processor time, so that whatever else the machine does meets both alike.
    for _ in tracked(range(ROUNDS), "timing descriptors", progress):
        for name, call in calls.items():
            times = [milliseconds(call, image, clock=process_time) for image in images]
            spent[name].append(float(np.mean(times)))
    grid = f"OpenCV SIFT.compute on the same {settings.patches} grid points"
    reference = f"{grid}, keypoint size {settings.grid_step}"
    return {
        "dense_sift_640x480": case(spent["ours"], spent["customary"], reference),
        "image_to_pyramid_640x480": case(
            spent["ours whole"], spent["customary whole"], f"{reference}, our words and pyramid"
        ),
        "dense_sift_same_patch_640x480": case(
            spent["ours"],
            spent["same patch"],
            f"{grid}, keypoint size {settings.patch_size / 6.0:.2f} (our 16-pixel patch)",
        ),
    }


def _measure_error(folder: Path, progress: Progress) -> dict[str, float]:
    """Return the nearest image's position error, the same pipeline with either descriptor."""
    first, second = (
        ColdDrive(path)
        for path in simulate(
            folder, runs=2, seed=7, frames=DRIVE_FRAMES, size=DRIVE_SIZE, progress=progress
        )
    )
    settings = replace(DescriberSettings(), image_width=DRIVE_SIZE[0], image_height=DRIVE_SIZE[1])
    rows = select_frames(first.poses, MAP_POSES, "coverage", seed=0)
    known = _images(first, rows.tolist())
    seen = _images(second, range(len(second)))
    metrics: dict[str, float] = {}
    methods: dict[str, Describe] = {
        "": lambda image: dense_sift(image, settings),
        "_opencv": opencv_descriptors(settings, settings.grid_step),
        "_opencv_same_patch": opencv_descriptors(settings, settings.patch_size / 6.0),
    }
    for suffix, describe in tracked(methods.items(), "localizing by the nearest image", progress):
        nearest = _nearest(describe, known, seen, settings)
        errors = np.hypot(*(first.poses[rows[nearest]] - second.poses)[:, :2].T)
        metrics[f"nai_rmse_m{suffix}"] = float(np.sqrt(np.mean(errors**2)))
        metrics[f"nai_median_m{suffix}"] = float(np.median(errors))
    metrics["nai_rmse_ratio"] = metrics["nai_rmse_m"] / metrics["nai_rmse_m_opencv"]
    return metrics


def _nearest(
    describe: Describe, known: list[Image], seen: list[Image], settings: DescriberSettings
) -> Rows:
    """Return for each image seen the most similar known image."""
    rng = np.random.default_rng(0)
    described = [describe(image) for image in known]
    sample = [
        part[rng.choice(len(part), DESCRIPTORS_PER_IMAGE, replace=False)] for part in described
    ]
    words = learn_vocabulary(np.concatenate(sample), settings.words)
    histograms = np.stack([_histogram(words, part, settings) for part in described])
    gallery = PyramidGallery(settings, histograms)
    queries = (_histogram(words, describe(image), settings) for image in seen)
    return np.array([gallery.compare(query)[0].argmax() for query in queries])


def _histogram(words: Vocabulary, descriptors: Floats, settings: DescriberSettings) -> Image:
    return pyramid_histogram(words.assign(descriptors), settings)


def _images(drive: ColdDrive, indices: Sequence[int]) -> list[Image]:
    return [image for _, image in drive.images(indices) if image is not None]
