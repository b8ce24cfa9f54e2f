"""All methods on public data sets: maps from one time, tests at another, errors side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbf_localization.datasets.drive import SIMULATED
from kbf_localization.evaluation.evaluate import evaluate_drives, metrics_by_method
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.public_protocols import Protocol, coverage
from kbf_localization.experiments.trials import summary
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
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


@dataclass(frozen=True)
class Outcome:
    """A protocol's results: `figures` by method and figure, one value for each odometry seed."""

    protocol: Protocol
    odometry: str
    covered: float
    images: int
    figures: Mapping[str, Mapping[str, Sequence[float]]]
    notes: tuple[str, ...]


def run_protocol(
    protocol: Protocol,
    methods: Sequence[str],
    *,
    poses: int = 1000,
    seeds: int = 3,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Build the map with defaults and replay the test; once for each seed of the odometry.

    Measured odometry has no seed: there it is done once.
    """
    workers = workers or Serial()
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
    return Outcome(protocol, test.odometry_origin, covered, len(test), figures, test.warnings)


def metrics_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """{"sets": {name: {"odometry", "protocol", ..., "methods": {method: {figure: summary}}}}}."""
    return {
        "sets": {
            one.protocol.name: {
                "odometry": one.odometry,
                "protocol": one.protocol.how,
                "training": [str(drive) for drive in one.protocol.training],
                "test": str(one.protocol.test),
                "covered_share": one.covered,
                "images": one.images,
                "methods": {
                    method: {key: summary(values) for key, values in found.items()}
                    for method, found in one.figures.items()
                },
                "notes": list(one.notes),
            }
            for one in outcomes
        }
    }


def findings(outcomes: Sequence[Outcome]) -> Findings:
    """A table for each protocol: the methods' figures, means over the odometry's seeds."""
    return Findings("Public data sets", metrics_of(outcomes), [_table(one) for one in outcomes])


def _table(outcome: Outcome) -> Table:
    shown = [key for key in FIGURES if any(key in found for found in outcome.figures.values())]
    rows = [
        (method, *(summary(found[key])["mean"] if key in found else None for key in shown))
        for method, found in outcome.figures.items()
    ]
    title = (
        f"{outcome.protocol.name}: {outcome.protocol.how}, {outcome.images} images, "
        f"{100 * outcome.covered:.0f} % seen by the map, odometry {outcome.odometry}"
    )
    return Table(title, ("Method", *(FIGURES[key] for key in shown)), rows)
