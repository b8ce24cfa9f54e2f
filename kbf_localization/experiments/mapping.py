"""How well maps are made: poses without a laser, and what a check of a map predicts.

Poses are estimated from wheel odometry and images, in several offices. For the predictions, holes
are cut into maps of two drives through simulated offices: the drives went there, but the map has
none of their images. What the check predicts is compared with what a third drive, which the map
does not know, meets on the map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.datasets.drive import Drive
from kbf_localization.datasets.open import open_drive
from kbf_localization.datasets.parts import DrivePart, Part
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.evaluate import (
    evaluate_drives,
    in_map_frame,
    metrics_by_method,
    relative_metrics,
)
from kbf_localization.evaluation.frame_pool import FramePool, map_coverage
from kbf_localization.evaluation.map_check.check import MapCheck, check_map
from kbf_localization.evaluation.map_check.held_out import MIN_COVERAGE, fix_from
from kbf_localization.evaluation.mapping_metrics import mapping_metrics
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.localization import Setup
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.localization import Localizer
from kbf_localization.mapping import build_map
from kbf_localization.mapping.poses import with_poses
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.simulator.simulated_drives import simulate, simulate_along
from kbf_localization.training_map import TrainingMap

KEYS = (
    "raw_ate_rmse_m",
    "ate_rmse_m",
    "ate_max_m",
    "raw_relative_2m_rmse_m",
    "relative_2m_rmse_m",
    "closures",
    "closures_wrong",
    "nees_mean",
    "cpu_s",
)
COLUMNS = (
    "Office, drives",
    "Raw, m",
    "RMSE, m",
    "Max, m",
    "Raw over 2 m",
    "Over 2 m",
    "Closures",
    "Wrong",
    "NEES (2 is right)",
    "CPU, s",
    "Third drive, relative to the map, m",
    "Third drive, absolute, m",
    "Used",
)
LOCALIZATION_KEYS = ("relative_to_map_median_m", "position_median_m")
MAP_POSES = 500


@dataclass(frozen=True)
class Settings:
    """What is driven: numbers of `drives`, images of each, and their size.

    On each map `localized` images of a further drive are localized, none with 0.
    """

    drives: Sequence[int]
    frames: int
    size: tuple[int, int]
    localized: int


def run_buildings(
    folder: Path,
    buildings: int,
    seed: int,
    settings: Settings,
    workers: Workers,
    progress: Progress,
    path: Path | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the keys of `mapping.json` by office and by the number of drives.

    With `path`, a real drive's places.lst, the drives follow perturbed versions of it in an office
    that is built round it.
    """
    found: dict[str, dict[str, Any]] = {}
    for building in range(seed, seed + buildings):
        place = folder / f"office{building}"
        if not place.is_dir():
            runs = max(settings.drives) + 1
            how: dict[str, Any] = {"seed": building, "frames": settings.frames}
            how |= {"size": settings.size, "workers": workers, "progress": progress}
            if path is None:
                simulate(place, runs=runs, **how)
            else:
                simulate_along(place, [path], extra_drives=runs - 1, **how)
        paths = sorted(path for path in place.iterdir() if path.is_dir())
        opened = [open_drive(path) for path in paths]
        by_count: dict[str, Any] = {}
        for count in settings.drives:
            source = with_poses(opened[:count], "odometry", workers=workers, progress=progress)
            assert source.estimates is not None
            metrics = mapping_metrics(opened[:count], source.estimates)
            if settings.localized:
                training_map = source.annotated(
                    build_map(
                        source.drives,
                        poses=MAP_POSES,
                        poses_from="given",
                        workers=workers,
                        progress=progress,
                    )
                )
                metrics["localization"] = _localization(
                    training_map, opened[-1], settings.localized, progress
                )
            by_count[str(count)] = metrics
        found[str(building)] = by_count
    return found


def _localization(
    training_map: TrainingMap, drive: Drive, images: int, progress: Progress
) -> dict[str, float]:
    """Return the errors of the first images of a drive that the map does not know."""
    part = DrivePart(drive, Part(f"first {images}", last=min(images / len(drive), 1.0)))
    results = evaluate_drives([part], training_map, ["kbf"], progress=progress)
    relative = relative_metrics(results, training_map)["kbf"]
    aligned, _ = in_map_frame(results, training_map)
    metrics = metrics_by_method(aligned)["kbf"]
    return {**relative, "position_median_m": metrics["position_median_m"]}


def findings(found: dict[str, dict[str, Any]]) -> ExperimentResult:
    """Return the table of mapping errors, and the same as CSV."""
    rows = [
        (
            f"{building}, {count}",
            *(metrics.get(key) for key in KEYS),
            *(metrics.get("localization", {}).get(key) for key in LOCALIZATION_KEYS),
            metrics["used"].replace("_", " "),
        )
        for building, by_count in found.items()
        for count, metrics in by_count.items()
    ]
    return ExperimentResult(
        title="Maps without a laser",
        metrics=found,
        tables=[Table("Poses from wheel odometry and images", COLUMNS, rows)],
        csv={"mapping.csv": (("office_drives", *KEYS, *LOCALIZATION_KEYS, "used"), rows)},
    )


HOLES, HOLE_RADIUS_M = 2, 3.0
EVERY, IMAGES = 10, 40
"""The later drive is restarted at every tenth image, and has 40 images to find its pose."""


