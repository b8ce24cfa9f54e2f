"""Errors on a map in its own frame: the truth is brought into it, or nothing needs to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Flags
from kbf_localization.evaluation.run import Run
from kbf_localization.geometry import compose, fit_rigid, relative, wrap_angle

if TYPE_CHECKING:
    from kbf_localization.training_map.training_map import TrainingMap

METRES_PER_RADIAN = 1.0
"""Distance that counts as much as a turn by a radian when the nearest map image is chosen."""


def truth_frame(runs: Sequence[Run]) -> Array | None:
    """Return the pose (3,) of the truth's frame in the map's, by least squares on tracked images.

    Without two of them at distinct places all images with a known truth are taken, and None is
    returned where these are too few as well.
    """
    for wanted in (_tracked, _known):
        estimates = np.concatenate([run.estimates[wanted(run)] for run in runs])
        truths = [run.truth[wanted(run)] for run in runs if run.truth is not None]
        if not truths or not len(estimates):
            continue
        truth = np.concatenate(truths)
        try:
            return fit_rigid(truth[:, :2], estimates[:, :2])
        except ValueError:
            continue
    return None


def _known(run: Run) -> Flags:
    if run.truth is None:
        return np.zeros(len(run), dtype=bool)
    return np.asarray(np.isfinite(run.truth).all(axis=1))


def _tracked(run: Run) -> Flags:
    tracking: Flags = np.array([state == "tracking" for state in run.states], dtype=bool)
    return _known(run) & tracking


def with_truth_in(run: Run, frame: Array) -> Run:
    """Return the run with its truth moved by `frame` (3,)."""
    if run.truth is None:
        return run
    truth = compose(frame, run.truth)
    truth[:, 2] = wrap_angle(truth[:, 2])
    return replace(run, truth=truth)


def errors_relative_to_map(run: Run, training_map: TrainingMap) -> Array:
    """Return the errors (t,) in metres of poses relative to the nearest map image; NaN if unknown.

    The map has estimated poses and the known ones of its images: the true motion from that image
    to the robot is compared with the estimated one, in whichever frames they are.
    """
    references = training_map.reference_poses
    errors = np.full(len(run), np.nan)
    if references is None or run.truth is None:
        return errors
    rows = np.flatnonzero(np.isfinite(references).all(axis=1))
    poses = training_map.poses[rows]
    for frame in np.flatnonzero(_known(run)):
        estimate, truth = run.estimates[frame], run.truth[frame]
        away = poses - estimate
        turned = METRES_PER_RADIAN * wrap_angle(away[:, 2])
        nearest = int(np.argmin(away[:, 0] ** 2 + away[:, 1] ** 2 + turned**2))
        reference = references[rows[nearest]]
        error = relative(poses[nearest], estimate) - relative(reference, truth)
        errors[frame] = np.hypot(error[0], error[1])
    return errors
