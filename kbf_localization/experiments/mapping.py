"""Maps without a laser: poses from wheel odometry and images, in several offices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbf_localization.datasets.open import open_drive
from kbf_localization.evaluation.mapping_metrics import mapping_metrics
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.parallel import Workers
from kbf_localization.pose_graph import estimate_poses
from kbf_localization.progress import Progress
from kbf_localization.simulator import simulate

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
    "Used",
)


def run_buildings(
    folder: Path,
    buildings: int,
    seed: int,
    drives: Sequence[int],
    frames: int,
    size: tuple[int, int],
    workers: Workers,
    progress: Progress,
) -> dict[str, dict[str, Any]]:
    """Return the keys of `mapping.json` by office and by the number of drives."""
    found: dict[str, dict[str, Any]] = {}
    for building in range(seed, seed + buildings):
        place = folder / f"office{building}"
        if not place.is_dir():
            simulate(
                place,
                runs=max(drives),
                seed=building,
                frames=frames,
                size=size,
                workers=workers,
                progress=progress,
            )
        paths = sorted(path for path in place.iterdir() if path.is_dir())
        by_count: dict[str, Any] = {}
        for count in drives:
            opened = [open_drive(path) for path in paths[:count]]
            estimates = estimate_poses(opened, workers=workers, progress=progress)
            by_count[str(count)] = mapping_metrics(opened, estimates)
        found[str(building)] = by_count
    return found


def findings(found: dict[str, dict[str, Any]]) -> ExperimentResult:
    """Return the table of mapping errors, and the same as CSV."""
    rows = [
        (f"{building}, {count}", *(metrics.get(key) for key in KEYS), metrics["used"])
        for building, by_count in found.items()
        for count, metrics in by_count.items()
    ]
    return ExperimentResult(
        title="Maps without a laser",
        metrics=found,
        tables=[Table("Poses from wheel odometry and images", COLUMNS, rows)],
        csv={"mapping.csv": (("office_drives", *KEYS, "used"), rows)},
    )