@dataclass(frozen=True)
class Prediction:
    """What a check `of` a map expected in an office, and what the later drive met.

    Of so many `starts`, `named` are those most of whose images were taken on stretches that the
    check names, looking where it says that the map has no image; `failed` found no pose or a
    wrong one; `both` are both. `expected_m` is the check's median error, `measured_m` the drive's,
    where the map has images.
    """

    office: int
    of: str
    starts: int
    named: int
    failed: int
    both: int
    expected_m: float
    measured_m: float

    @property
    def factor(self) -> float:
        """How far the expected error is off, as a ratio of at least 1."""
        ratio = self.expected_m / self.measured_m
        return max(ratio, 1.0 / ratio)


def predict(
    setups: Mapping[int, Setup], poses: int, workers: Workers, progress: Progress = no_progress
) -> list[Prediction]:
    """Return two predictions for each office, by its seed: with the map's drives, and without.

    Each has a fold of the map's two drives and a later drive.
    """
    offices = [
        (seed, fold.describe(seed, workers, progress))
        for seed, setup in setups.items()
        for fold in setup.folds
    ]
    found = workers.map(partial(_predictions, poses), offices)
    done = tracked(found, "checking maps with holes", progress, len(offices))
    return [prediction for some in done for prediction in some]


def _predictions(poses: int, office: tuple[int, FramePool]) -> list[Prediction]:
    seed, pool = office
    cut = in_holes(pool.frames.poses[:, :2], pool.rows_of(0), seed)
    kept = np.flatnonzero((pool.frames.drive_of < 2) & ~cut)
    cut_map = pool.map_of(kept, poses, "coverage", seed)
    training_map = replace(
        cut_map, trajectories=tuple(pool.frames.trajectory(drive) for drive in (0, 1))
    )
    sources = {"drives": [pool.drive(0), pool.drive(1)], "map alone": []}
    checks = {of: check_map(training_map, drives) for of, drives in sources.items()}
    return compare(seed, checks, training_map, pool.drive(2))


def in_holes(positions: Array, path: Rows, seed: int) -> Flags:
    """Return which positions (t, 2) lie in discs round places drawn from the rows `path` of them.

    Between two holes there is a rim of images as wide as a hole's radius.
    """
    centres: list[Array] = []
    for row in np.random.default_rng(seed).permutation(path):
        if all(np.hypot(*(positions[row] - centre)) > 3.0 * HOLE_RADIUS_M for centre in centres):
            centres.append(positions[row])
        if len(centres) == HOLES:
            break
    distances = [np.hypot(*(positions - centre).T) for centre in centres]
    return np.asarray(np.min(distances, axis=0) < HOLE_RADIUS_M)


def compare(
    office: int, checks: Mapping[str, MapCheck], training_map: TrainingMap, later: DescribedDrive
) -> list[Prediction]:
    """Return what checks of a map predict, against a drive that the map does not know."""
    assert later.truth is not None
    localizer = Localizer(training_map)
    run = replay(later, localizer)
    assert run.truth is not None
    covered = map_coverage(training_map, run.truth) >= MIN_COVERAGE
    measured_m = float(np.median(position_errors(run)[covered]))
    starts = np.arange(0, len(later) - IMAGES + 1, EVERY)
    failed = np.array(
        [not fix_from(later, localizer, int(start), IMAGES).right for start in starts]
    )
    found = []
    for of, check in checks.items():
        blind = check.sees_nothing(later.truth)
        named = np.array([blind[start : start + IMAGES].mean() > 0.5 for start in starts])
        assert check.median_m is not None
        found.append(
            Prediction(
                office=office,
                of=of,
                starts=len(starts),
                named=int(named.sum()),
                failed=int(failed.sum()),
                both=int((named & failed).sum()),
                expected_m=check.median_m,
                measured_m=measured_m,
            )
        )
    return found


def metrics_of(predictions: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    """Return for each kind of check precision and recall over all offices, and the worst factor."""
    metrics = {}
    for of in dict.fromkeys(prediction.of for prediction in predictions):
        own = [prediction for prediction in predictions if prediction.of == of]
        both, named, failed = (
            sum(getattr(prediction, name) for prediction in own)
            for name in ("both", "named", "failed")
        )
        metrics[of] = {
            "precision": both / named if named else None,
            "recall": both / failed if failed else None,
            "largest_factor": max(prediction.factor for prediction in own),
            "offices": len(own),
        }
    return metrics


def experiment_result(predictions: Sequence[Prediction]) -> ExperimentResult:
    """Return precision and recall of the checks, and what was found in each office."""
    metrics = metrics_of(predictions)
    summary = Table(
        "Starts of a later drive that fail, against stretches that the check names",
        ("Check of", "Precision", "Recall", "Largest factor", "Offices"),
        [(of, *values.values()) for of, values in metrics.items()],
    )
    rows = [astuple(prediction) for prediction in predictions]
    columns = (
        *("Office", "Check of", "Starts", "Named", "Failed", "Both"),
        *("Expected error (m)", "Measured (m)"),
    )
    return ExperimentResult(
        "Predictions of kbf map check on maps with holes",
        metrics,
        tables=[summary, Table("By office", columns, rows)],
        csv={"predictions.csv": ([item.name for item in fields(Prediction)], rows)},
    )
