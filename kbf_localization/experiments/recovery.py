"""Global starts, kidnappings and undisturbed drives: recovery and consistency."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kbf_localization.arrays import Array, Flags
from kbf_localization.datasets.drive import Drive, OdometryLog
from kbf_localization.errors import KbfError
from kbf_localization.evaluation.described_drive import DescribedDrive, describe_drive
from kbf_localization.evaluation.frame_pool import map_coverage
from kbf_localization.evaluation.map_plot import COLOURS
from kbf_localization.evaluation.metrics import mahalanobis_errors, position_errors, position_sigmas
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.experiments.localization import simulated_drives
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.geometry import compose, interpolate, relative
from kbf_localization.localization import Localizer
from kbf_localization.mapping import build_map
from kbf_localization.mapping.editing import merge_maps
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap

MIN_CARRIED_M = 3.0
"""A kidnapping moves the robot at least so far: nearer places look alike."""

MAX_DRAWS = 100_000
"""Attempts to draw the trials before the map counts as covering too little."""

MIN_COVERAGE = 0.3
"""Coverage from which on the map counts as knowing a place."""

Covered = Sequence[Flags]
"""For each test drive (t,), where the map covers it."""

MAX_FOUND_ERROR_M = 0.5
"""Position error below which a robot counts as localized."""

START_UPDATES = 30
BEFORE_KIDNAPPING = 40
AFTER_KIDNAPPING = 60
AFTER_UNCOVERED = 30
"""Updates after a place that the map does not know, in which the robot may find itself again."""

TRIALS_PER_BATCH = 10
"""Trials with one localizer, whose preparation costs as much as some hundred updates."""

Trace = NDArray[np.void]
"""A table (t,) with a row an update, of `COLUMNS`."""

COLUMNS = [
    ("error_m", float),  # of the position
    ("standard_distance", float),  # from the truth, in standard deviations
    ("sigma_m", float),
    ("state", "U16"),
    ("covered", bool),  # by the map, for the last `AFTER_UNCOVERED` updates
]
Outcome = Mapping[str, Sequence[Trace]]
"""The traces of all trials by what was tried, as `metrics.json` calls it."""


@dataclass(frozen=True)
class Piece:
    """`count` consecutive images of the test drive with this number, from `first` on."""

    drive: int
    first: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.count)


Trial = tuple[Piece, ...]
"""Pieces that are driven one after the other, as if the robot were carried between them."""


def covered_by(training_map: TrainingMap, drives: Sequence[DescribedDrive]) -> Covered:
    truths = (drive.truth for drive in drives if drive.truth is not None)
    return [map_coverage(training_map, truth) >= MIN_COVERAGE for truth in truths]


def joined(drives: Sequence[DescribedDrive], trial: Trial) -> DescribedDrive:
    """Return the pieces of a trial as one drive, whose odometry feels no motion at the seams."""
    parts = [drives[piece.drive].part(piece.rows) for piece in trial]
    stamps, readings = [parts[0].stamps_ns], [_odometry_at_images(parts[0])]
    for part in parts[1:]:
        pause = int(np.median(np.diff(part.stamps_ns)))
        stamps.append(part.stamps_ns - part.stamps_ns[0] + stamps[-1][-1] + pause)
        own = _odometry_at_images(part)
        readings.append(compose(readings[-1][-1], relative(own[0], own)))
    truth = [part.truth for part in parts if part.truth is not None]
    all_stamps = np.concatenate(stamps)
    return DescribedDrive(
        name=parts[0].name,
        condition=parts[0].condition,
        stamps_ns=all_stamps,
        truth=np.concatenate(truth) if len(truth) == len(parts) else None,
        odometry=OdometryLog(all_stamps, np.concatenate(readings)),
        descriptions=tuple(description for part in parts for description in part.descriptions),
        describe_ms=np.concatenate([part.describe_ms for part in parts]),
        camera=parts[0].camera,
        mount=parts[0].mount,
    )


def _odometry_at_images(drive: DescribedDrive) -> Array:
    return interpolate(drive.odometry.stamps_ns, drive.odometry.poses, drive.stamps_ns)


def global_starts(
    drives: Sequence[DescribedDrive], covered: Covered, count: int, images: int, seed: int
) -> list[Trial]:
    """Return starts at random times, `images` long, where the map covers every image."""
    rng = np.random.default_rng((seed, 1))

    def start(number: int) -> Trial | None:
        piece = Piece(number, int(rng.integers(max(len(drives[number]) - images, 1))), images)
        known = len(drives[number]) >= images and covered[number][piece.rows].all()
        return (piece,) if known else None

    none = f"the map covers no {images} consecutive images of the test drives"
    return _drawn(start, len(drives), count, rng, none)


def kidnappings(
    drives: Sequence[DescribedDrive],
    count: int,
    seed: int,
    *,
    before: int,
    after: int,
    covered: Covered,
) -> list[Trial]:
    """Return drives that go on elsewhere, as if the robot was carried with its wheels at rest."""
    rng = np.random.default_rng((seed, 2))

    def kidnapping(number: int) -> Trial | None:
        drive = drives[number]
        if drive.truth is None or len(drive) <= max(before, after):
            return None
        first = Piece(number, int(rng.integers(len(drive) - before)), before)
        then = Piece(number, int(rng.integers(len(drive) - after)), after)
        here = drive.truth[first.first + before - 1, :2]
        carried_m = float(np.hypot(*(drive.truth[then.first, :2] - here)))
        known = covered[number][first.rows].all() and covered[number][then.rows].all()
        return (first, then) if known and carried_m >= MIN_CARRIED_M else None

    none = f"no two pieces of the test drives are {MIN_CARRIED_M} m apart and covered"
    return _drawn(kidnapping, len(drives), count, rng, none)


def _drawn(
    draw: Callable[[int], Trial | None],
    drives: int,
    count: int,
    rng: np.random.Generator,
    none: str,
) -> list[Trial]:
    """Draw so many trials, each on a random drive; raise the error `none` for too few."""
    trials: list[Trial] = []
    for _ in range(MAX_DRAWS):
        if len(trials) == count:
            return trials
        trial = draw(int(rng.integers(drives)))
        if trial is not None:
            trials.append(trial)
    raise KbfError(none)


def whole_drives(drives: Sequence[DescribedDrive]) -> list[Trial]:
    """Return each drive from its beginning to its end, undisturbed."""
    return [(Piece(number, 0, len(drive)),) for number, drive in enumerate(drives)]


@dataclass(frozen=True)
class Scene:
    """A map and the test drives on it; runs batches of trials, in worker processes too."""

    training_map: TrainingMap
    drives: tuple[DescribedDrive, ...]

    @cached_property
    def covered(self) -> Covered:
        return covered_by(self.training_map, self.drives)

    def __call__(self, trials: Sequence[Trial]) -> list[Trace]:
        localizer = Localizer(self.training_map)
        traces = []
        for trial in trials:
            localizer.reset()
            covered = [_persistent(self.covered[piece.drive])[piece.rows] for piece in trial]
            run = replay(joined(self.drives, trial), localizer)
            traces.append(trace_of(run, np.concatenate(covered)))
        return traces


def trace_of(run: Run, covered: Flags) -> Trace:
    """Return what the experiment keeps of a run."""
    trace = np.empty(len(run), COLUMNS)
    trace["error_m"], trace["standard_distance"] = position_errors(run), mahalanobis_errors(run)
    trace["sigma_m"], trace["state"] = position_sigmas(run), run.states
    trace["covered"] = covered
    return trace


def _persistent(covered: Flags) -> Flags:
    """Return where the last `AFTER_UNCOVERED` updates were covered too."""
    padded = np.concatenate((np.ones(AFTER_UNCOVERED, dtype=bool), covered))
    windows = np.lib.stride_tricks.sliding_window_view(padded, AFTER_UNCOVERED + 1)
    return np.asarray(windows.all(axis=1))


World = Mapping[str, Scene]
"""Where drives are tested from end to end: `undisturbed` by day on the cloudy map, and a night
drive on that map and on a map merged with another night's."""


