"""A method's run over one drive, and the offline replay that makes it as fast as the CPU allows."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kbf_localization.arrays import Image
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.filters.base import Observation, Weights
from kbf_localization.progress import Progress, no_progress

if TYPE_CHECKING:
    from kbf_localization.localization.localizer import Localizer, LocalizerMap
    from kbf_localization.localization.types import Localization

WHOLE_MAP_MATCHING_LIMIT = 5000
"""Up to this many poses the best match is sought in the whole map, above it in the belief alone."""


@dataclass(frozen=True)
class Run:
    """What one method said about one drive; t frames have an estimate.

    `stamps_ns` (t,), `estimates` (t, 3), `covariances` (t, 3, 3) of (x, y, heading), `truth` (t, 3)
    with NaN where it is unknown or None where all of it is, `states` (t,) such as "tracking",
    `evidence` (t,), `step_ms` (t,) from the decoded image to the pose, `counts` of what went wrong,
    `frames_dropped` the images that got no estimate. `beliefs` (t,) weights on the map's poses and
    `best_rows` (t,) the map's best-matching image (-1: none) are there when they were asked for.
    """

    method: str
    stamps_ns: NDArray[np.int64]
    estimates: NDArray[np.float64]
    covariances: NDArray[np.float64]
    truth: NDArray[np.float64] | None
    states: tuple[str, ...]
    evidence: NDArray[np.float64]
    step_ms: NDArray[np.float64]
    counts: Mapping[str, int] = field(default_factory=dict)
    frames_dropped: int = 0
    beliefs: tuple[Weights | None, ...] | None = None
    best_rows: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.stamps_ns)


def replay_offline(
    drive: Drive,
    localizer: Localizer,
    method: str,
    *,
    keep_beliefs: bool = False,
    progress: Progress = no_progress,
) -> Run:
    """Replay `drive` through `localizer`; nothing is dropped for lack of time."""
    return replay_together(
        drive, {method: localizer}, keep_beliefs=keep_beliefs, progress=progress
    )[method]


def replay_together(
    drive: Drive,
    localizers: Mapping[str, Localizer],
    *,
    keep_beliefs: bool = False,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> dict[str, Run]:
    """Replay `drive` through several localizers of one map; every image is described once.

    `threads` describe images ahead of the filters (default: one a core). The order is kept and an
    image's description does not depend on the others, so the result does not depend on `threads`.
    """
    training_map = next(iter(localizers.values())).training_map
    recorders = {
        method: _Recorder(method, localizer, keep_beliefs)
        for method, localizer in localizers.items()
    }
    undecodable = 0
    for frame in frames_in_order(drive, training_map, threads=threads, progress=progress):
        for recorder in recorders.values():
            frame.feed_odometry(recorder.localizer)
            recorder.step(frame)
        undecodable += frame.observation is None
    return {method: recorder.run(len(drive), undecodable) for method, recorder in recorders.items()}


@dataclass(frozen=True)
class Frame:
    """One image of a drive as a localizer gets it, `observation` None where it cannot be decoded.

    `readings` are the rows of `odometry` that have come since the frame before, up to the first
    one at or after the image's stamp, which is what covers it.
    """

    stamp_ns: int
    observation: Observation | None
    describe_ms: float
    truth: NDArray[np.float64] | None
    odometry: OdometryLog
    readings: range

    def feed_odometry(self, localizer: Localizer) -> None:
        """Hand the readings to `localizer`."""
        for row in self.readings:
            localizer.add_odometry(int(self.odometry.stamps_ns[row]), self.odometry.poses[row])


def frames_in_order(
    drive: Drive,
    training_map: LocalizerMap,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Iterator[Frame]:
    """The drive's images, each described by `training_map`, with the odometry between them."""
    odometry, fed = drive.odometry, 0
    for index, histogram, describe_ms in _described(drive, training_map, threads):
        progress(index, len(drive), f"replaying {drive.name}")
        stamp = int(drive.stamps_ns[index])
        needed = int(np.searchsorted(odometry.stamps_ns, stamp, side="left")) + 1
        readings = range(fed, min(needed, len(odometry.stamps_ns)))
        fed = max(fed, readings.stop)
        yield Frame(
            stamp_ns=stamp,
            observation=None if histogram is None else training_map.observe(histogram),
            describe_ms=describe_ms,
            truth=None if drive.poses is None else drive.poses[index],
            odometry=odometry,
            readings=readings,
        )
    progress(len(drive), len(drive), f"replaying {drive.name}")


