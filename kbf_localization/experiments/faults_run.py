"""The fault experiment: build the maps, run the faults, measure detection and recovery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.open import open_drive
from kbf_localization.evaluation.described_drive import describe_drive
from kbf_localization.evaluation.frame_pool import describe_drives
from kbf_localization.evaluation.map_plot import COLOURS
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import GROSS_ERROR_M, Run, replay
from kbf_localization.experiments.faults import FAULT_TITLES, Building, Case, all_faults
from kbf_localization.experiments.localization import real_paths, simulated_drives
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import raw_data
from kbf_localization.geometry import compose, relative
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.simulated_drives import simulate_along

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TRAINING_DRIVES = 2
KINDS = {
    "training": ("cloudy", 0.0),
    "tests": ("cloudy", 0.0),
    "night": ("night", 0.0),
    "turned_20_degrees": ("cloudy", np.radians(20.0)),
}
"""The kinds of drives: their light, and by how much the camera is turned."""

METRICS = (
    "confident_wrong_share",
    "seconds_to_lost",
    "seconds_to_recover",
    "false_lost",
    "tracking_share",
    "disturbed_rmse_m",
    "dead_reckoned_rmse_m",
)


@dataclass(frozen=True)
class Builder:
    """Renders buildings and makes their maps, of `poses` poses; images are `size` pixels large.

    There are `drives` of each kind but the training drives.
    """

    poses: int
    size: tuple[int, int]
    workers: Workers
    progress: Progress = no_progress
    drives: int = 2

    def invented(self, folder: Path, seed: int, frames: int) -> Building:
        """Render the invented office of `seed` into `folder`, or use what is there."""
        kinds = [how for kind, how in KINDS.items() for _ in range(self._count(kind))]
        conditions, turned = zip(*kinds, strict=True)
        drives = iter(
            simulated_drives(
                folder, conditions, camera_turned_rad=turned, frames=frames, **self._how(seed)
            )
        )
        parts = [[*islice(drives, self._count(kind))] for kind in KINDS]
        return self._building(f"office {seed}", parts, seed)

    def round_path(self, folder: Path, trajectories: Path, seed: int) -> Building:
        """Render the office of `seed` round the real paths in `trajectories` into `folder`."""
        trained, tested = real_paths(trajectories)
        parts = []
        for kind, (condition, turned_rad) in KINDS.items():
            path, other = (trained, tested) if kind == "training" else (tested, trained)
            paths = simulate_along(
                folder / kind,
                [path],
                office_from=[other],
                extra_drives=self._count(kind) - 1,
                condition=condition,
                camera_turned_rad=turned_rad,
                **self._how(seed),
            )
            parts.append([open_drive(path) for path in paths])
        return self._building(f"real path, office {seed}", parts, seed)

    def _count(self, kind: str) -> int:
        """Return how many drives of this kind there are."""
        return TRAINING_DRIVES if kind == "training" else self.drives

    def _how(self, seed: int) -> dict[str, Any]:
        return {
            "seed": seed,
            "size": self.size,
            "workers": self.workers,
            "progress": self.progress,
        }

    def _building(self, name: str, parts: Sequence[Sequence[Drive]], seed: int) -> Building:
        training, tests, by_night, camera_turned = (tuple(part) for part in parts)
        pool = describe_drives(training, seed=seed, workers=self.workers, progress=self.progress)
        self.progress(0, 1, f"learning the map of {name}")
        rows = np.arange(len(pool.frames.poses))
        training_map = pool.map_of(rows, self.poses, "coverage", seed)
        describer = training_map.image_describer
        return Building(
            name=name,
            pool=pool,
            poses=self.poses,
            seed=seed,
            training_map=training_map,
            tests=tests,
            described=tuple(
                describe_drive(drive, describer, progress=self.progress) for drive in tests
            ),
            further={"night": by_night, "turned_20_degrees": camera_turned},
        )


@dataclass(frozen=True)
class Outcome:
    """One case of a fault in a building. A figure is None where it does not apply."""

    fault: str
    building: str
    case: int
    metrics: Mapping[str, float | None]


def run_faults(
    buildings: Sequence[Building],
    names: Sequence[str],
    kidnappings: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> Iterator[Outcome]:
    """Yield all cases of these faults as they are done; spread `kidnappings` over the buildings."""
    task = partial(_run, tuple(buildings), -(-kidnappings // len(buildings)))
    items = [(name, number) for name in names for number in range(len(buildings))]
    for outcomes in tracked(workers.map(task, items), "faults", progress, len(items)):
        yield from outcomes


def _run(
    buildings: Sequence[Building], kidnappings_each: int, item: tuple[str, int]
) -> list[Outcome]:
    """Run the default filter over all cases of a fault in a building, from an unknown pose."""
    name, number = item
    here, there = buildings[number], buildings[(number + 1) % len(buildings)]
    outcomes = []
    for k, case in enumerate(all_faults(kidnappings_each)[name](here, there)):
        run = replay(case.drive, Localizer(case.training_map))
        outcomes.append(Outcome(name, here.name, k, score(run, case)))
    return outcomes


def score(run: Run, case: Case) -> dict[str, float | None]:
    """Return the metrics of one run.

    Fractions are over the images since the fault began. *Lost* is timed from there, or from the
    first *tracking* after it where that came later; recovery, *tracking* within a metre of the
    truth, from the fault's end; a recovery that never came counts as the rest of the drive. *Lost*
    is false where the pose was right and the fault was over or not yet begun, or never ends. A
    fault that begins later has the position's RMSE meanwhile, beside that of odometry alone.
    """
    # Images without an estimate are not in the run: its stamps say which are.
    rows = np.searchsorted(case.drive.stamps_ns, run.stamps_ns)
    disturbed = case.disturbed[rows]
    seconds = (run.stamps_ns - run.stamps_ns[0]) * 1e-9
    tracking = np.array([state == "tracking" for state in run.states])
    lost = np.array([state == "lost" for state in run.states])
    right = position_errors(run) <= GROSS_ERROR_M
    if case.no_pose_is_right:
        right[:] = False
    begin, last = int(np.argmax(disturbed)), len(run) - 1 - int(np.argmax(disturbed[::-1]))
    since = slice(begin, None)
    ends = last + 1 < len(run)
    sure = np.flatnonzero(tracking[max(begin - 1, 0) :])
    to_lost = None
    if len(sure):
        start = max(begin, max(begin - 1, 0) + int(sure[0]))
        noted = np.flatnonzero(lost[start:])
        to_lost = float(seconds[start + noted[0]] - seconds[start]) if len(noted) else None
    to_recover = None
    if ends:
        back = np.flatnonzero((tracking & right)[last:])
        # A fault that is over at once, a kidnapping, is timed from its own image.
        first = last if begin == last else last + 1
        found = seconds[last + back[0]] if len(back) else seconds[-1]
        to_recover = float(max(found - seconds[first], 0.0))
    tracked = tracking | np.array([state == "degraded" for state in run.states])
    estimated, reckoned = _disturbed_rmse(run, slice(begin, last + 1))
    newly_lost = lost & np.concatenate(([False], tracked[:-1]))
    counted = ~disturbed if ends else np.ones(len(run), dtype=bool)
    return {
        "confident_wrong_share": float(np.mean((tracking & ~right)[since])),
        "seconds_to_lost": to_lost,
        "seconds_to_recover": to_recover,
        "false_lost": float((newly_lost & right & counted).sum()),
        "tracking_share": float(np.mean(tracking[since])),
        "disturbed_rmse_m": estimated if begin and not case.no_pose_is_right else None,
        "dead_reckoned_rmse_m": reckoned if begin and not case.no_pose_is_right else None,
    }


def _disturbed_rmse(run: Run, disturbed: slice) -> tuple[float, float]:
    """Return the position's RMSE during a fault, of the estimates and of odometry since before."""
    assert run.truth is not None and run.odometry is not None
    start = max(disturbed.start - 1, 0)
    moved = relative(run.odometry[start], run.odometry[disturbed])
    reckoned = compose(np.broadcast_to(run.estimates[start], moved.shape), moved)
    truth = run.truth[disturbed, :2]

    def rmse(poses: Array) -> float:
        return float(np.sqrt(np.mean(np.sum((poses[:, :2] - truth) ** 2, axis=1))))

    return rmse(run.estimates[disturbed]), rmse(reckoned)