def make_world(
    folder: Path,
    poses: int,
    frames: int,
    test_drives: int,
    size: tuple[int, int],
    *,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> World:
    """Render the drives into `folder` and build the maps: two cloudy drives, and night."""
    conditions = ["cloudy"] * (2 + test_drives) + ["night"] * 2
    how: dict[str, Any] = {"seed": seed, "workers": workers, "progress": progress}
    drives = simulated_drives(folder, conditions, frames=frames, size=size, **how)
    trained, tests, (night_trained, night_test) = drives[:2], drives[2:-2], drives[-2:]
    cloudy = build_map(trained, poses=poses, **how)
    merged = merge_maps([cloudy, build_map([night_trained], poses=poses, like=cloudy, **how)])

    def scene(training_map: TrainingMap, on: list[Drive]) -> Scene:
        describer = training_map.image_describer
        described = [describe_drive(drive, describer, progress=progress) for drive in on]
        return Scene(training_map, tuple(described))

    return {
        "undisturbed": scene(cloudy, tests),
        "night_on_cloudy": scene(cloudy, [night_test]),
        "night_on_merged": scene(merged, [night_test]),
    }


def run_trials(
    world: World, starts: int, seed: int, workers: Workers, progress: Progress = no_progress
) -> Outcome:
    """Run so many global starts, half as many kidnappings, and all test drives end to end."""

    def run(scene: Scene, trials: Sequence[Trial], doing: str) -> list[Trace]:
        batches = [
            trials[first : first + TRIALS_PER_BATCH]
            for first in range(0, len(trials), TRIALS_PER_BATCH)
        ]
        traces: list[Trace] = []
        for part in workers.map(scene, batches):
            traces += part
            progress(len(traces), len(trials), doing)
        return traces

    day = world["undisturbed"]
    begun = global_starts(day.drives, day.covered, starts, START_UPDATES, seed)
    kidnapped = kidnappings(
        day.drives,
        starts // 2,
        seed,
        before=BEFORE_KIDNAPPING,
        after=AFTER_KIDNAPPING,
        covered=day.covered,
    )
    return {
        "global_start": run(day, begun, "global starts"),
        "kidnapping": run(day, kidnapped, "kidnappings"),
        **{
            name: run(scene, whole_drives(scene.drives), f"whole drives, {name.replace('_', ' ')}")
            for name, scene in world.items()
        },
    }


TRIAL_NAMES = {
    "global_start": "global start",
    "kidnapping": "kidnapping",
    "undisturbed": "undisturbed drives",
    "covariance": "covariance, undisturbed",
    "night_on_cloudy": "night on the day map",
    "night_on_merged": "night on the map of both",
}
METRIC_NAMES = {
    "starts": "starts",
    "kidnappings": "kidnappings",
    "updates": "updates",
    "updates_off_the_map": "updates off the map",
    "converged_share": "found after 15 updates, fraction",
    "median_updates": "updates until found, median",
    "detected_share": "lost noticed after 15 updates, fraction",
    "recovered_share": "found again after 30 updates, fraction",
    "median_updates_to_detect": "updates until lost is noticed, median",
    "median_updates_to_recover": "updates until found again, median",
    "false_lost": "lost without a cause, times",
    "share_tracking_off_the_map": "tracking off the map, fraction",
    "within_three_sigma_share": "within 3 σ, fraction",
    "median_sigma_m": "σ, median (m)",
    "position_rmse_m": "position error, RMSE (m)",
    "position_median_m": "position error, median (m)",
    "share_beyond_1m": "beyond 1 m, fraction",
    "share_tracking": "tracking, fraction",
}
"""What the trials and the metrics are called in the table."""


def experiment_result(outcome: Outcome) -> ExperimentResult:
    """Return the table, a row of `updates.csv` for each update, and errors over updates."""
    metrics = metrics_of(outcome)
    rows = [
        (TRIAL_NAMES[group], METRIC_NAMES[name], figure)
        for group, values in metrics.items()
        for name, figure in values.items()
    ]
    title = "Global localization and relocalization"
    table = Table(f"{title} in a simulated office", ("Trial", "Metric", "Value"), rows)
    updates = (
        (group, trial, update, error, sigma, state)
        for group, traces in outcome.items()
        for trial, trace in enumerate(traces)
        for update, (error, _, sigma, state, _) in enumerate(trace.tolist())
    )
    header = ("group", "trial", "update", "position_error_m", "sigma_m", "state")
    caption = "Errors after global starts and after kidnappings, every trial"
    return ExperimentResult(
        title,
        metrics,
        tables=[table],
        csv={"updates.csv": (header, updates)},
        plots={"recovery.png": (_draw(outcome["global_start"], outcome["kidnapping"]), caption)},
    )


def metrics_of(outcome: Outcome) -> dict[str, Any]:
    """Return the metrics of `metrics.json`."""
    found = [_first(trace["error_m"] <= MAX_FOUND_ERROR_M) for trace in outcome["global_start"]]
    after = slice(BEFORE_KIDNAPPING, None)
    detected = [_first((trace["state"] == "lost")[after], 1) for trace in outcome["kidnapping"]]
    recovered = [
        _first(trace["error_m"][after] <= MAX_FOUND_ERROR_M) for trace in outcome["kidnapping"]
    ]
    whole = np.concatenate(outcome["undisturbed"])
    day = whole[whole["covered"]]
    return {
        "global_start": {
            "starts": len(found),
            "converged_share": _fraction(found, 15),
            "median_updates": float(np.median(found)),
        },
        "kidnapping": {
            "kidnappings": len(detected),
            "detected_share": _fraction(detected, 15),
            "recovered_share": _fraction(recovered, 30),
            "median_updates_to_detect": float(np.median(detected)),
            "median_updates_to_recover": float(np.median(recovered)),
        },
        "undisturbed": {
            "updates": len(day),
            "false_lost": sum(_times_lost(trace) for trace in outcome["undisturbed"]),
            "updates_off_the_map": int((~whole["covered"]).sum()),
            "share_tracking_off_the_map": _fraction_tracking(whole[~whole["covered"]]),
        },
        "covariance": {
            "within_three_sigma_share": float((day["standard_distance"] <= 3.0).mean()),
            "median_sigma_m": float(np.median(day["sigma_m"])),
            "position_rmse_m": float(np.sqrt((day["error_m"] ** 2).mean())),
        },
        "night_on_cloudy": _lighting(np.concatenate(outcome["night_on_cloudy"])),
        "night_on_merged": _lighting(np.concatenate(outcome["night_on_merged"])),
    }


def _fraction_tracking(trace: Trace) -> float | None:
    """Return the mean, None where there are no updates."""
    return float((trace["state"] == "tracking").mean()) if len(trace) else None


def _lighting(trace: Trace) -> dict[str, float | None]:
    """Return how drives in another light went."""
    return {
        "position_rmse_m": float(np.sqrt((trace["error_m"] ** 2).mean())),
        "position_median_m": float(np.median(trace["error_m"])),
        "share_beyond_1m": float((trace["error_m"] > 1.0).mean()),
        "share_tracking": _fraction_tracking(trace),
    }


def _first(happened: Flags, count: int = 3) -> float:
    """Return after how many updates `count` in a row first had it; infinity for never."""
    stays = np.lib.stride_tricks.sliding_window_view(happened, count).all(axis=1)
    return float(np.argmax(stays)) + 1.0 if stays.any() else float("inf")


def _times_lost(trace: Trace) -> int:
    """Return how often "lost" was newly reported where the map covers the drive."""
    lost = trace["state"] == "lost"
    newly_lost = lost & ~np.concatenate(([False], lost[:-1]))
    return int((newly_lost & trace["covered"]).sum())


def _fraction(updates: Sequence[float], at_most: int) -> float:
    return float((np.array(updates) <= at_most).mean())


def _draw(starts: Sequence[Trace], kidnapped: Sequence[Trace]) -> Figure:
    """Draw the error over the updates of every trial, and the fraction of robots in state lost."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_errors(left, starts, 0)
    left.set(title=f"{len(starts)} global starts", xlabel="updates since the start")
    _draw_errors(right, kidnapped, -BEFORE_KIDNAPPING)
    right.set(
        title=f"{len(kidnapped)} kidnappings", xlabel="updates since the robot was carried off"
    )
    lost = np.mean([trace["state"] == "lost" for trace in kidnapped], axis=0)
    lost_axes = right.twinx()
    lost_axes.plot(np.arange(len(lost)) - BEFORE_KIDNAPPING, lost, color=COLOURS[1], linewidth=2)
    lost_axes.set(ylim=(0.0, 1.05))
    lost_axes.set_ylabel("fraction in state lost", color=COLOURS[1])
    return figure


def _draw_errors(axes: Axes, traces: Sequence[Trace], first: int) -> None:
    updates = np.arange(len(traces[0])) + first
    errors = np.array([trace["error_m"] for trace in traces])
    axes.plot(updates, errors.T, color=COLOURS[5], alpha=0.25, linewidth=0.7)
    axes.plot(updates, np.median(errors, axis=0), color=COLOURS[0], label="median")
    axes.axhline(MAX_FOUND_ERROR_M, color="0.4", linestyle="--", label=f"{MAX_FOUND_ERROR_M} m")
    axes.set(yscale="log", ylabel="error of the position, m")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)
