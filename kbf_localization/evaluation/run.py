"""A method's run over a drive, and the replay loop that all evaluations use."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import Drive, camera_of, mount_of
from kbf_localization.evaluation.described_drive import (
    DescribedDrive,
    DriveDescribedAhead,
    describe_images,
)
from kbf_localization.events import Event
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.filters.smoothing import Step, smooth
from kbf_localization.geometry import compose, difference, relative
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.localization.result import State
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.training_map import MapObservation

if TYPE_CHECKING:
    from kbf_localization.localization.localizer import Localizer
    from kbf_localization.localization.result import Localization
    from kbf_localization.training_map.training_map import TrainingMap

WHOLE_MAP_MATCHING_LIMIT = 5000
"""Poses up to which the best match is taken from the whole map; beyond, from the belief alone."""

MAX_DIFFERENCE = 1e-9
"""Metres or radians by which the node's estimates may differ from the offline replay's."""

GROSS_ERROR_M = 1.0
"""A frame further from the truth than this counts as a gross error."""


def wrong_beyond_m(training_map: TrainingMap) -> float:
    """Return the error from which on a pose is of another place: 1 m, or less on a smaller map."""
    return min(GROSS_ERROR_M, training_map.calibration.similarity.place_m)


@dataclass(frozen=True)
class Run:
    """What one method made of one drive; t frames have an estimate.

    `stamps_ns` (t,), `estimates` (t, 3), `covariances` (t, 3, 3) of (x, y, heading), `truth` (t, 3)
    with NaN where it is unknown or None where all of it is, `states` (t,) such as "tracking",
    `evidence` (t,), `step_ms` (t,) to describe the decoded image and, in processor time, for the
    filter's step, `counts` of what went wrong,
    `frames_dropped` the images that got no estimate. `highest_weight` (t, 3) is the paper's
    estimate. `odometry` (t, 3) is the odometry's pose at each frame, `used` (t,) marks frames that
    were given to the filter; the others are dead-reckoned. `beliefs` (t,) weights on the map's
    poses, `best_rows` (t,) the map's best-matching image (-1: none) and `hypotheses` (t,) are there
    when they were asked for, and so are `fixes` (t,), the poses that landmarks measured. `inliers`
    (t,) counts the landmarks on which each pose rests. `is_smoothed`: later images are used for
    each pose too. `has_state` tells whether the method judges its poses; `degraded_s` is how long
    odometry alone carried them. A tracked pose off by more than `wrong_beyond_m` is confident and
    wrong. `map_truth` (t, 3) is the true pose as the nearest map image places it, NaN where that is
    unknown: what covariances refer to on a map that has its own frame. None: they refer to `truth`.
    """

    method: str
    stamps_ns: Stamps
    estimates: Array
    covariances: Array
    truth: Array | None
    states: tuple[str, ...]
    evidence: Array
    step_ms: Array
    counts: Mapping[str, int] = field(default_factory=dict)
    frames_dropped: int = 0
    highest_weight: Array | None = None
    odometry: Array | None = None
    used: Array | None = None
    beliefs: tuple[Weights | None, ...] | None = None
    best_rows: Rows | None = None
    hypotheses: tuple[tuple[HypothesisEstimate, ...], ...] | None = None
    is_smoothed: bool = False
    steps: tuple[Step, ...] | None = None
    inliers: Rows | None = None
    fixes: tuple[LandmarkFix | None, ...] | None = None
    has_state: bool = True
    degraded_s: float = 0.0
    wrong_beyond_m: float = GROSS_ERROR_M
    map_truth: Array | None = None

    def __len__(self) -> int:
        return len(self.stamps_ns)


def localize_drive(
    drive: Drive | DescribedDrive | DriveDescribedAhead,
    localizer: Localizer,
    progress: Progress = no_progress,
) -> Iterator[tuple[int, Localization | None, MapObservation | None, float]]:
    """Yield each image's number, its localization and observation, and milliseconds.

    Localization and observation are None for an image that cannot be decoded. Images of a drive
    that is not described are described in passing and not kept. Odometry is handed in until it
    covers the image, as the node does.
    """
    localizer.set_camera(camera_of(drive), mount_of(drive))
    if isinstance(drive, (DescribedDrive, DriveDescribedAhead)):
        outcomes = drive.outcomes()
    else:
        outcomes = describe_images(drive, localizer.training_map.image_describer)
    odometry, fed = drive.odometry, 0
    for number, (description, describe_ms) in enumerate(outcomes):
        stamp = int(drive.stamps_ns[number])
        progress(number, len(drive), f"localizing {drive.name}")
        # The first reading at or after the image's stamp is what covers it.
        needed = int(np.searchsorted(odometry.stamps_ns, stamp, side="left")) + 1
        while fed < min(needed, len(odometry.stamps_ns)):
            localizer.add_odometry(
                int(odometry.stamps_ns[fed]), odometry.poses[fed], odometry.covariance(fed)
            )
            fed += 1
        if description is None:
            yield number, None, None, 0.0
            continue
        # Processor time: other threads describe the next images meanwhile.
        start = time.thread_time()
        observation = localizer.training_map.observe(description)
        localization = localizer.add_described(stamp, observation)
        elapsed = 1e3 * (time.thread_time() - start) + describe_ms
        yield number, localization, observation, elapsed
    progress(len(drive), len(drive), f"localizing {drive.name}")


def replay(
    drive: DescribedDrive | DriveDescribedAhead,
    localizer: Localizer,
    method: str = "kbf",
    *,
    keep_beliefs: bool = False,
    progress: Progress = no_progress,
) -> Run:
    """Replay a described drive through `localizer`; nothing is dropped for lack of time."""
    found: list[Localization] = []
    truth: list[Array] = []
    step_ms: list[float] = []
    best_rows: list[int] = []
    undecodable = 0
    for number, fix, observation, elapsed in localize_drive(drive, localizer, progress):
        undecodable += observation is None
        if fix is None or observation is None:
            continue
        found.append(fix)
        step_ms.append(elapsed)
        if drive.truth is not None:
            truth.append(drive.truth[number])
        if keep_beliefs:
            count = len(localizer.training_map.poses)
            best_rows.append(_best_row(observation, fix.estimate.weights, count))
    counts = Counter({str(name): count for name, count in localizer.counts.items()})
    if undecodable:
        counts[Event.IMAGE_INVALID.value] += undecodable
    has_state = any(fix.estimate.confidence is not None for fix in found)
    measured = has_state and localizer.training_map.landmarks is not None
    return Run(
        method=method,
        stamps_ns=np.array([fix.stamp_ns for fix in found], dtype=np.int64),
        estimates=np.array([fix.pose for fix in found], dtype=np.float64).reshape(-1, 3),
        covariances=np.array([fix.published_covariance for fix in found]).reshape(-1, 3, 3),
        truth=np.array(truth).reshape(-1, 3) if truth else None,
        states=tuple(fix.state.value for fix in found),
        evidence=np.array([fix.evidence for fix in found], dtype=np.float64),
        step_ms=np.array(step_ms, dtype=np.float64),
        counts=dict(counts),
        frames_dropped=len(drive) - len(found),
        highest_weight=np.array([fix.estimate.highest_weight_pose for fix in found]).reshape(-1, 3),
        odometry=np.array([fix.odometry_pose for fix in found]).reshape(-1, 3),
        used=np.array([fix.used for fix in found], dtype=bool),
        beliefs=tuple(fix.estimate.weights for fix in found) if keep_beliefs else None,
        best_rows=np.array(best_rows, dtype=np.intp) if keep_beliefs else None,
        hypotheses=tuple(fix.estimate.hypotheses for fix in found) if keep_beliefs else None,
        steps=_steps(found) if keep_beliefs else None,
        inliers=_inliers(found) if measured else None,
        fixes=tuple(fix.estimate.landmark_fix if fix.used else None for fix in found)
        if keep_beliefs
        else None,
        has_state=has_state,
        degraded_s=localizer.degraded_s,
        wrong_beyond_m=wrong_beyond_m(localizer.training_map),
    )


def _inliers(found: Sequence[Localization]) -> Rows:
    """Return the landmarks (t,) on which each pose rests; 0 for an image without a fix."""
    fixes = [fix.estimate.landmark_fix if fix.used else None for fix in found]
    return np.array([0 if fix is None else fix.inliers for fix in fixes], dtype=np.intp)


def _steps(found: Sequence[Localization]) -> tuple[Step, ...] | None:
    """Return the filter's steps, for the smoother; None for a filter that records none."""
    steps = tuple(fix.estimate.step for fix in found if fix.used and fix.estimate.step is not None)
    return steps if len(steps) == sum(fix.used for fix in found) else None


