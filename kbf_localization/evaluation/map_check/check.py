"""A whole check of a map: its drives held out, the stretches that it knows badly, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.ndimage import median_filter

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.map_check.held_out import (
    FirstFix,
    LookAlike,
    covers,
    distinct,
    first_fixes,
    localize_fold,
    look_alikes,
    make_folds,
)
from kbf_localization.evaluation.map_check.result import CheckedPath, MapCheck
from kbf_localization.evaluation.map_check.stretches import (
    Stretch,
    badly_known,
    make_stretch,
    runs_where,
    without_repeats,
)
from kbf_localization.evaluation.metrics import mahalanobis_errors, position_errors
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap

LOOK_ALIKE_SAMPLES, MAX_LOOK_ALIKES, MIN_CONFUSING_IMAGES = 150, 8, 10
STARTS = 20
MEDIAN_FRAMES = 7
"""Frames over which the expected error along the path is a median."""


def check_map(
    training_map: TrainingMap,
    drives: Drive | Sequence[Drive | DescribedDrive] = (),
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> MapCheck:
    """Localize each drive of the map on what the other drives gave to it, with the real localizer.

    `drives` are the map's own drives, whose images are then all used, or others with known poses.
    Without them the map's own images do. Of more than 2000 images, windows spread over them do.
    """
    drives = list(drives) if isinstance(drives, Sequence) else [drives]
    count = len(drives or training_map.sources)
    rng = np.random.default_rng(seed)
    confused: list[LookAlike] = []
    fixes: list[FirstFix] = []
    overconfident: list[Array] = []
    checked_paths: list[CheckedPath] = []
    flatters = False
    for fold in make_folds(training_map, drives, seed=seed, progress=progress):
        flatters |= fold.thinned
        for run in localize_fold(fold, progress):
            path = run.truth
            assert path is not None
            covered = covers(fold.training_map, path)
            errors, sigmas = position_errors(run), mahalanobis_errors(run)
            checked_paths.append(
                CheckedPath(path, errors, _running_median(errors), sigmas, covered)
            )
            tracking = np.array(run.states) == "tracking"
            mistaken = (_running_median(sigmas) > 3.0) & tracking & covered
            overconfident += [path[rows] for rows in runs_where(mistaken, path, training_map)]
        confused += look_alikes(fold, -(-LOOK_ALIKE_SAMPLES // count), progress)
        fixes += first_fixes(fold, -(-STARTS // count), rng, progress)
    if not checked_paths:
        raise KbfError("no image got a pose: check that odometry and images overlap in time")
    stretches: list[Stretch] = []
    for source, path in _paths(training_map, drives):
        stretches += badly_known(training_map, path, source, once=not flatters)
    for checked in checked_paths:
        stretches += _confusing(training_map, checked.path, checked.expected, confused)
    return MapCheck(
        training_map=training_map,
        checked=CheckedPath(*map(np.concatenate, zip(*checked_paths, strict=True))),
        stretches=tuple(
            sorted(without_repeats(training_map, stretches), key=lambda stretch: -stretch.gain)
        ),
        overconfident=tuple(overconfident),
        look_alikes=tuple(distinct(confused, training_map, MAX_LOOK_ALIKES)),
        first_fixes=tuple(fixes),
        flatters=flatters,
    )


def _paths(
    training_map: TrainingMap, drives: Sequence[Drive | DescribedDrive]
) -> Iterator[tuple[int | None, Array]]:
    """Yield the paths of the map's drives with their numbers, and of drives unknown to the map."""
    names = [source.name for source in training_map.sources]
    paths = {number: training_map.trajectory(number) for number in range(len(names))}
    for drive in drives:
        poses = drive.truth if isinstance(drive, DescribedDrive) else drive.poses
        assert poses is not None
        path = poses[np.isfinite(poses).all(axis=1)]
        if drive.name not in names:
            yield None, path
        elif not training_map.trajectories:
            paths[names.index(drive.name)] = path
    yield from paths.items()


def _confusing(
    training_map: TrainingMap, path: Array, expected: Array, confused: Sequence[LookAlike]
) -> list[Stretch]:
    """Return stretches of the path that take many images to distinguish from another place."""
    hard = [pair.a for pair in confused if pair.order >= MIN_CONFUSING_IMAGES]
    if not hard:
        return []
    near = np.min([np.hypot(*(path[:, :2] - pose[:2]).T) for pose in hard], axis=0)
    reach = 0.5 * training_map.calibration.similarity.distance_m
    return [
        make_stretch(training_map, path[run], "look_alike", None, float(np.max(expected[run])))
        for run in runs_where(near < reach, path, training_map)
    ]


def _running_median(values: Array) -> Array:
    """Return the running median (t,)."""
    return np.asarray(median_filter(values, MEDIAN_FRAMES, mode="nearest"))