def _described(
    drive: Drive, training_map: LocalizerMap, threads: int | None
) -> Iterator[tuple[int, NDArray[np.integer] | None, float]]:
    """(index, histogram or None for an image that cannot be decoded, milliseconds), in order."""
    describer = training_map.describer()

    def describe(image: Image) -> tuple[NDArray[np.integer], float]:
        start = time.perf_counter()
        histogram = describer.describe(image)
        return histogram, 1e3 * (time.perf_counter() - start)

    count = threads or os.cpu_count() or 1
    waiting: deque[tuple[int, Future[tuple[NDArray[np.integer], float]] | None]] = deque()
    with ThreadPoolExecutor(count) as pool:
        for index, image in drive.images():
            waiting.append((index, None if image is None else pool.submit(describe, image)))
            if len(waiting) > 2 * count:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())


def _finished(
    index: int, described: Future[tuple[NDArray[np.integer], float]] | None
) -> tuple[int, NDArray[np.integer] | None, float]:
    if described is None:
        return index, None, 0.0
    return (index, *described.result())


class _Recorder:
    """Steps one localizer and keeps what it says."""

    def __init__(self, method: str, localizer: Localizer, keep_beliefs: bool) -> None:
        self.localizer = localizer
        self._method, self._keep_beliefs = method, keep_beliefs
        self._said: list[Localization] = []
        self._truth: list[NDArray[np.float64] | None] = []
        self._step_ms: list[float] = []
        self._best_rows: list[int] = []

    def step(self, frame: Frame) -> None:
        if frame.observation is None:
            return
        start = time.perf_counter()
        localization = self.localizer.add_described(frame.stamp_ns, frame.observation)
        step_ms = frame.describe_ms + 1e3 * (time.perf_counter() - start)
        if localization is None:
            return
        self._said.append(localization)
        self._truth.append(frame.truth)
        self._step_ms.append(step_ms)
        if self._keep_beliefs:
            weights = localization.estimate.weights
            self._best_rows.append(
                _best_row(frame.observation, weights, len(self.localizer.training_map.poses))
            )

    def run(self, frames: int, undecodable: int) -> Run:
        said = self._said
        counts = Counter(self.localizer.counts)
        if undecodable:
            counts["image_not_decodable"] += undecodable
        truth = [one for one in self._truth if one is not None]
        return Run(
            method=self._method,
            stamps_ns=np.array([one.stamp_ns for one in said], dtype=np.int64),
            estimates=np.array([one.pose for one in said], dtype=np.float64).reshape(-1, 3),
            covariances=np.array([one.published_covariance for one in said]).reshape(-1, 3, 3),
            truth=np.array(truth).reshape(-1, 3) if truth else None,
            states=tuple(one.state.value for one in said),
            evidence=np.array([one.evidence for one in said], dtype=np.float64),
            step_ms=np.array(self._step_ms, dtype=np.float64),
            counts=dict(counts),
            frames_dropped=frames - len(said),
            beliefs=tuple(one.estimate.weights for one in said) if self._keep_beliefs else None,
            best_rows=np.array(self._best_rows, dtype=np.intp) if self._keep_beliefs else None,
        )


def _best_row(observation: Observation, weights: Weights | None, poses: int) -> int:
    if poses <= WHOLE_MAP_MATCHING_LIMIT:
        return int(np.argmax(observation.similarities()))
    if weights is None or len(weights.rows) == 0:
        return -1
    return int(weights.rows[np.argmax(observation.similarities(weights.rows))])
