"""kbf experiment recovery: global localization and relocalization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbf_localization.cli.experiments.common import (
    Jobs,
    Output,
    Seed,
    command_line,
    finish,
    limit_to_one_thread,
    parse_image_size,
)

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def recovery(
    trials: Annotated[
        int, typer.Option(min=2, help="Global starts; kidnappings are half as many.")
    ] = 100,
    poses: Annotated[int, typer.Option(min=50, help="Poses of the map.")] = 1000,
    frames: Annotated[int, typer.Option(min=200, help="Frames of each simulated drive.")] = 1000,
    drives: Annotated[int, typer.Option(min=1, help="Undisturbed test drives.")] = 3,
    size: Annotated[str, typer.Option(help="Size of rendered images.")] = "320x240",
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Output = None,
) -> None:
    """Global starts, kidnappings, honesty of the covariance, and another light than the map's."""
    limit_to_one_thread()
    import tempfile

    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments.recovery import run_trials
    from kbf_localization.experiments.recovery_figure import write_files
    from kbf_localization.experiments.recovery_metrics import metrics_of
    from kbf_localization.experiments.recovery_world import make_world
    from kbf_localization.parallel import workers

    pixels = parse_image_size(size)
    folder = ResultsFolder.create("experiment recovery", output)
    config = {"command": command_line(), "experiment": "recovery", "trials": trials, "poses": poses}
    config |= {"frames": frames, "drives": drives, "size": size, "seed": seed}
    folder.write_config(config)
    staff = workers(jobs)
    with tempfile.TemporaryDirectory(prefix="kbf-drives-") as rendered, show_progress() as progress:
        world = make_world(
            Path(rendered),
            poses=poses,
            frames=frames,
            test_drives=drives,
            size=pixels,
            seed=seed,
            workers=staff,
            progress=progress,
        )
        outcome = run_trials(world, trials, seed, staff, progress)
    metrics = metrics_of(outcome)
    folder.write_metrics(metrics)
    write_files(folder, outcome)
    captions = {"recovery.png": "Errors after global starts and after kidnappings, every trial"}
    finish(folder, "Global localization and relocalization", config, _table(metrics), captions)


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
