"""Runs of the same drives side by side: differences, their noise, and the comparison's page.

Errors of neighbouring frames are alike, so single frames cannot be resampled: whole blocks of time
are (the circular block bootstrap), the same blocks for all runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Rows, Stamps
from kbf_localization.datasets.files import printable
from kbf_localization.datasets.trajectory import read_trajectory
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, length_text, metric_text
from kbf_localization.evaluation.report import Table, write_chart_report
from kbf_localization.evaluation.report_data import packed
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.run import GROSS_ERROR_M
from kbf_localization.geometry import wrap_angle

BLOCK_S = 10.0
"""Errors that are so many seconds apart are taken for independent."""

MIN_BLOCKS = 5
"""A short drive is cut into so many blocks, however short they are."""

RESAMPLES = 1000
TRUTH = "truth"

STATISTICS: dict[str, Callable[[Array], Array]] = {
    "position_median_m": lambda errors: np.median(errors[0], axis=-1),
    "position_rmse_m": lambda errors: np.sqrt(np.mean(errors[0] ** 2, axis=-1)),
    "position_p95_m": lambda errors: np.percentile(errors[0], 95, axis=-1),
    "heading_rmse_deg": lambda errors: np.degrees(np.sqrt(np.mean(errors[1] ** 2, axis=-1))),
    "share_beyond_1m": lambda errors: np.mean(errors[0] > GROSS_ERROR_M, axis=-1),
}
"""Of errors (2, runs, t), metres and radians, under the keys of `metrics.json`."""


@dataclass(frozen=True)
class ComparedDrive:
    """The errors of all runs on one drive, at the frames that all have.

    `seconds` (t,) since its first frame; `errors` (2, runs, t) of the position, in metres, and of
    the heading, in radians.
    """

    name: str
    seconds: Array
    errors: Array

    def __len__(self) -> int:
        return len(self.seconds)


@dataclass(frozen=True)
class Difference:
    """How a metric differs from the first run's, with the spread over resampled blocks.

    `low` and `high` hold 95 % of the resampled differences.
    """

    difference: float
    std: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """For metrics of which less is better."""
        if self.difference == self.low == self.high == 0.0:
            return "equal"
        if self.low <= 0.0 <= self.high:
            return "within noise"
        return "better" if self.difference < 0.0 else "worse"


@dataclass(frozen=True)
class Comparison:
    """Runs by their labels, the first being the reference, on drives that all of them have."""

    labels: tuple[str, ...]
    drives: tuple[ComparedDrive, ...]

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return each run's metrics over the frames of all drives together."""
        errors = np.concatenate([drive.errors for drive in self.drives], axis=-1)
        found = {key: statistic(errors) for key, statistic in STATISTICS.items()}
        return {
            label: {key: float(values[run]) for key, values in found.items()}
            | {"frames": errors.shape[-1]}
            for run, label in enumerate(self.labels)
        }

    def differences(
        self, block_s: float = BLOCK_S, resamples: int = RESAMPLES, seed: int = 0
    ) -> dict[str, dict[str, Difference]]:
        """Return each further run's metrics less the first run's, with their spread."""
        generator = np.random.default_rng(seed)
        metrics = self.metrics()
        drawn = {key: np.empty((resamples, len(self.labels))) for key in STATISTICS}
        for number in range(resamples):
            errors = np.concatenate(
                [
                    drive.errors[..., resampled_rows(drive.seconds, block_s, generator)]
                    for drive in self.drives
                ],
                axis=-1,
            )
            for key, statistic in STATISTICS.items():
                drawn[key][number] = statistic(errors)
        first = self.labels[0]
        return {
            label: {
                key: _difference(
                    metrics[label][key] - metrics[first][key], values[:, run] - values[:, 0]
                )
                for key, values in drawn.items()
            }
            for run, label in enumerate(self.labels)
            if run > 0
        }


