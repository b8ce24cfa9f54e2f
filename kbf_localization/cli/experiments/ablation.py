"""kbf experiment ablation: what each part of the filter is worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from kbf_localization.cli.experiments.common import (
    Jobs,
    Output,
    Seed,
    Trials,
    command_line,
    finish,
    limit_to_one_thread,
    parse_image_size,
    parse_sizes,
)

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def ablation(
    trials: Trials = 5,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Annotated[
        str, typer.Option(help="Numbers n of training poses, separated by commas.")
    ] = "200,800",
    offices: Annotated[int, typer.Option(min=1, help="Offices, of consecutive seeds.")] = 2,
    trajectories: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder with the paths of COLD's Saarbrücken seq1_cloudy1 and seq2_cloudy1 "
            "(places.lst), to render images along. Default: an invented path."
        ),
    ] = None,
    drives: Annotated[
        Optional[Path],
        typer.Option(help="Keep the rendered drives in this folder, and use them again."),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of rendered images.")] = "320x240",
    output: Output = None,
) -> None:
    """The error of localization with one part of the filter left out after the other."""
    limit_to_one_thread()
    import tempfile

    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments.ablation import FIGURES, metrics_of, run_trials
    from kbf_localization.experiments.localization_drives import rendered_drives
    from kbf_localization.experiments.trials import write_csv
    from kbf_localization.parallel import workers

    numbers, pixels = parse_sizes(sizes), parse_image_size(size)
    folder = ResultsFolder.create("experiment ablation", output)
    config = {"command": command_line(), "experiment": "ablation", "trials": trials, "seed": seed}
    config |= {"sizes": numbers, "offices": offices, "size": size}
    config |= {"trajectories": None if trajectories is None else str(trajectories)}
    folder.write_config(config)
    staff = workers(jobs)
    with (
        tempfile.TemporaryDirectory(prefix="kbf-drives-") as temporary,
        show_progress() as progress,
    ):
        place = drives or Path(temporary)
        setups = [
            rendered_drives(place, trajectories, pixels, number, staff, progress)
            for number in range(seed, seed + offices)
        ]
        results = run_trials(
            setups, trials=trials, sizes=numbers, seed=seed, workers=staff, progress=progress
        )
    metrics = metrics_of(results)
    folder.write_metrics(metrics)
    write_csv(
        folder,
        "ablation.csv",
        ("variant", "poses", "office", "choice", *FIGURES),
        (
            (one.variant, one.poses, one.office, one.choice, *(one.figures[key] for key in FIGURES))
            for one in results
        ),
    )
    finish(folder, "Parts left out", config, _table(metrics), {})


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table

    def cell(figure: Mapping[str, float], scale: float = 1.0, digits: int = 2) -> str:
        return f"{scale * figure['mean']:.{digits}f} ± {scale * figure['std']:.{digits}f}"

    rows = [
        (
            f"n = {size}, {name.replace('_', ' ')}",
            cell(figures["position_rmse_m"]),
            cell(figures["position_median_m"], digits=3),
            cell(figures["share_beyond_1m"], 100.0, 1),
        )
        for size, by_variant in metrics.items()
        for name, figures in by_variant.items()
    ]
    columns = ("Map and filter", "RMSE [m]", "Median [m]", "Beyond 1 m [%]")
    return Table("Each part left out in turn, mean ± std over offices and choices", columns, rows)
