"""All methods on public data sets: maps from one time, tests at another, errors side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kbf_localization.datasets.drive import NO_ODOMETRY, SIMULATED, Drive
from kbf_localization.datasets.files import printable, read_lines
from kbf_localization.datasets.open import is_drive, open_drive
from kbf_localization.datasets.parts import INTERLEAVED
from kbf_localization.errors import DatasetError
from kbf_localization.evaluation.evaluate import evaluate_drives, metrics_by_method
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import summary
from kbf_localization.filters.methods import TITLES
from kbf_localization.geometry import wrap_angle
from kbf_localization.mapping import build_map
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.training_map import TrainingMap

MAX_DEPTH = 4
COVERED_M, COVERED_RAD = 1.0, np.radians(30.0)
SPLITS = (0.5, 0.6, 0.7, 0.8, 0.9)
GOOD_COVERAGE, MIN_COVERAGE = 0.7, 0.5
"""Fractions of the test near the map's views: enough, and too little to call it a test."""
EVERY = 10

_OPENLORIS = re.compile(r"(.+)-(\d+)")

METRICS = {
    "position_rmse_m": "RMSE (m)",
    "position_median_m": "median (m)",
    "share_beyond_1m": "beyond 1 m",
    "share_confident_wrong": "confident and wrong",
    "within_three_sigma_share": "within 3 σ",
    "share_tracking": "tracking",
    "step_ms_p50": "ms an image",
}
"""The metrics of the table with their headings."""


@dataclass(frozen=True)
class Excerpt:
    """The part of a drive that is used; all of it without a part."""

    path: Path
    part: str | None = None

    def __str__(self) -> str:
        return f"{self.path} [{self.part or 'all'}]"

    def open(self, seed: int = 0) -> Drive:
        """Open the drive with its measured odometry, or with odometry simulated by `seed`."""
        try:
            return open_drive(self.path, part=self.part)
        except DatasetError:
            simulated = f"simulate:0.02,0.05,{seed}"
            # This raises what is wrong, if it is not the odometry.
            drive = open_drive(self.path, odometry=simulated, part=self.part)
            if drive.odometry_origin == NO_ODOMETRY:
                raise
            return drive


@dataclass(frozen=True)
class Protocol:
    """One row of the table: maps from `training`, tests on `test`; `how` says by which rule."""

    name: str
    training: tuple[Excerpt, ...]
    test: Excerpt
    how: str


def find_protocols(folders: Sequence[Path]) -> list[Protocol]:
    """Return the protocols of all data sets in the folders, in the order of their paths."""
    drives = [drive for folder in folders for drive in _drives_in(folder, MAX_DEPTH)]
    if not drives:
        names = ", ".join(str(folder) for folder in folders)
        raise DatasetError(f"{names}: no bag and no folder of a known data set in there")
    protocols: list[Protocol] = []
    by_parent: dict[Path, list[Path]] = {}
    for path in drives:
        by_parent.setdefault(path.parent, []).append(path)
    for parent, paths in by_parent.items():
        grouped = _seven_scenes(parent, paths) + _openloris(paths)
        used = {
            excerpt.path for protocol in grouped for excerpt in (*protocol.training, protocol.test)
        }
        protocols += grouped
        protocols += [_one_drive(path) for path in paths if path not in used]
    return protocols


def _drives_in(folder: Path, deepest: int) -> Iterable[Path]:
    if is_drive(folder):
        yield folder
    elif folder.is_dir() and deepest:
        for entry in sorted(folder.iterdir()):
            yield from _drives_in(entry, deepest - 1)


def _seven_scenes(parent: Path, paths: Sequence[Path]) -> list[Protocol]:
    """Return the scene's own split; "sequence1" in it is the folder seq-01."""
    lists = [parent / "TrainSplit.txt", parent / "TestSplit.txt"]
    if not all(path.is_file() for path in lists):
        return []
    train, test = (
        [
            parent / f"seq-{int(number):02d}"
            for line in read_lines(path)
            for number in re.findall(r"\b[a-z]*([0-9]{1,4})\b", line)
        ]
        for path in lists
    )
    there = set(paths)
    training = tuple(Excerpt(path) for path in train if path in there)
    scene = printable(parent.name)
    return [
        Protocol(f"{scene}/{path.name}", training, Excerpt(path), "the scene's split")
        for path in test
        if path in there and training
    ]


def _openloris(paths: Sequence[Path]) -> list[Protocol]:
    """Pair visits of one place, such as office1-1 to office1-7: the first gives the map."""
    places: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        match = _OPENLORIS.fullmatch(path.name)
        if match and (path / "color.txt").is_file():
            places.setdefault(match[1], []).append((int(match[2]), path))
    protocols = []
    for visits in places.values():
        (_, first), *later = sorted(visits)
        protocols += [
            Protocol(printable(path.name), (Excerpt(first),), Excerpt(path), f"map of {first.name}")
            for _, path in later
        ]
    return protocols


