"""Global starts, kidnappings and undisturbed drives: does it find itself, and does it know?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbf_localization.datasets.drive import Drive
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap
from kbf_localization.training_map.description import describe_frames
from kbf_localization.training_map.frames import gather_frames

Array = NDArray[np.float64]

FOUND_WITHIN_M = 0.5
START_UPDATES = 30
BEFORE_KIDNAPPING = 40
AFTER_KIDNAPPING = 60
CARRIED_AT_LEAST_M = 3.0
FRAME_NS = 200_000_000


@dataclass(frozen=True)
class DescribedDrive:
    """A test drive: `histograms` (t, bins), true `poses` (t, 3), odometry `motions` (t, 3)."""

    name: str
    condition: str | None
    histograms: NDArray[np.uint8]
    poses: Array
    motions: Array

    def __len__(self) -> int:
        return len(self.poses)


@dataclass(frozen=True)
class Trial:
    """Consecutive frames of one drive, then of another place: `pieces` of (drive, first, count)."""

    training_map: TrainingMap
    pieces: tuple[tuple[DescribedDrive, int, int], ...]


@dataclass(frozen=True)
class Trace:
    """One value an update: the position's error (m), its distance from the truth in standard
    deviations, its standard deviation (m), and the state.
    """

    error_m: Array
    standard_distance: Array
    sigma_m: Array
    states: tuple[State, ...]


def describe_test_drive(
    training_map: TrainingMap,
    drive: Drive,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> DescribedDrive:
    """All frames of a drive with known poses, described as the map's images are."""
    frames = gather_frames([drive])
    described = list(
        describe_frames(
            frames,
            [drive],
            np.arange(len(frames.poses)),
            training_map.vocabulary,
            training_map.describer_settings,
            workers or Serial(),
            progress,
        )
    )
    kept = np.array([item.place for item in described], dtype=np.intp)
    stamps = drive.stamps_ns[frames.index_of[kept]]
    odometry = interpolate(drive.odometry.stamps_ns, drive.odometry.poses, stamps)
    motions = np.zeros((len(kept), 3))
    motions[1:] = relative(odometry[:-1], odometry[1:])
    return DescribedDrive(
        name=drive.name,
        condition=drive.condition,
        histograms=np.stack([item.histogram for item in described]),
        poses=frames.poses[kept],
        motions=motions,
    )


def run_trial(trial: Trial) -> Trace:
    """Feed the pieces to a fresh localizer as one drive; at the seams odometry feels no motion."""
    training_map = trial.training_map
    localizer = Localizer(training_map, make_filter("kbf", training_map))
    odometry, stamp = np.zeros(3), 0
    said: list[Localization] = []
    truth: list[Array] = []
    for drive, first, count in trial.pieces:
        for frame in range(first, first + count):
            if frame > first:
                odometry = compose(odometry, drive.motions[frame])
            localizer.add_odometry(stamp, odometry)
            one = localizer.add_described(stamp, training_map.observe(drive.histograms[frame]))
            assert one is not None
            said.append(one)
            truth.append(drive.poses[frame])
            stamp += FRAME_NS
    offsets = np.array([one.pose for one in said])[:, :2] - np.array(truth)[:, :2]
    covariances = np.array([one.published_covariance for one in said])[:, :2, :2]
    solved = np.linalg.solve(covariances, offsets[..., None])[..., 0]
    return Trace(
        error_m=np.hypot(offsets[:, 0], offsets[:, 1]),
        standard_distance=np.sqrt((offsets * solved).sum(axis=1)),
        sigma_m=np.sqrt(np.trace(covariances, axis1=1, axis2=2) / 2.0),
        states=tuple(one.state for one in said),
    )


def global_starts(
    training_map: TrainingMap, drives: Sequence[DescribedDrive], count: int, seed: int
) -> list[Trial]:
    """Starts at random times with no hint of the place."""
    rng = np.random.default_rng((seed, 1))
    trials = []
    for _ in range(count):
        drive = drives[int(rng.integers(len(drives)))]
        first = int(rng.integers(len(drive) - START_UPDATES))
        trials.append(Trial(training_map, ((drive, first, START_UPDATES),)))
    return trials


def kidnappings(
    training_map: TrainingMap, drives: Sequence[DescribedDrive], count: int, seed: int
) -> list[Trial]:
    """Drives that go on elsewhere, as if the robot had been carried there with wheels at rest."""
    rng = np.random.default_rng((seed, 2))
    trials: list[Trial] = []
    while len(trials) < count:
        drive = drives[int(rng.integers(len(drives)))]
        first, then = rng.integers(len(drive) - BEFORE_KIDNAPPING - AFTER_KIDNAPPING, size=2)
        left = drive.poses[first + BEFORE_KIDNAPPING - 1, :2]
        if np.hypot(*(drive.poses[then, :2] - left)) < CARRIED_AT_LEAST_M:
            continue
        pieces = ((drive, int(first), BEFORE_KIDNAPPING), (drive, int(then), AFTER_KIDNAPPING))
        trials.append(Trial(training_map, pieces))
    return trials


def run_trials(
    trials: Sequence[Trial], workers: Workers, progress: Progress, doing: str
) -> list[Trace]:
    """The traces of all trials, in their order."""
    traces = []
    for trace in workers.map(run_trial, trials):
        traces.append(trace)
        progress(len(traces), len(trials), doing)
    return traces


def metrics_of(
    starts: Sequence[Trace], carried: Sequence[Trace], undisturbed: Sequence[Trace]
) -> dict[str, Any]:
    """The figures of `metrics.json`."""
    found = [_first(trace.error_m <= FOUND_WITHIN_M) for trace in starts]
    detected = [_first(_lost(trace)[BEFORE_KIDNAPPING:]) for trace in carried]
    recovered = [_first(trace.error_m[BEFORE_KIDNAPPING:] <= FOUND_WITHIN_M) for trace in carried]
    error = np.concatenate([trace.error_m for trace in undisturbed])
    distance = np.concatenate([trace.standard_distance for trace in undisturbed])
    sigma = np.concatenate([trace.sigma_m for trace in undisturbed])
    return {
        "global_start": {
            "starts": len(starts),
            "converged_share": _share(found, 15),
            "median_updates": float(np.median(found)),
        },
        "kidnapping": {
            "kidnappings": len(carried),
            "detected_share": _share(detected, 15),
            "recovered_share": _share(recovered, 30),
            "median_updates_to_detect": float(np.median(detected)),
            "median_updates_to_recover": float(np.median(recovered)),
        },
        "undisturbed": {
            "updates": len(error),
            "false_lost": sum(_times_lost(trace) for trace in undisturbed),
        },
        "covariance": {
            "within_three_sigma_share": float((distance <= 3.0).mean()),
            "median_sigma_m": float(np.median(sigma)),
            "position_rmse_m": float(np.sqrt((error**2).mean())),
        },
    }


def _first(happened: NDArray[np.bool_]) -> float:
    """After how many updates it first happened and stayed so for three, infinity for never."""
    lasting = happened[:-2] & happened[1:-1] & happened[2:]
    return float(np.argmax(lasting)) + 1.0 if lasting.any() else float("inf")


def _lost(trace: Trace) -> NDArray[np.bool_]:
    return np.array([state is State.LOST for state in trace.states])


def _times_lost(trace: Trace) -> int:
    """How often "lost" was said anew."""
    lost = _lost(trace)
    return int(lost[0]) + int((lost[1:] & ~lost[:-1]).sum())


def _share(updates: Sequence[float], at_most: int) -> float:
    return float((np.array(updates) <= at_most).mean())