def experiment_result(outcomes: Sequence[Outcome], buildings: int) -> ExperimentResult:
    """Return the table, every run, and a plot of what each fault does."""
    metrics = metrics_of(outcomes)

    def cell(figure: Mapping[str, float | None], scale: float = 1.0) -> str:
        mean, std, worst = (figure[key] for key in ("mean", "std", "worst"))
        if mean is None or std is None or worst is None:
            return "–"
        return f"{scale * mean:.1f} ± {scale * std:.1f}, {scale * worst:.1f}"

    rows = [
        (
            FAULT_TITLES[fault],
            cell(values["confident_wrong_share"], 100.0),
            cell(values["seconds_to_lost"]),
            cell(values["seconds_to_recover"]),
            cell(values["false_lost"]),
            cell(values["tracking_share"], 100.0),
            cell(values["disturbed_rmse_m"]),
            cell(values["dead_reckoned_rmse_m"]),
        )
        for fault, values in metrics.items()
    ]
    columns = (
        *("Fault", "Confident and wrong [%]", "Until lost [s]", "To recover [s]"),
        *("False lost", "Tracking [%]", "RMSE meanwhile [m]", "By odometry [m]"),
    )
    title = f"Faults in {buildings} simulated buildings: mean ± std, worst run"
    of = {"fault": "fault", "building": "building", "run": "case"}
    return ExperimentResult(
        "Faults",
        metrics,
        tables=[Table(title, columns, rows)],
        csv={"faults.csv": raw_data(outcomes, of, METRICS)},
        plots={"faults.png": (_draw(metrics), "States since the fault began, means over all runs")},
    )


