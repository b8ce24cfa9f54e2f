"""Where a map's poses come from: given ones, or those estimated from odometry and images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.parts import PosedDrive
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph import PoseEstimates, estimate_poses
from kbf_localization.pose_graph.estimate import Anchor
from kbf_localization.progress import Progress, no_progress

POSES_FROM = ("auto", "given", "odometry")
RELATIVE_SIGMA = (0.03, 0.03, 0.01)
"""m, m, rad by which an estimated pose errs relative to its neighbours within a metre."""
ANCHOR_STEP_M = 2.0
"""Along a drive with known poses, between two that hold the others."""


@dataclass(frozen=True)
class PosedDrives:
    """Drives whose poses are known, and how they were estimated; None where they were given."""

    drives: list[Drive]
    estimates: PoseEstimates | None


def with_poses(
    drives: Sequence[Drive],
    poses_from: str = "auto",
    *,
    anchors: Sequence[Anchor] = (),
    odometry_scale: float = 1.0,
    unjoined: str = "leave_out",
    seed: int = 0,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> PosedDrives:
    """Return drives with poses.

    "given" takes the drives' own poses, "odometry" estimates all from odometry and images. "auto"
    takes given poses where all drives have them; where some have none, all are estimated, and the
    given ones hold the frame.
    """
    if poses_from not in POSES_FROM:
        raise ParameterError(f"poses_from must be {', '.join(POSES_FROM)}, not '{poses_from}'")
    lacking = [drive for drive in drives if drive.poses is None]
    if poses_from == "given" or (poses_from == "auto" and not lacking and not anchors):
        return PosedDrives(list(drives), None)
    if poses_from == "auto" and len(lacking) < len(drives):
        anchors = (*anchors, *known_anchors(drives))
    found = estimate_poses(
        drives,
        anchors=anchors,
        odometry_scale=odometry_scale,
        unjoined=unjoined,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    return PosedDrives(posed(drives, found), found)


def known_anchors(drives: Sequence[Drive]) -> list[Anchor]:
    """Return known poses every 2 m along the drives that have some."""
    found = []
    for number, drive in enumerate(drives):
        if drive.poses is None:
            continue
        last = None
        for image in np.flatnonzero(np.isfinite(drive.poses).all(axis=1)):
            x, y, heading = (float(value) for value in drive.poses[image])
            if last is None or np.hypot(x - last[0], y - last[1]) >= ANCHOR_STEP_M:
                last = x, y
                found.append(Anchor(number, int(drive.stamps_ns[image]), (x, y, heading)))
    return found


def posed(drives: Sequence[Drive], estimates: PoseEstimates) -> list[Drive]:
    """Return the drives that have poses now; MapError where none has."""
    made: list[Drive] = []
    for drive, trajectory in zip(drives, estimates.trajectories):
        if trajectory.known:
            camera, mount = estimates.camera, estimates.mount
            made.append(
                PosedDrive(
                    drive, trajectory.poses, trajectory.covariances, RELATIVE_SIGMA, camera, mount
                )
            )
    if not made:
        raise MapError(f"{drives[0].path}: no pose could be estimated")
    return made


def estimate_warnings(estimates: PoseEstimates) -> list[str]:
    """Return what a map says of poses that were estimated, a line each."""
    names = ", ".join(trajectory.name for trajectory in estimates.trajectories)
    source = {
        "odometry_edges": "wheel odometry and recognized places",
        "visual_edges": "wheel odometry, images and recognized places",
        "adjustment": "wheel odometry and a joint adjustment of the images",
    }[estimates.used]
    return [
        f"the poses of {names} were estimated from {source}, {len(estimates.closures)} closures",
        *estimates.warnings,
    ]
