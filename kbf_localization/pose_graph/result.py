"""What the estimation of poses gives: trajectories, closures, the wheels' errors, its doubts.

Closures that are left out decide which method is used. Images help where they are right, and hurt
where they are not: a tilting camera bends visual odometry. Which it is shows in closures that took
no part: their motion is measured, and each method predicts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.pose_graph.closures import Closure, Rejected, as_edges, components
from kbf_localization.pose_graph.keyframes import DriveOdometry, Keyframes
from kbf_localization.pose_graph.look_alikes import Join
from kbf_localization.pose_graph.wheels import WheelErrors
from kbf_localization.vision.camera import Camera, Mount

ODOMETRY_EDGES, VISUAL_EDGES, ADJUSTMENT = "odometry_edges", "visual_edges", "adjustment"
METHOD_NAMES = {
    ODOMETRY_EDGES: "wheel odometry and recognized places",
    VISUAL_EDGES: "wheel odometry, images and recognized places",
    ADJUSTMENT: "wheel odometry and a joint adjustment of the images",
}
"""How texts call what the poses were estimated from."""


@dataclass(frozen=True)
class EstimatedTrajectory:
    """A drive's images: `poses` (t, 3) and `covariances` (t, 3, 3), NaN where nothing is known.

    `odometry` (t, 3) are the wheels' own poses at the images, which were taken `clock_offset_s`
    later than their stamps say.
    """

    name: str
    poses: Array
    covariances: Array
    odometry: Array
    clock_offset_s: float = 0.0

    @property
    def known(self) -> int:
        """How many images have a pose."""
        return int(np.isfinite(self.poses).all(axis=1).sum())


@dataclass(frozen=True)
class HeldOutScore:
    """How well closures that were left out are predicted, m: a mean of errors up to 0.5 m."""

    closures: int
    scores_m: Mapping[str, float]


@dataclass(frozen=True)
class PoseEstimates:
    """Poses of drives from wheel odometry and images.

    `used` is "odometry_edges", "visual_edges" or "adjustment". `left_out` names the drives, or
    pieces of drives, that nothing joins with the others; `drives_joined` is the number of drives
    in the map's frame. `held_out` is what decided between the three; None where there
    were too few closures. `anchors` known poses hold the frame; without any it is the map's own.
    The wheels' distances were multiplied by `odometry_scale`; it is known where anchors are far
    enough apart to tell it. `joins` say what holds drives together.
    """

    trajectories: tuple[EstimatedTrajectory, ...]
    keyframes: Keyframes
    closures: tuple[Closure, ...]
    rejected: tuple[Rejected, ...]
    wheels: tuple[WheelErrors, ...]
    used: str
    drives_joined: int
    left_out: tuple[str, ...]
    anchors: int
    held_out: HeldOutScore | None
    camera: Camera | None
    mount: Mount | None
    warnings: tuple[str, ...]
    joins: tuple[Join, ...] = ()
    odometry_scale: float = 1.0
    scale_known: bool = False
    cpu_s: float = 0.0


def trajectory_of(
    drive: Drive,
    number: int,
    odometry: DriveOdometry,
    keyframes: Keyframes,
    kept: Flags,
    poses: Array,
    covariances: Array,
) -> EstimatedTrajectory:
    """Return the poses of all images: along the odometry, bent to both keyframes around."""
    count = len(odometry.poses)
    found = np.full((count, 3), np.nan)
    blocks = np.full((count, 3, 3), np.nan)
    for piece in np.unique(keyframes.piece_of[(keyframes.drive_of == number) & kept]):
        rows = np.flatnonzero(keyframes.piece_of == piece)
        images = keyframes.image_of[rows]
        for left, right in zip(range(len(rows)), [*range(1, len(rows)), len(rows) - 1]):
            a, b = rows[left], rows[right]
            span = np.arange(images[left], images[right] + 1)
            along = relative(odometry.poses[images[left]], odometry.poses[span])
            reached = compose(poses[a], along)
            bend = relative(reached[-1], poses[b])
            driven = odometry.path_m[span] - odometry.path_m[images[left]]
            steps = np.arange(len(span))
            measure = driven + 1e-6 * steps
            fraction = measure / max(float(measure[-1]), 1e-9)
            found[span] = compose(reached, fraction[:, None] * bend)
            blocks[span] = (1.0 - fraction)[:, None, None] * covariances[a] + fraction[
                :, None, None
            ] * covariances[b]
    found[:, 2] = wrap_angle(found[:, 2])
    return EstimatedTrajectory(drive.name, found, blocks, odometry.poses, odometry.offset_s)


STRETCH_M = 5.0
"""Closures of a stretch of path this long are left out together: neighbours are nearly the same."""
FOLDS = 3
"""Each stretch is left out once, every third at a time."""
MIN_TRAINING = 3
"""Closures that a fold must keep."""
MAX_ERROR_M = 0.5
"""A larger error counts as that: a wrong closure must not decide."""
METRES_PER_RADIAN = 2.0
"""An error of the heading counts as much as it moves what is 2 m away."""
BY_CAUTION = (ODOMETRY_EDGES, ADJUSTMENT, VISUAL_EDGES)
"""The adjustment holds on to the wheels where images say little; visual edges do not."""


@dataclass(frozen=True)
class HeldOut:
    """Closures to estimate with, and closures to predict, each of a stretch (c,) by its number."""

    training: list[Closure]
    testing: list[Closure]
    stretches: Rows

    @classmethod
    def folds(cls, closures: Sequence[Closure], keyframes: Keyframes) -> list[HeldOut]:
        """Return folds that leave out every third stretch, those that still join all pieces."""
        if not closures:
            return []
        later = np.array(
            [max(closure.first, closure.second) for closure in closures], dtype=np.intp
        )
        stretch = np.floor(keyframes.path_m[later] / STRETCH_M).astype(np.intp)
        _, number = np.unique(
            np.stack((keyframes.piece_of[later], stretch), axis=1), axis=0, return_inverse=True
        )
        number = number.ravel().astype(np.intp)
        joined = components(closures, keyframes.piece_of, minimum=1).max()
        folds = []
        for fold in range(FOLDS):
            out = number % FOLDS == fold
            training = [closure for closure, left in zip(closures, out) if not left]
            if not out.any() or len(training) < MIN_TRAINING:
                continue
            if components(training, keyframes.piece_of, minimum=1).max() == joined:
                testing = [closure for closure, left in zip(closures, out) if left]
                folds.append(cls(training, testing, number[out]))
        return folds

    def errors(self, poses: Array) -> Array:
        """Return the errors (c,) in metres, at most 0.5, of closures that poses (n, 3) predict."""
        edges = as_edges(self.testing)
        away = relative(poses[edges.first], poses[edges.second]) - edges.motions
        turn = METRES_PER_RADIAN * np.abs(wrap_angle(away[:, 2]))
        return np.minimum(np.hypot(away[:, 0], away[:, 1]) + turn, MAX_ERROR_M)


def choose(errors: Mapping[str, Array], stretches: Rows) -> str:
    """Return the most cautious method whose errors (c,) are within one standard error of the best.

    The one-standard-error rule (Breiman et al. 1984), on differences to the best method, closure
    by closure. Closures of a stretch err together: the error is that of the stretches' sums.
    """
    best = min(errors, key=lambda method: float(errors[method].mean()))
    _, number = np.unique(stretches, return_inverse=True)
    for method in BY_CAUTION:
        if method not in errors:
            continue
        worse = errors[method] - errors[best]
        mean = float(worse.mean())
        by_stretch = np.bincount(number.ravel(), worse - mean)
        count = len(by_stretch)
        if count < 2:
            return method
        variance = count / (count - 1) * float((by_stretch**2).sum())
        if mean <= np.sqrt(variance) / len(worse):
            return method
    return best
