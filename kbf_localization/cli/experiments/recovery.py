"""kbf experiment recovery: global localization and relocalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import ImageSize, Jobs, Results, Seed, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table

_TRIALS = Option(min=2, help="Global starts; kidnappings are half as many.")


def recovery(
    trials: Annotated[int, _TRIALS] = 100,
    poses: Annotated[int, Option(min=50, help="Poses of the map.")] = 1000,
    frames: Annotated[int, Option(min=200, help="Frames of each simulated drive.")] = 1000,
    size: ImageSize = "320x240",
    drives: Annotated[int, Option(min=1, help="Undisturbed test drives.")] = 3,
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Global starts, kidnappings, honesty of the covariance, and another light than the map's.

    Example: `kbf experiment recovery --trials 20`
    """
    limit_threads(1)
    from kbf_localization.experiments.recovery import run_trials
    from kbf_localization.experiments.recovery_figure import write_files
    from kbf_localization.experiments.recovery_metrics import metrics_of
    from kbf_localization.experiments.recovery_world import make_world
    from kbf_localization.parallel import make_workers

    pixels = parse_image_size(size)
    record = common.Record("recovery", output, trials=trials, poses=poses, frames=frames)
    record.note(drives=drives, size=size, seed=seed)
    workers = make_workers(jobs)
    with common.rendering() as (folder, progress):
        world = make_world(
            folder, poses, frames, drives, pixels, seed=seed, workers=workers, progress=progress
        )
        outcome = run_trials(world, trials, seed, workers, progress)
    metrics = metrics_of(outcome)
    write_files(record.folder, outcome)
    captions = {"recovery.png": "Errors after global starts and after kidnappings, every trial"}
    record.finish("Global localization and relocalization", metrics, [_table(metrics)], captions)


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table

    rows = [
        (group.replace("_", " "), name.replace("_", " "), figure)
        for group, figures in metrics.items()
        for name, figure in figures.items()
    ]
    return Table(
        "Global localization and relocalization in a simulated office",
        ("Trial", "Metric", "Value"),
        rows,
    )
