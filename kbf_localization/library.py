"""The whole jobs of those who import the package, beside the parts that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbf_localization.datasets.drive import Drive
from kbf_localization.evaluation.evaluate import (
    Metrics,
    SourceResult,
    evaluate_drives,
    in_map_frame,
    metrics_by_method,
    relative_metrics,
    write_results,
)
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.evaluation.run import localize_drive
from kbf_localization.filters.methods import check_methods
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localization, Localizer, LocalizerSettings
from kbf_localization.progress import Progress, no_progress
from kbf_localization.training_map import TrainingMap


def localize(
    training_map: TrainingMap,
    drive: Drive,
    method: str = "kbf",
    *,
    settings: LocalizerSettings | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Iterator[Localization]:
    """Yield a fix for each image of `drive` as soon as it is computed; keep nothing.

    An image that cannot be used, because it cannot be decoded or no odometry covers its stamp, gets
    none. `method` is "kbf" or another: "paper", "paper-iw", "fkbf", "nn", "nn-paper",
    "nai", "kmcf".
    """
    pose_filter = make_filter(method, training_map, seed=seed)
    localizer = Localizer(training_map, pose_filter, settings or LocalizerSettings())
    for _, fix, _, _ in localize_drive(drive, localizer, progress):
        if fix is not None:
            yield fix


@dataclass(frozen=True, repr=False)
class Evaluation:
    """What came out: a `SourceResult` for each drive, with every method's run."""

    training_map: TrainingMap
    results: tuple[SourceResult, ...]

    @property
    def metrics(self) -> dict[str, Metrics]:
        """Each method's metrics over all drives, such as `metrics["kbf"]["position_median_m"]`.

        On a map in its own frame the truth is aligned with the estimates by SE(2) first.
        """
        relative_errors = relative_metrics(self.results, self.training_map)
        aligned, _ = in_map_frame(self.results, self.training_map)
        metrics = metrics_by_method(aligned)
        return {name: own | relative_errors[name] for name, own in metrics.items()}

    def save(self, folder: Path | str, progress: Progress = no_progress) -> Path:
        """Write metrics, trajectories and report into `folder`; the report's path."""
        results = ResultsFolder.create("evaluate", Path(folder))
        sources = [result.drive.path for result in self.results]
        config = {"command": "kbf_localization.evaluate", "sources": sources}
        write_results(results, self.results, self.training_map, config, progress=progress)
        return results.path / "report.html"

    def __repr__(self) -> str:
        drives = ", ".join(result.drive.name for result in self.results)
        medians = ", ".join(
            f"{method} {metrics['position_median_m']:.2f} m"
            for method, metrics in self.metrics.items()
        )
        return f"Evaluation(of {drives}; median errors: {medians})"


def evaluate(
    training_map: TrainingMap,
    drives: Drive | Sequence[Drive],
    methods: str | Sequence[str] = ("kbf",),
    *,
    settings: LocalizerSettings | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Evaluation:
    """Replay drives with known poses through one or more methods, as fast as the CPU allows."""
    names = check_methods(methods if isinstance(methods, str) else ",".join(methods))
    sources = list(drives) if isinstance(drives, Sequence) else [drives]
    found = evaluate_drives(
        sources, training_map, names, settings=settings, seed=seed, progress=progress
    )
    return Evaluation(training_map, tuple(found))
