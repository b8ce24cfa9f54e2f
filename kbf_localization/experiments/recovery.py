"""Global starts, kidnappings and undisturbed drives: does it find itself, and does it know?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.filters.registry import make_filter
from kbf_localization.geometry import compose, embed, interpolate, relative
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.localization.calibration import COVERED_WITHIN
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap
from kbf_localization.training_map.description import describe_frames
from kbf_localization.training_map.frames import gather_frames

FOUND_WITHIN_M = 0.5
START_UPDATES = 30
BEFORE_KIDNAPPING = 40
AFTER_KIDNAPPING = 60
CARRIED_AT_LEAST_M = 3.0
FRAME_NS = 200_000_000
AFTER_UNCOVERED = 30
"""Updates after a place that the map does not know, in which the robot may find itself again."""

BATCH = 10
"""Trials that share a localizer, whose preparation costs as much as some hundred updates."""


@dataclass(frozen=True)
class DescribedDrive:
    """A test drive: `histograms` (t, bins), true `poses` (t, 3), odometry `motions` (t, 3).

    `covered` (t,) says where the map has a pose near the true one: elsewhere no image of the map
    shows what the camera sees.
    """

    name: str
    condition: str | None
    histograms: NDArray[np.uint8]
    poses: Array
    motions: Array
    covered: NDArray[np.bool_]

    def covers(self, first: int, count: int) -> bool:
        """Whether the map covers all of these frames."""
        return bool(self.covered[first : first + count].all())

    def __len__(self) -> int:
        return len(self.poses)


@dataclass(frozen=True)
class Trace:
    """One value an update: the position's error (m), its distance from the truth in standard
    deviations, its standard deviation (m), the state, and whether the map has covered the frames
    of the last `AFTER_UNCOVERED` updates.
    """

    error_m: Array
    standard_distance: Array
    sigma_m: Array
    states: tuple[State, ...]
    covered: NDArray[np.bool_]


@dataclass(frozen=True)
class Piece:
    """`count` consecutive frames of the test drive with this number, from `first` on."""

    drive: int
    first: int
    count: int


Trial = tuple[Piece, ...]
"""Pieces that are driven one after the other, as if the robot were carried between them."""


@dataclass(frozen=True)
class Scene:
    """A map and the test drives on it; runs batches of trials, in worker processes too."""

    training_map: TrainingMap
    drives: tuple[DescribedDrive, ...]

    def __call__(self, trials: Sequence[Trial]) -> list[Trace]:
        localizer = Localizer(self.training_map, make_filter("kbf", self.training_map))
        return [self._run(localizer, trial) for trial in trials]

    def _run(self, localizer: Localizer, trial: Trial) -> Trace:
        """Feed a trial's pieces to a fresh start; at their seams odometry feels no motion."""
        localizer.reset()
        odometry, stamp = np.zeros(3), 0
        said: list[Localization] = []
        truth: list[Array] = []
        covered: list[bool] = []
        for piece in trial:
            drive = self.drives[piece.drive]
            for frame in range(piece.first, piece.first + piece.count):
                if frame > piece.first:
                    odometry = compose(odometry, drive.motions[frame])
                localizer.add_odometry(stamp, odometry)
                observation = self.training_map.observe(drive.histograms[frame])
                one = localizer.add_described(stamp, observation)
                assert one is not None
                said.append(one)
                truth.append(drive.poses[frame])
                covered.append(drive.covers(max(0, frame - AFTER_UNCOVERED), AFTER_UNCOVERED + 1))
                stamp += FRAME_NS
        return _trace(said, np.array(truth), np.array(covered))


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
    nearest = np.asarray(cKDTree(embed(training_map.poses)).query(embed(frames.poses[kept]))[0])
    return DescribedDrive(
        name=drive.name,
        condition=drive.condition,
        histograms=np.stack([item.histogram for item in described]),
        poses=frames.poses[kept],
        motions=motions,
        covered=nearest <= COVERED_WITHIN,
    )


