"""Section 6.3 of the paper: the error of robot localization against the size of the map.

Its drives are real archives, real paths rendered, or invented.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.cold import ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.open import open_drive
from kbf_localization.errors import DatasetError
from kbf_localization.evaluation.cross_validation import Tuned, tune
from kbf_localization.evaluation.frame_pool import FramePool, describe_drives
from kbf_localization.evaluation.metrics import position_errors, trajectory_metrics
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import (
    Trial,
    draw_curve,
    draw_sizes,
    plus_minus,
    raw_data,
    summaries,
)
from kbf_localization.filters.methods import METHODS, TITLES
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization.localizer import Localizer
from kbf_localization.motion.odometry_model import maximum_likelihood_noise, noise_between
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.simulated_drives import simulate, simulate_along

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PAPERS_SEQUENCES = ("seq1_cloudy1", "seq1_cloudy2", "seq1_cloudy3")
TRAINING_PATH, TEST_PATH = "seq2_cloudy1", "seq1_cloudy1"
INVENTED_FRAMES = 1000


@dataclass(frozen=True)
class Fold:
    """Drives to train on and one to test on."""

    training: tuple[Drive, ...]
    test: Drive

    def describe(
        self, seed: int, workers: Workers, progress: Progress, landmarks: bool = True
    ) -> FramePool:
        """Return all frames, the test's last, with words of the training drives alone."""
        return describe_drives(
            self.training,
            [self.test],
            seed=seed,
            landmarks=landmarks,
            workers=workers,
            progress=progress,
        )


@dataclass(frozen=True)
class Setup:
    """What the experiment runs on, in words, and its folds."""

    description: str
    folds: tuple[Fold, ...]


def simulated_drives(folder: Path, conditions: Sequence[str], **how: Any) -> list[Drive]:
    """Render drives through an invented office, one in each of these lights, as `simulate` does.

    Drives that are in `folder` from an earlier run are used again.
    """
    paths = [folder / f"seq1_{light}{number}" for number, light in enumerate(conditions, start=1)]
    if not all(path.is_dir() for path in paths):
        paths = simulate(folder, runs=len(conditions), condition=conditions, **how)
    return [open_drive(path) for path in paths]


def real_archives(folder: Path, unpack_to: Path) -> Setup:
    """Return the paper's protocol: Saarbrücken part A, seq1_cloudy 1–3, each tested in turn.

    `folder` holds the sequences unpacked or as `.tar` files, at any depth; archives are unpacked
    into `unpack_to`.
    """
    drives = [ColdDrive(_find(folder, name, unpack_to)) for name in PAPERS_SEQUENCES]
    folds = tuple(
        Fold(tuple(other for other in drives if other is not test), test) for test in drives
    )
    return Setup(f"real images and odometry of {', '.join(PAPERS_SEQUENCES)} in {folder}", folds)


