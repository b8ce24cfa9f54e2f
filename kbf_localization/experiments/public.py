"""All methods on public data sets: maps from one time, tests at another, errors side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbf_localization.datasets.drive import SIMULATED
from kbf_localization.evaluation.evaluate import evaluate_drives, metrics_by_method
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.public_protocols import Protocol, coverage
from kbf_localization.experiments.trials import summary
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress
from kbf_localization.training_map import TrainingMap, build_map

FIGURES = {
    "position_rmse_m": "RMSE (m)",
    "position_median_m": "median (m)",
    "share_beyond_1m": "beyond 1 m",
    "share_confident_wrong": "confident and wrong",
    "within_three_sigma_share": "within 3 σ",
    "share_tracking": "tracking",
    "step_ms_p50": "ms an image",
}
"""The figures of the table with their headings."""


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
    each method's figures are summaries over the seeds.
    """
    figures: dict[str, dict[str, list[float]]] = {method: {} for method in methods}
    test = protocol.test.open()
    covered = coverage([one.open() for one in protocol.training], test)
    training_map: TrainingMap | None = None
    for seed in range(seeds if test.odometry_origin == SIMULATED else 1):
        test = protocol.test.open(seed)
        training_map = build_map(
            [one.open(seed) for one in protocol.training],
            poses=poses,
            # The images are the same for each seed, and so are the words.
            like=training_map,
            workers=workers,
            progress=progress,
        )
        results = evaluate_drives([test], training_map, methods, seed=seed, progress=progress)
        for method, found in metrics_by_method(results).items():
            for key in FIGURES:
                if key in found:
                    figures[method].setdefault(key, []).append(float(found[key]))
    return {
        "odometry": test.odometry_origin,
        "protocol": protocol.how,
        "training": [str(drive) for drive in protocol.training],
        "test": str(protocol.test),
        "covered_share": covered,
        "images": len(test),
        "methods": {
            method: {key: summary(values) for key, values in found.items()}
            for method, found in figures.items()
        },
        "notes": list(test.warnings),
    }


def findings(sets: Sequence[tuple[str, Mapping[str, Any]]]) -> Findings:
    """A table for each protocol's name and figures: means over the odometry's seeds."""
    tables = [_table(name, figures) for name, figures in sets]
    return Findings("Public data sets", {"sets": dict(sets)}, tables)


def _table(name: str, figures: Mapping[str, Any]) -> Table:
    methods = figures["methods"]
    shown = [key for key in FIGURES if any(key in found for found in methods.values())]
    rows = [
        (method, *(found[key]["mean"] if key in found else None for key in shown))
        for method, found in methods.items()
    ]
    title = (
        f"{name}: {figures['protocol']}, {figures['images']} images, "
        f"{100 * figures['covered_share']:.0f} % seen by the map, odometry {figures['odometry']}"
    )
    return Table(title, ("Method", *(FIGURES[key] for key in shown)), rows)
