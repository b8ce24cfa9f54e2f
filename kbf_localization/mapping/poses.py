"""Where a map's poses come from: given, or estimated from odometry and images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.parts import PosedDrive
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.mapping.refine import Mended, given_anchors, mended_stretches
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph.anchors import Anchor
from kbf_localization.pose_graph.estimate import estimate_poses
from kbf_localization.pose_graph.result import METHOD_NAMES, PoseEstimates
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import TrainingMap

POSES_FROM = ("auto", "given", "odometry")
RELATIVE_SIGMA = (0.03, 0.03, 0.01)
"""m, m, rad by which an estimated pose errs relative to its neighbours within a metre."""
ANCHOR_STEP_M = 2.0
"""Along a drive with known poses, between two that hold the others."""
MIN_KNOWN_FRACTION = 0.5
"""A drive with known poses at fewer of its images counts as one without: they hold its frame."""


@dataclass(frozen=True)
class PosedDrives:
    """Drives whose poses are known, and how they were estimated; None where they were given.

    `mended` are the stretches in which given poses were wrong or missing.
    """

    drives: list[Drive]
    estimates: PoseEstimates | None
    mended: tuple[Mended, ...] = ()

    def annotated(self, training_map: TrainingMap) -> TrainingMap:
        """Return the map of these drives, which says how its poses were estimated."""
        if self.estimates is None:
            return training_map
        lines = (*_described(self.estimates), *(stretch.described for stretch in self.mended))
        return replace(
            training_map,
            warnings=(*lines, *training_map.warnings),
            own_frame=not self.estimates.anchors,
        )


def with_poses(
    drives: Sequence[Drive],
    poses_from: str = "auto",
    *,
    anchors: Sequence[Anchor] = (),
    odometry_scale: float = 1.0,
    unjoined: str = "leave_out",
    refine: bool = False,
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> PosedDrives:
    """Return drives with poses.

    "given" takes the drives' own poses, "odometry" estimates all from odometry and images. "auto"
    takes given poses where all drives have them, at half of their images or more; else all are
    estimated, and the given poses hold the frame. With `refine` all are estimated as well: given
    poses are noisy, and those that odometry and closures contradict are mended.
    """
    if poses_from not in POSES_FROM:
        raise ParameterError(f"poses_from must be {', '.join(POSES_FROM)}, not '{poses_from}'")
    if refine and (poses_from == "odometry" or all(drive.poses is None for drive in drives)):
        raise ParameterError("there are no given poses to refine")
    lacking = any(_known_fraction(drive) < MIN_KNOWN_FRACTION for drive in drives)
    estimated = poses_from == "odometry" or refine
    if not estimated and (poses_from == "given" or not (lacking or anchors)):
        return PosedDrives(list(drives), None)
    if refine:
        anchors = (*anchors, *given_anchors(drives))
    elif poses_from == "auto":
        anchors = (*anchors, *given_anchors(drives, ANCHOR_STEP_M))
    found = estimate_poses(
        drives,
        anchors=anchors,
        odometry_scale=odometry_scale,
        unjoined=unjoined,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    mended = mended_stretches(drives, found) if refine else []
    return PosedDrives(posed(drives, found), found, tuple(mended))


def _known_fraction(drive: Drive) -> float:
    if drive.poses is None or not len(drive.poses):
        return 0.0
    return float(np.isfinite(drive.poses).all(axis=1).mean())


def posed(drives: Sequence[Drive], estimates: PoseEstimates) -> list[Drive]:
    """Return the drives that have poses now; MapError where none has."""
    made: list[Drive] = []
    for drive, trajectory in zip(drives, estimates.trajectories):
        if trajectory.known:
            camera, mount = estimates.camera, estimates.mount
            made.append(
                PosedDrive(
                    drive,
                    trajectory.poses,
                    trajectory.covariances,
                    RELATIVE_SIGMA,
                    camera,
                    mount,
                    clock_offset_s=trajectory.clock_offset_s,
                )
            )
    if not made:
        raise MapError(f"{drives[0].path}: no pose could be estimated")
    return made


def _described(estimates: PoseEstimates) -> list[str]:
    """Return what a map says of poses that were estimated, a line each."""
    names = ", ".join(found.name for found in estimates.trajectories if found.known)
    source, closures = METHOD_NAMES[estimates.used], len(estimates.closures)
    return [
        f"the poses of {names} were estimated from {source}, {closures} closures",
        *estimates.warnings,
    ]