def resampled_rows(seconds: Array, block_s: float, generator: np.random.Generator) -> Rows:
    """Return as many rows as there are frames, in blocks of time drawn from the drive as a ring."""
    count = len(seconds)
    pace = float(np.median(np.diff(seconds))) if count > 1 else 1.0
    length = int(np.clip(round(block_s / max(pace, 1e-9)), 1, max(count // MIN_BLOCKS, 1)))
    starts = generator.integers(0, count, math.ceil(count / length))
    return ((starts[:, None] + np.arange(length)).ravel()[:count]) % count


def _difference(difference: float, drawn: Array) -> Difference:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Difference(float(difference), float(drawn.std()), float(low), float(high))


def read_comparison(folders: Sequence[Path], methods: Sequence[str] = ()) -> Comparison:
    """Read the runs in folders of results, of these methods or of all, each of the same drives.

    Raises DatasetError where a folder has no trajectories, and ParameterError for fewer than two
    runs.
    """
    runs = [(folder, method) for folder in folders for method in _methods_in(folder, methods)]
    if len(runs) < 2:
        raise ParameterError("a comparison needs two runs: name two folders, or two methods of one")
    labels = _labels(runs)
    drives = []
    for part in _parts(folders[0]):
        places = {folder: _same_drive(folders[0] / part, folder) for folder in folders}
        drives.append(_compared(part, [(places[folder], method) for folder, method in runs]))
    return Comparison(labels, tuple(drives))


def _parts(folder: Path) -> list[str]:
    """Return the drives in a folder of results: itself, or its numbered folders."""
    if (folder / f"trajectory_{TRUTH}.tum").is_file():
        return [""]
    parts = sorted(path.parent.name for path in folder.glob(f"*/trajectory_{TRUTH}.tum"))
    if not parts:
        raise DatasetError(
            f"{folder}: has no trajectory_{TRUTH}.tum; give a folder that kbf evaluate, replay or "
            "demo wrote for a drive whose true poses are known"
        )
    return parts


def _methods_in(folder: Path, wanted: Sequence[str]) -> list[str]:
    part = folder / _parts(folder)[0]
    there = [path.stem.removeprefix("trajectory_") for path in part.glob("trajectory_*.tum")]
    methods = sorted(name for name in there if name != TRUTH and (not wanted or name in wanted))
    if not methods:
        raise DatasetError(f"{folder}: has none of the methods asked for, but {', '.join(there)}")
    # The filter itself before the baselines.
    return sorted(methods, key=lambda name: name not in ("kbf", "node"))


def _labels(runs: Sequence[tuple[Path, str]]) -> tuple[str, ...]:
    """Return what tells the runs apart: their folders, their methods, or both."""
    folders, methods = [folder for folder, _ in runs], [method for _, method in runs]
    names = [printable(folder.resolve().name) for folder in folders]
    if len(set(names)) < len(set(folders)):
        names = [printable(str(folder)) for folder in folders]
    if len(set(folders)) == 1:
        return tuple(methods)
    if len(set(methods)) == 1:
        return tuple(names)
    return tuple(f"{name}: {method}" for name, method in zip(names, methods, strict=True))


def _same_drive(reference: Path, folder: Path) -> Path:
    """Return the part of the results with the most frames in common with the reference."""
    truth, _ = _read(reference, TRUTH)
    shared = {
        part: len(np.intersect1d(truth, _read(folder / part, TRUTH)[0])) for part in _parts(folder)
    }
    best = max(shared, key=lambda part: shared[part])
    if shared[best] < 2:
        raise DatasetError(
            f"{folder}: has no frames in common with {reference}; compare runs of the same drive"
        )
    return folder / best


def _compared(part: str, runs: Sequence[tuple[Path, str]]) -> ComparedDrive:
    truths = [_read(folder, TRUTH) for folder, _ in runs]
    estimates = [_read(folder, method) for folder, method in runs]
    stamps: Stamps = truths[0][0]
    for other, _ in (*truths, *estimates):
        stamps = np.intersect1d(stamps, other)
    if len(stamps) < 2:
        raise DatasetError(f"{runs[0][0]}: the runs have no frames in common")
    offsets = np.stack(
        [
            estimate[1][np.searchsorted(estimate[0], stamps)]
            - truth[1][np.searchsorted(truth[0], stamps)]
            for estimate, truth in zip(estimates, truths, strict=True)
        ]
    )
    return ComparedDrive(
        part.partition("-")[2] or part,
        (stamps - stamps[0]) * 1e-9,
        np.stack((np.hypot(offsets[..., 0], offsets[..., 1]), np.abs(wrap_angle(offsets[..., 2])))),
    )


def _read(folder: Path, name: str) -> tuple[Stamps, Array]:
    """Return stamps (t,) and planar poses (t, 3) of a trajectory."""
    trajectory, _ = read_trajectory(folder / f"trajectory_{name}.tum")
    headings = np.arctan2(trajectory.rotations[:, 1, 0], trajectory.rotations[:, 0, 0])
    return trajectory.stamps_ns, np.column_stack((trajectory.positions[:, :2], headings))


def summary(labels: Sequence[str], differences: Mapping[str, Mapping[str, Difference]]) -> str:
    """Return one sentence a run: how its median error compares with the first run's."""
    sentences = []
    for label, by_key in differences.items():
        median = by_key["position_median_m"]
        amount = length_text(abs(median.difference), fine=True)
        if median.verdict == "equal":
            sentences.append(f"{label} and {labels[0]} have the same median error")
        elif median.verdict == "within noise":
            sentences.append(f"{label} and {labels[0]} do not differ beyond noise ({amount})")
        else:
            sentences.append(
                f"{label} is {median.verdict} than {labels[0]}: its median error is {amount} "
                f"{'smaller' if median.difference < 0 else 'larger'}"
            )
    return ". ".join(sentences) + "."


Differences = Mapping[str, Mapping[str, Difference]]


def write_comparison(
    folder: ResultsFolder,
    comparison: Comparison,
    differences: Differences,
    config: Mapping[str, Any],
) -> Path:
    """Write metrics, configuration and `report.html`; the page's path."""
    metrics = comparison.metrics()
    sentences = summary(comparison.labels, differences)
    folder.write_config(config)
    folder.write_metrics(
        {
            "reference": comparison.labels[0],
            "methods": metrics,
            "differences": {
                label: {
                    key: {**asdict(difference), "verdict": difference.verdict}
                    for key, difference in found.items()
                }
                for label, found in differences.items()
            },
            "summary": sentences,
        }
    )
    table = differences_table(comparison.labels[0], differences)
    data = {
        "labels": comparison.labels,
        "drives": [
            {
                "name": drive.name,
                "seconds": packed(drive.seconds),
                "errors": [packed(errors) for errors in drive.errors[0]],
            }
            for drive in comparison.drives
        ],
    }
    title = "Comparison of " + ", ".join(comparison.labels)
    return write_chart_report(folder, title, config, sentences, data, metrics, table)


def differences_table(reference: str, differences: Differences) -> Table:
    """Return a row for each run and metric: difference, 95 % of its resamples, and verdict."""
    rows = [
        (
            label,
            METRIC_TEXTS[key].label,
            _signed(key, difference.difference),
            f"{_signed(key, difference.low)} to {_signed(key, difference.high)}",
            difference.verdict,
        )
        for label, found in differences.items()
        for key, difference in found.items()
    ]
    columns = ("Run", "Metric", "Difference", "95 % of resamples", "Verdict")
    return Table(f"Differences to {reference}", columns, rows)


def _signed(key: str, value: float) -> str:
    return f"{'−' if value < 0 else '+'}{metric_text(key, abs(value))}"