def smoothed_run(run: Run, steps: Sequence[Step]) -> Run:
    """Return the run with the smoother's poses, from the filter's `steps`.

    A frame's state is "tracking" where the smoothed hypothesis has at least the probability of a
    first fix. Frames that were not given to the filter are dead-reckoned from the last that was.
    """
    if run.used is None or run.odometry is None or int(run.used.sum()) != len(steps):
        raise ValueError("the steps are not those of the run")
    smoothed_poses = iter(smooth(steps))
    estimates, covariances = run.estimates.copy(), run.covariances.copy()
    states = list(run.states)
    start, last = 0, None
    for frame, used in enumerate(run.used):
        if used:
            start, last = frame, next(smoothed_poses)
            if last is not None:
                sure = last.probability >= FIRST_PROOF
                states[frame] = (State.TRACKING if sure else State.LOCALIZING).value
        if last is None:
            continue
        moved = relative(run.odometry[start], run.odometry[frame])
        estimates[frame], covariances[frame] = compose(last.pose, moved), last.covariance
        states[frame] = states[start]
    return replace(
        run,
        method=f"{run.method}_smoothed",
        estimates=estimates,
        covariances=covariances,
        states=tuple(states),
        highest_weight=None,
        beliefs=None,
        hypotheses=None,
        fixes=None,
        is_smoothed=True,
        steps=None,
        degraded_s=0.0,
    )


def with_beliefs(node: Run, offline: Run) -> tuple[Run, float | None]:
    """Return the node's run with the offline replay's beliefs, where the two agree frame by frame.

    The node does not publish its whole belief; that of an equal estimate is equal. Also gives the
    largest difference of the two estimates, in metres or radians; None where frames are missing.
    """
    if not np.array_equal(node.stamps_ns, offline.stamps_ns):
        return node, None
    largest = float(np.abs(difference(node.estimates, offline.estimates)).max(initial=0.0))
    if largest > MAX_DIFFERENCE:
        return node, largest
    return replace(
        node,
        beliefs=offline.beliefs,
        best_rows=offline.best_rows,
        hypotheses=offline.hypotheses,
        inliers=offline.inliers,
        fixes=offline.fixes,
    ), largest


def _best_row(observation: MapObservation, weights: Weights | None, poses: int) -> int:
    if poses <= WHOLE_MAP_MATCHING_LIMIT:
        return int(observation.best_rows(1)[0])
    if weights is None or len(weights.rows) == 0:
        return -1
    return int(weights.rows[np.argmax(observation.similarities(weights.rows))])
