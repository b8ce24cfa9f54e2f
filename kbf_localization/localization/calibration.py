"""Learns from the map's own drives when evidence is low, and how far the covariance is honest.

Each drive is located on the part of the map that other drives gave, as a new drive would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.datasets.drive import Drive
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import embed, interpolate
from kbf_localization.localization.localizer import Localizer
from kbf_localization.localization.state_monitor import StateThresholds
from kbf_localization.localization.types import Array, Localization
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map.description import describe_frames
from kbf_localization.training_map.frames import gather_frames
from kbf_localization.training_map.training_map import TrainingMap, subset

FRAMES_PER_DRIVE = 400
SETTLING_UPDATES = 20
"""Updates after a global start that say nothing about tracking."""

COVERED_WITHIN = 0.6
"""A frame counts where the map has a pose within this distance in the embedding."""

RIGHT_WITHIN_M = 1.0
FEWEST_UPDATES = 50
"""With fewer updates nothing is learned and the defaults stay."""

HONEST_SHARE = 0.985
"""The share of the true positions that three standard deviations shall contain."""


@dataclass(frozen=True)
class _Traces:
    """What was seen while the localizer was right, one value an update."""

    evidence: Array
    best_similarity: Array
    jump_m: Array
    standard_distance: Array


def calibrate(
    training_map: TrainingMap,
    drives: Sequence[Drive],
    *,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> dict[str, float]:
    """The thresholds of a map built from `drives`, to be kept in the map; {} from too few frames.

    With one drive alone, every second pose of the map stands for the other drives, so that the
    thresholds are somewhat optimistic.
    """
    rows = _pieces(drives)
    frames = gather_frames(drives)
    described = describe_frames(
        frames,
        drives,
        rows,
        training_map.vocabulary,
        training_map.describer_settings,
        workers or Serial(),
        progress,
    )
    histograms = {int(rows[item.place]): item.histogram for item in described}
    traces = []
    for number, drive in enumerate(drives):
        indices = [row for row in histograms if frames.drive_of[row] == number]
        part = _other_part(training_map, number)
        if len(part) < 2 or len(indices) <= SETTLING_UPDATES:
            continue
        traces.append(
            _locate(
                subset(training_map, part),
                drive,
                frames.index_of[indices],
                np.stack([histograms[row] for row in indices]),
            )
        )
        progress(number + 1, len(drives), "calibrating")
    return _thresholds(traces)


def _pieces(drives: Sequence[Drive]) -> NDArray[np.intp]:
    """Rows of the gathered frames: the middle of each drive."""
    frames = gather_frames(drives)
    parts = []
    for number in range(len(drives)):
        own = np.flatnonzero(frames.drive_of == number)
        start = max(0, (len(own) - FRAMES_PER_DRIVE) // 2)
        parts.append(own[start : start + FRAMES_PER_DRIVE])
    return np.concatenate(parts)


def _other_part(training_map: TrainingMap, number: int) -> NDArray[np.intp]:
    """The map's poses that are not from this drive."""
    others = np.flatnonzero(training_map.source_of != number)
    return others if len(others) else np.arange(0, len(training_map), 2)


def _locate(
    part: TrainingMap, drive: Drive, indices: NDArray[np.intp], histograms: NDArray[np.uint8]
) -> _Traces:
    """Locate one drive's frames on a part of the map."""
    localizer = Localizer(part, make_filter("kbf", part))
    stamps = drive.stamps_ns[indices]
    odometry = interpolate(drive.odometry.stamps_ns, drive.odometry.poses, stamps)
    assert drive.poses is not None
    truth = drive.poses[indices]
    distances = np.asarray(cKDTree(embed(part.poses)).query(embed(truth))[0])
    values: list[tuple[float, float, float, float]] = []
    for number, (stamp, histogram) in enumerate(zip(stamps, histograms, strict=True)):
        localizer.add_odometry(int(stamp), odometry[number])
        carried = localizer.pose_at(int(stamp))
        observation = part.observe(histogram)
        said = localizer.add_described(int(stamp), observation)
        if said is None or carried is None or number < SETTLING_UPDATES:
            continue
        offset = said.pose[:2] - truth[number, :2]
        if distances[number] > COVERED_WITHIN or np.hypot(*offset) > RIGHT_WITHIN_M:
            continue
        best = float(observation.similarities().max())
        jump = float(np.hypot(*(said.pose[:2] - carried[0][:2])))
        values.append((said.evidence, best, jump, _standard_distance(said, offset)))
    columns = np.array(values).reshape(-1, 4).T
    return _Traces(*columns)


def _standard_distance(said: Localization, offset: Array) -> float:
    """The position's error in standard deviations (Mahalanobis distance)."""
    return float(np.sqrt(offset @ np.linalg.solve(said.covariance[:2, :2], offset)))


def _thresholds(traces: Sequence[_Traces]) -> dict[str, float]:
    evidence, best, jump, distance = (
        np.concatenate([getattr(one, name) for one in traces]) if traces else np.zeros(0)
        for name in ("evidence", "best_similarity", "jump_m", "standard_distance")
    )
    if len(evidence) < FEWEST_UPDATES:
        return {}
    default = StateThresholds()
    usual = float(np.median(evidence))
    low = float(np.quantile(evidence, 0.001)) / max(usual, 1e-9)
    scale = float(np.quantile(distance, HONEST_SHARE)) / 3.0
    return {
        "usual_evidence": usual,
        "lost_share": float(np.clip(0.6 * low, 0.05, default.lost_share)),
        "tracking_share": float(np.clip(low, 0.1, default.tracking_share)),
        "jump_m": float(np.clip(2.0 * np.quantile(jump, 0.998), 0.4, 3.0)),
        "least_similarity": 0.65 * float(np.quantile(best, 0.01)),
        "covariance_scale": float(np.clip(scale**2, 1.0, 100.0)),
    }