def metrics_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return {"<fault>": {metric: {"mean", "std", "worst"}}}, None where it never applied."""
    metrics: dict[str, dict[str, dict[str, float | None]]] = {}
    for fault in dict.fromkeys(outcome.fault for outcome in outcomes):
        own = [outcome.metrics for outcome in outcomes if outcome.fault == fault]
        metrics[fault] = {
            name: _summary(name, [values[name] for values in own]) for name in METRICS
        }
    return metrics


def _summary(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = np.array([value for value in values if value is not None])
    if len(known) == 0:
        return {"mean": None, "std": None, "worst": None}
    worst = known.min() if name == "tracking_share" else known.max()
    return {"mean": float(known.mean()), "std": float(known.std()), "worst": float(worst)}


def _draw(metrics: Mapping[str, Any]) -> Figure:
    """Draw the fractions of images tracked rightly, and tracked with a gross error."""
    from matplotlib.figure import Figure

    names = list(metrics)
    places = np.arange(len(names))
    figure = Figure(figsize=(8.5, 1.2 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()

    def fractions(figure_name: str, kind: str) -> Array:
        return np.array([100.0 * metrics[name][figure_name][kind] for name in names])

    tracking, wrong = (
        fractions(key, "mean") for key in ("tracking_share", "confident_wrong_share")
    )
    axes.barh(places, tracking - wrong, color=COLOURS[5], label="tracking, within 1 m")
    axes.barh(places, wrong, left=tracking - wrong, color=COLOURS[1], label="tracking, beyond 1 m")
    axes.plot(
        fractions("confident_wrong_share", "worst"),
        places,
        "x",
        color="black",
        label="beyond 1 m, worst run",
    )
    axes.set_yticks(places, [FAULT_TITLES[name] for name in names])
    axes.set(xlabel="fraction of the images since the fault began [%]", xlim=(0.0, 100.0))
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
    return figure