def _trace(said: Sequence[Localization], truth: Array, covered: NDArray[np.bool_]) -> Trace:
    offsets = np.array([one.pose for one in said])[:, :2] - truth[:, :2]
    covariances = np.array([one.published_covariance for one in said])[:, :2, :2]
    solved = np.linalg.solve(covariances, offsets[..., None])[..., 0]
    return Trace(
        error_m=np.hypot(offsets[:, 0], offsets[:, 1]),
        standard_distance=np.sqrt((offsets * solved).sum(axis=1)),
        sigma_m=np.sqrt(np.trace(covariances, axis1=1, axis2=2) / 2.0),
        states=tuple(one.state for one in said),
        covered=covered,
    )


def global_starts(drives: Sequence[DescribedDrive], count: int, seed: int) -> list[Trial]:
    """Starts at random times with no hint of the place."""
    rng = np.random.default_rng((seed, 1))
    trials: list[Trial] = []
    while len(trials) < count:
        number = int(rng.integers(len(drives)))
        first = int(rng.integers(len(drives[number]) - START_UPDATES))
        if drives[number].covers(first, START_UPDATES):
            trials.append((Piece(number, first, START_UPDATES),))
    return trials


def kidnappings(drives: Sequence[DescribedDrive], count: int, seed: int) -> list[Trial]:
    """Drives that go on elsewhere, as if the robot had been carried there with wheels at rest."""
    rng = np.random.default_rng((seed, 2))
    trials: list[Trial] = []
    while len(trials) < count:
        number = int(rng.integers(len(drives)))
        poses = drives[number].poses[:, :2]
        first, then = rng.integers(len(poses) - BEFORE_KIDNAPPING - AFTER_KIDNAPPING, size=2)
        carried_m = np.hypot(*(poses[then] - poses[first + BEFORE_KIDNAPPING - 1]))
        covered = drives[number].covers(first, BEFORE_KIDNAPPING)
        covered &= drives[number].covers(then, AFTER_KIDNAPPING)
        if covered and carried_m >= CARRIED_AT_LEAST_M:
            before = Piece(number, int(first), BEFORE_KIDNAPPING)
            trials.append((before, Piece(number, int(then), AFTER_KIDNAPPING)))
    return trials


def whole_drives(drives: Sequence[DescribedDrive]) -> list[Trial]:
    """Each drive from its beginning to its end, undisturbed."""
    return [(Piece(number, 0, len(drive)),) for number, drive in enumerate(drives)]


@dataclass(frozen=True)
class World:
    """The cloudy map with cloudy test drives; a night drive on that map and on a merged one."""

    by_day: Scene
    night_on_cloudy: Scene
    night_on_merged: Scene


@dataclass(frozen=True)
class Outcome:
    """The traces of all trials."""

    starts: list[Trace]
    carried: list[Trace]
    undisturbed: list[Trace]
    night_on_cloudy: list[Trace]
    night_on_merged: list[Trace]


def run_trials(
    world: World, starts: int, seed: int, workers: Workers, progress: Progress = no_progress
) -> Outcome:
    """So many global starts, half as many kidnappings, and all test drives from end to end."""

    def run(scene: Scene, trials: Sequence[Trial], doing: str) -> list[Trace]:
        batches = [trials[first : first + BATCH] for first in range(0, len(trials), BATCH)]
        traces: list[Trace] = []
        for part in workers.map(scene, batches):
            traces += part
            progress(len(traces), len(trials), doing)
        return traces

    day = world.by_day
    cloudy, merged = world.night_on_cloudy, world.night_on_merged
    return Outcome(
        starts=run(day, global_starts(day.drives, starts, seed), "global starts"),
        carried=run(day, kidnappings(day.drives, starts // 2, seed), "kidnappings"),
        undisturbed=run(day, whole_drives(day.drives), "undisturbed drives"),
        night_on_cloudy=run(cloudy, whole_drives(cloudy.drives), "night on the cloudy map"),
        night_on_merged=run(merged, whole_drives(merged.drives), "night on the merged map"),
    )