def rendered_drives(
    folder: Path,
    trajectories: Path | None,
    size: tuple[int, int],
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Setup:
    """Return rendered images of the office of `seed`.

    Along the real Saarbrücken paths in `trajectories`
    or, without that folder, along an invented one. Drives of that office that are in `folder` from
    an earlier run are used again.
    """
    folder = folder / f"office{seed}"
    render: Callable[..., object]
    if trajectories is None:
        words = "invented path, rendered images"
        names = PAPERS_SEQUENCES
        render = partial(simulate, folder, runs=3, frames=INVENTED_FRAMES)
    else:
        words = (
            f"real trajectories {TRAINING_PATH} (train) and {TEST_PATH} (test), a further drive "
            "simulated along the first (train), rendered images, simulated odometry"
        )
        names = (TRAINING_PATH, "further_cloudy1", TEST_PATH)
        render = partial(simulate_along, folder, real_paths(trajectories), extra_drives=1)
    if not all((folder / name).is_dir() for name in names):
        render(size=size, seed=seed, workers=workers, progress=progress)
    first, second, test = (ColdDrive(folder / name) for name in names)
    return Setup(words, (Fold((first, second), test),))


def rendered_offices(
    folder: Path,
    trajectories: Path | None,
    size: tuple[int, int],
    seed: int,
    count: int,
    workers: Workers,
    progress: Progress,
) -> dict[int, Setup]:
    """Render the drives of `count` offices of consecutive seeds; return them by seed."""
    return {
        number: rendered_drives(folder, trajectories, size, number, workers, progress)
        for number in range(seed, seed + count)
    }


def real_paths(folder: Path) -> tuple[Path, Path]:
    """Return the sequences of the training and the test path, at any depth of `folder`."""

    def sequence(name: str) -> Path:
        lists = sorted(folder.rglob(f"{name}/localization/places.lst"), key=_saarbruecken_first)
        if not lists:
            raise DatasetError(
                f"{folder}: has no {name}/localization/places.lst, which is in the archive "
                f"{name}.tar of COLD's Saarbrücken (docs/cold.md)"
            )
        return lists[0].parents[1]

    return sequence(TRAINING_PATH), sequence(TEST_PATH)


def _saarbruecken_first(path: Path) -> bool:
    """Return a key to sort by: Freiburg and Ljubljana have sequences of the same names."""
    return "saarbruecken" not in str(path)


def _find(folder: Path, name: str, unpack_to: Path) -> Path:
    """Return the folder of a sequence, unpacked from its archive where it is only there as one."""
    folders = (path for path in folder.rglob(name) if (path / "std_cam").is_dir())
    unpacked = sorted(folders, key=_saarbruecken_first)
    archives = sorted(folder.rglob(f"{name}.tar"), key=_saarbruecken_first)
    if unpacked:
        return unpacked[0]
    if not archives:
        raise DatasetError(
            f"{folder}: has neither a folder {name} nor {name}.tar; unpack COLD's Saarbrücken "
            "part A archives there"
        )
    target = unpack_to / name
    try:
        # COLD's archives are not compressed: what is unpacked is no larger than the archive.
        with tarfile.open(archives[0], "r:") as archive:
            archive.extractall(target, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise DatasetError(f"{archives[0]}: cannot be unpacked: {error}") from error
    inside = sorted(path.parent for path in target.rglob("std_cam"))
    if not inside:
        raise DatasetError(f"{archives[0]}: has no folder std_cam; is it a COLD sequence?")
    return inside[0]


DEFAULT_METHODS = "kbf,paper,fkbf,nn,nai,kmcf"
"""The default filter, Algorithm 1, and what the paper compares it with."""

UNTUNED = {f"{method}_untuned": method for method in ("kbf", "paper", "paper-iw")}
"""Methods that also run with their defaults."""

END_FRAMES = 100
"""The last images of a test drive, in which a method that has lost itself for good is wrong."""

METRICS = (
    "position_rmse_m",
    "position_median_m",
    "share_beyond_1m",
    "end_beyond_1m",
    "share_confident_wrong",
    "share_tracking",
    "within_three_sigma_share",
    "nees_mean",
    "highest_weight_rmse_m",
    "highest_weight_median_m",
)


Tunings = Mapping[str, Mapping[int, Mapping[str, Tuned]]]
"""What was tuned, by the test drive's name, the map's size and the method."""

NOISES = {
    "maximum_likelihood": ("by maximum likelihood, as in the paper", maximum_likelihood_noise),
    "robust": ("robust, as in maps", noise_between),
}
"""Estimates of the motion noise, with their titles."""

Noises = Mapping[str, Mapping[str, Array]]
"""Variances (4,) of the motion noise, by the test drive's name and the estimate."""

WITHOUT_LANDMARKS = frozenset(METHODS) - {"kbf"}
"""Methods that use none: where only these run, maps are made without, and much sooner."""


@dataclass(frozen=True)
class Outcome:
    """Every trial, what was tuned, and the motion noise of the training drives."""

    trials: Sequence[Trial]
    tunings: Tunings
    noises: Noises


def run_trials(
    setup: Setup,
    *,
    trials: int,
    sizes: Sequence[int],
    methods: Sequence[str],
    budget: int,
    tune_at: int | None,
    seed: int,
    journals: Path,
    workers: Workers,
    progress: Progress = no_progress,
) -> Outcome:
    """Run all methods, tuned on the training drives alone, on `trials` random choices of poses.

    They are tuned at each size, or once, with `tune_at` poses: the parameters have no scale.
    """
    results: list[Trial] = []
    tuned: dict[str, dict[int, Mapping[str, Tuned]]] = {}
    noises: dict[str, Mapping[str, Array]] = {}
    landmarks = not WITHOUT_LANDMARKS.issuperset(methods)
    for fold in setup.folds:
        pool = fold.describe(seed, workers, progress, landmarks)
        drives = list(range(len(fold.training)))
        noises[fold.test.name] = _motion_noises(pool, len(drives))
        own = tuned[fold.test.name] = {}
        for poses in sizes:
            if tune_at is None or not own:
                found = tune(
                    pool,
                    drives,
                    methods,
                    tune_at or poses,
                    budget=budget,
                    seed=seed,
                    journal=journals / f"{fold.test.name}.jsonl",
                    workers=workers,
                    progress=progress,
                )
            own[poses] = found
            task = partial(_test, pool, len(drives), fold.test.name, seed, found)
            items = [
                (method, poses, choice)
                for choice in range(trials)
                for method in (
                    *methods,
                    *(name for name, item in UNTUNED.items() if item in methods),
                )
            ]
            doing = f"testing on {fold.test.name} at {poses} poses"
            results += tracked(workers.map(task, items), doing, progress, len(items))
    return Outcome(results, tuned, noises)


def _motion_noises(pool: FramePool, training_drives: int) -> dict[str, Array]:
    """Return each estimate of the motion noise on all frames of the training drives."""
    rows = np.flatnonzero(pool.frames.drive_of < training_drives)
    steps = pool.frames.part(rows)
    return {
        name: estimate(steps.poses, steps.motions, steps.next_poses)
        for name, (_, estimate) in NOISES.items()
    }


def _test(
    pool: FramePool,
    training_drives: int,
    fold: str,
    seed: int,
    tuned: Mapping[str, Tuned],
    item: tuple[str, int, int],
) -> Trial:
    """Run one method over the test drive on one random map of so many poses."""
    name, poses, choice = item
    method = UNTUNED.get(name, name)
    parameters = {} if name in UNTUNED else tuned[method].parameters
    stored = {f"{method}.{key}": parameter for key, parameter in parameters.items()}
    chosen = pool.random_map(range(training_drives), poses, seed + 100_000 + choice, stored)
    pose_filter = make_filter(method, chosen, seed=seed + choice)
    run = replay(pool.drive(training_drives), Localizer(chosen, pose_filter), method)
    assert run.truth is not None and run.highest_weight is not None
    heaviest = np.linalg.norm((run.highest_weight - run.truth)[:, :2], axis=1)
    metrics = {
        **trajectory_metrics(run),
        "end_beyond_1m": float(np.mean(position_errors(run)[-END_FRAMES:] > 1.0)),
        "highest_weight_rmse_m": float(np.sqrt(np.mean(heaviest**2))),
        "highest_weight_median_m": float(np.median(heaviest)),
    }
    return Trial(fold, poses, name, choice, metrics)


def experiment_result(outcome: Outcome, data: str) -> ExperimentResult:
    """Return errors against the map's size, every trial, and what was tuned, on such `data`."""
    metrics = summaries(outcome.trials, METRICS)
    rows = [
        (
            f"n = {size}, {_title(method)}",
            plus_minus(values["position_rmse_m"], 2),
            plus_minus(values["position_median_m"], 2),
            f"{100 * values['share_beyond_1m']['mean']:.1f} %",
            f"{100 * values['end_beyond_1m']['mean']:.0f} %",
            plus_minus(values["highest_weight_rmse_m"], 2),
        )
        for size, by_method in metrics.items()
        for method, values in by_method.items()
    ]
    columns = (
        "Map and method",
        "RMSE [m]",
        "Median [m]",
        "Beyond 1 m",
        "At the end",
        "RMSE, highest weight",
    )
    of = {"test_drive": "place", "poses": "poses", "method": "method", "choice": "choice"}
    tuned = (
        (fold, poses, method, found.rmse_m, name, value)
        for fold, by_size in outcome.tunings.items()
        for poses, by_method in by_size.items()
        for method, found in by_method.items()
        for name, value in (*found.parameters.items(), ("defaults_rmse_m", found.default_rmse_m))
    )
    header = ("test_drive", "poses", "method", "cross_validated_rmse_m", "parameter", "value")
    caption = f"Errors against the number of training poses; {data}"
    return ExperimentResult(
        "Robot localization",
        metrics,
        tables=[
            Table("Robot localization, mean ± std over choices of poses", columns, rows),
            _noise_table(outcome.noises),
        ],
        csv={
            "localization.csv": raw_data(outcome.trials, of, METRICS),
            "tuned.csv": (header, tuned),
        },
        plots={"localization.png": (_draw(metrics), caption)},
    )


def _title(method: str) -> str:
    if method in UNTUNED:
        return f"{TITLES[UNTUNED[method]]}, not tuned"
    return TITLES.get(method, method)


def _noise_table(noises: Noises) -> Table:
    rows = [
        (f"{fold}: {NOISES[name][0]}", *(f"{sigma:.2g}" for sigma in np.sqrt(variances)))
        for fold, by_name in noises.items()
        for name, variances in by_name.items()
    ]
    columns = ("Test drive and estimate", "σ_x [m]", "σ_y [m]", "σ_c", "σ_s")
    return Table("Motion noise of one step, from the training drives", columns, rows)


def _draw(metrics: Mapping[str, Any]) -> Figure:
    """Return the paper's figure: a curve for each method over the number of poses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    methods = [name for name in next(iter(metrics.values())) if name not in UNTUNED]
    labels = {"position_rmse_m": "RMSE of the position [m]", "position_median_m": "Median [m]"}
    for axes, (key, label) in zip(panels, labels.items(), strict=True):
        for index, method in enumerate(methods):
            values = {size: by_method[method][key] for size, by_method in metrics.items()}
            draw_curve(axes, _title(method), values, index)
        draw_sizes(axes, metrics, "Training poses n")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
    panels[1].legend(fontsize="small")
    return figure