def _one_drive(path: Path) -> Protocol:
    """Split by time: the first part gives the map, the rest is the test.

    The first of SPLITS after which the drive comes back to what it saw, else the best of them;
    interleaved where it hardly comes back at all. What was seen just before the split is no
    coming back: the last tenth of the drive's time before it does not count.
    """
    best, covered = 0.0, 0.0
    for split in SPLITS:
        parts = (f"0:{split - 0.1:.1f}", f"{split}:")
        before, later = (Excerpt(path, part).open() for part in parts)
        fraction = coverage([before], later)
        if fraction > covered:
            best, covered = split, fraction
        if covered >= GOOD_COVERAGE:
            break
    name = printable(path.resolve().name)
    if covered >= MIN_COVERAGE:
        part = f"{best}:"
        how = f"map of the first {100 * best:.0f} % of the time"
        return Protocol(name, (Excerpt(path, f"0:{best}"),), Excerpt(path, part), how)
    every = (Excerpt(path, f"every:{EVERY}"),)
    return Protocol(name, every, Excerpt(path, f"not-every:{EVERY}"), INTERLEAVED)


def coverage(training: Sequence[Drive], test: Drive) -> float:
    """Return the fraction of the test's poses within 1 m and 30° of a training pose."""
    known = np.concatenate([_known(drive) for drive in training])
    asked = _known(test)
    near = [
        bool(
            (
                (np.hypot(*(known[:, :2] - pose[:2]).T) <= COVERED_M)
                & (np.abs(wrap_angle(known[:, 2] - pose[2])) <= COVERED_RAD)
            ).any()
        )
        for pose in asked
    ]
    return float(np.mean(near)) if near else 0.0


def _known(drive: Drive) -> np.ndarray:
    if drive.poses is None:
        raise DatasetError(f"{drive.path}: has no known poses")
    return np.asarray(drive.poses[np.isfinite(drive.poses).all(axis=1)])


def run_protocol(
    protocol: Protocol,
    methods: Sequence[str],
    *,
    poses: int,
    seeds: int,
    workers: Workers,
    progress: Progress,
) -> dict[str, Any]:
    """Build the map with defaults and replay the test; once for each seed of the odometry.

    Measured odometry has no seed: there it is done once. Gives what `metrics.json` holds of it:
    each method's metrics are summaries over the seeds.
    """
    metrics: dict[str, dict[str, list[float]]] = {method: {} for method in methods}
    test = protocol.test.open()
    covered = coverage([excerpt.open() for excerpt in protocol.training], test)
    training_map: TrainingMap | None = None
    for seed in range(seeds if test.odometry_origin == SIMULATED else 1):
        test = protocol.test.open(seed)
        training_map = build_map(
            [excerpt.open(seed) for excerpt in protocol.training],
            poses=poses,
            # The images are the same for each seed, and so are the words.
            like=training_map,
            workers=workers,
            progress=progress,
        )
        results = evaluate_drives([test], training_map, methods, seed=seed, progress=progress)
        for method, found in metrics_by_method(results).items():
            for key in METRICS:
                if key in found:
                    metrics[method].setdefault(key, []).append(float(found[key]))
    return {
        "odometry": test.odometry_origin,
        "protocol": protocol.how,
        "training": [str(drive) for drive in protocol.training],
        "test": str(protocol.test),
        "covered_share": covered,
        "images": len(test),
        "methods": {
            method: {key: summary(values) for key, values in found.items()}
            for method, found in metrics.items()
        },
        "notes": list(test.warnings),
    }


def experiment_result(sets: Sequence[tuple[str, Mapping[str, Any]]]) -> ExperimentResult:
    """Return a table for each protocol's name and metrics: means over the odometry's seeds."""
    tables = [_table(name, metrics) for name, metrics in sets]
    return ExperimentResult("Public data sets", {"sets": dict(sets)}, tables)


def _table(name: str, metrics: Mapping[str, Any]) -> Table:
    methods = metrics["methods"]
    shown = [key for key in METRICS if any(key in found for found in methods.values())]
    rows = [
        (
            TITLES.get(method, method),
            *(found[key]["mean"] if key in found else None for key in shown),
        )
        for method, found in methods.items()
    ]
    title = (
        f"{name}: {metrics['protocol']}, {metrics['images']} images, "
        f"{100 * metrics['covered_share']:.0f} % seen by the map, odometry {metrics['odometry']}"
    )
    return Table(title, ("Method", *(METRICS[key] for key in shown)), rows)
