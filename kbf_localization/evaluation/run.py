"""A method's run over one drive, and the one replay loop that makes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_images
from kbf_localization.filters.base import HypothesisEstimate, Weights
from kbf_localization.filters.smoothing import Step, smoothed
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.localization.result import State
from kbf_localization.localization.state_monitor import FIRST_PROOF
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.observation import MapObservation

if TYPE_CHECKING:
    from kbf_localization.localization.localizer import Localizer
    from kbf_localization.localization.result import Localization

WHOLE_MAP_MATCHING_LIMIT = 5000
"""Up to this many poses the best match is sought in the whole map, above it in the belief alone."""

EQUAL = 1e-9
"""Metres or radians by which the node's estimates may differ from the offline replay's."""


@dataclass(frozen=True)
class Run:
    """What one method made of one drive; t frames have an estimate.

    `stamps_ns` (t,), `estimates` (t, 3), `covariances` (t, 3, 3) of (x, y, heading), `truth` (t, 3)
    with NaN where it is unknown or None where all of it is, `states` (t,) such as "tracking",
    `evidence` (t,), `step_ms` (t,) from the decoded image to the pose, `counts` of what went wrong,
    `frames_dropped` the images that got no estimate. `highest_weight` (t, 3) is the paper's
    estimate. `odometry` (t, 3) is the odometry's pose at each frame, `used` (t,) marks frames that
    were given to the filter; the others are dead-reckoned. `beliefs` (t,) weights on the map's
    poses, `best_rows` (t,) the map's best-matching image (-1: none) and `hypotheses` (t,) are there
    when they were asked for. `looks_back`: each pose is smoothed by later images.
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
    looks_back: bool = False

    def __len__(self) -> int:
        return len(self.stamps_ns)


def localize_drive(
    drive: Drive | DescribedDrive, localizer: Localizer, progress: Progress = no_progress
) -> Iterator[tuple[int, Localization | None, MapObservation | None, float]]:
    """The loop: each image with its number, what the localizer makes of it, and milliseconds.

    Images of a drive that is not described are described in passing and not kept. Odometry is
    handed in until it covers the image, as the node does.
    """
    if isinstance(drive, DescribedDrive):
        outcomes = drive.outcomes()
    else:
        outcomes = describe_images(drive, localizer.training_map.described_by)
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
            localizer.counts["image_not_decodable"] += 1
            yield number, None, None, 0.0
            continue
        start = time.perf_counter()
        observation = localizer.training_map.observe(description)
        localization = localizer.add_described(stamp, observation)
        elapsed = 1e3 * (time.perf_counter() - start) + describe_ms
        yield number, localization, observation, elapsed
    progress(len(drive), len(drive), f"localizing {drive.name}")


def replay(
    drive: DescribedDrive,
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
    for number, one, observation, elapsed in localize_drive(drive, localizer, progress):
        if one is None or observation is None:
            continue
        found.append(one)
        step_ms.append(elapsed)
        if drive.truth is not None:
            truth.append(drive.truth[number])
        if keep_beliefs:
            count = len(localizer.training_map.poses)
            best_rows.append(_best_row(observation, one.estimate.weights, count))
    return Run(
        method=method,
        stamps_ns=np.array([one.stamp_ns for one in found], dtype=np.int64),
        estimates=np.array([one.pose for one in found], dtype=np.float64).reshape(-1, 3),
        covariances=np.array([one.published_covariance for one in found]).reshape(-1, 3, 3),
        truth=np.array(truth).reshape(-1, 3) if truth else None,
        states=tuple(one.state.value for one in found),
        evidence=np.array([one.evidence for one in found], dtype=np.float64),
        step_ms=np.array(step_ms, dtype=np.float64),
        counts={str(name): count for name, count in Counter(localizer.counts).items()},
        frames_dropped=len(drive) - len(found),
        highest_weight=np.array([one.estimate.highest_weight_pose for one in found]).reshape(-1, 3),
        odometry=np.array([one.odometry_pose for one in found]).reshape(-1, 3),
        used=np.array([one.used for one in found], dtype=bool),
        beliefs=tuple(one.estimate.weights for one in found) if keep_beliefs else None,
        best_rows=np.array(best_rows, dtype=np.intp) if keep_beliefs else None,
        hypotheses=tuple(one.estimate.hypotheses for one in found) if keep_beliefs else None,
    )


def smoothed_run(run: Run, steps: Sequence[Step]) -> Run:
    """The run with the poses that looking back over the filter's `steps` gives.

    Its state is "tracking" where the way is sure and its pose certain. Frames that were not given
    to the filter are dead-reckoned from the last one that was.
    """
    if run.used is None or run.odometry is None or int(run.used.sum()) != len(steps):
        raise ValueError("the steps are not those of the run")
    looked_back = iter(smoothed(steps))
    estimates, covariances = run.estimates.copy(), run.covariances.copy()
    states = list(run.states)
    start, last = 0, None
    for frame, used in enumerate(run.used):
        if used:
            start, last = frame, next(looked_back)
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
        looks_back=True,
    )


def with_beliefs(node: Run, offline: Run) -> tuple[Run, float | None]:
    """The node's run with the offline replay's beliefs, where the two agree frame by frame.

    The node does not publish its whole belief; that of an equal estimate is equal. Also gives the
    largest difference of the two estimates, in metres or radians; None where frames are missing.
    """
    if not np.array_equal(node.stamps_ns, offline.stamps_ns):
        return node, None
    difference = node.estimates - offline.estimates
    difference[:, 2] = wrap_angle(difference[:, 2])
    largest = float(np.abs(difference).max(initial=0.0))
    if largest > EQUAL:
        return node, largest
    return replace(
        node, beliefs=offline.beliefs, best_rows=offline.best_rows, hypotheses=offline.hypotheses
    ), largest


def _best_row(observation: MapObservation, weights: Weights | None, poses: int) -> int:
    if poses <= WHOLE_MAP_MATCHING_LIMIT:
        return int(observation.best_rows(1)[0])
    if weights is None or len(weights.rows) == 0:
        return -1
    return int(weights.rows[np.argmax(observation.similarities(weights.rows))])
