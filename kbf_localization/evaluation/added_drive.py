"""Poses of a drive that has none, by localization on a map and the pose graph."""

from __future__ import annotations

import numpy as np

from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.parts import PosedDrive
from kbf_localization.errors import MapError
from kbf_localization.evaluation.evaluate import evaluate_drives
from kbf_localization.geometry import relative
from kbf_localization.localization.result import State
from kbf_localization.mapping.poses import RELATIVE_SIGMA
from kbf_localization.pose_graph import Anchor, estimate_poses
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap

ANCHOR_STEP_M = 0.5
"""Path between two localized images that hold the drive: errors nearer together are the same."""
MAX_SIGMA_M = 0.5
"""A localized image that is less certain holds nothing."""
MIN_SIGMA = np.array([0.05, 0.05, 0.02])
"""m, m, rad: what a map's own poses err by."""
MIN_ANCHORS = 3


def localized_drive(
    training_map: TrainingMap, drive: Drive, seed: int = 0, progress: Progress = no_progress
) -> PosedDrive:
    """Return the drive with poses in the map's frame; MapError where it cannot be localized.

    The smoother localizes it on the map; its sure poses hold a pose graph of its odometry and
    images. They are doubtful: one that the rest of the drive contradicts is given up.
    """
    result = evaluate_drives(
        [drive], training_map, ["kbf"], seed=seed, smooth=True, progress=progress
    )[0]
    run = result.runs["kbf_smoothed"]
    anchors: list[Anchor] = []
    last = None
    for stamp, pose, covariance, state in zip(
        run.stamps_ns, run.estimates, run.covariances, run.states
    ):
        sigma = np.sqrt(np.diag(covariance))
        if state != State.TRACKING.value or sigma[:2].max() > MAX_SIGMA_M:
            continue
        if last is not None and np.hypot(*relative(last, pose)[:2]) < ANCHOR_STEP_M:
            continue
        last = pose
        sigma = np.maximum(sigma, MIN_SIGMA)
        anchors.append(
            Anchor(
                0,
                int(stamp),
                (float(pose[0]), float(pose[1]), float(pose[2])),
                (float(sigma[0]), float(sigma[1]), float(sigma[2])),
                doubtful=True,
            )
        )
    if len(anchors) < MIN_ANCHORS:
        raise MapError(
            f"{drive.path}: cannot be localized on the map, so it cannot be added without poses; "
            "does it meet the map's drives, in the same direction?"
        )
    found = estimate_poses([drive], anchors=anchors, seed=seed, progress=progress)
    trajectory = found.trajectories[0]
    note = (
        f"{drive.name}: its poses are those of localization on the map at {len(anchors)} places, "
        "with wheel odometry and images between them"
    )
    return PosedDrive(
        drive,
        trajectory.poses,
        trajectory.covariances,
        RELATIVE_SIGMA,
        found.camera,
        found.mount,
        (note, *found.warnings),
    )
