"""kbf experiment localization: section 6.3 of the paper."""

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


def localization(
    trials: Trials = 10,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Annotated[
        str, typer.Option(help="Numbers n of training poses, separated by commas.")
    ] = "100,200,400,800",
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "kbf,fkbf,nn,nai,kmcf",
    cold: Annotated[
        Optional[Path],
        typer.Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar."),
    ] = None,
    trajectories: Annotated[
        Optional[Path],
        typer.Option(
            help="Folder with the paths of COLD's Saarbrücken seq1_cloudy1 and seq2_cloudy1 "
            "(places.lst), to render images along. Default: an invented path."
        ),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="Settings tried for each method.")] = 24,
    tune_at: Annotated[
        Optional[int],
        typer.Option(min=10, help="Tune once, with so many poses, instead of at each size."),
    ] = None,
    drives: Annotated[
        Optional[Path],
        typer.Option(help="Keep the rendered drives in this folder, and use them again."),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of rendered images.")] = "320x240",
    dask: Annotated[
        Optional[str], typer.Option(metavar="ADDRESS", help="Run on this Dask cluster.")
    ] = None,
    output: Output = None,
) -> None:
    """Section 6.3: the position's error against the size of the map, for all methods."""
    limit_to_one_thread()
    import tempfile

    from kbf_localization.cli.console import console
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.errors import ParameterError
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments import localization as experiment
    from kbf_localization.experiments.localization_drives import (
        real_archives,
        rendered_drives,
    )
    from kbf_localization.experiments.localization_figure import FIGURE_NAME, write_files
    from kbf_localization.filters.registry import check_methods
    from kbf_localization.parallel import workers

    numbers, names, pixels = parse_sizes(sizes), check_methods(methods), parse_image_size(size)
    if cold is not None and trajectories is not None:
        raise ParameterError("--cold has its own trajectories: give it or --trajectories, not both")
    folder = ResultsFolder.create("experiment localization", output)
    staff = workers(jobs, dask)
    with (
        tempfile.TemporaryDirectory(prefix="kbf-drives-") as temporary,
        show_progress() as progress,
    ):
        place = drives or Path(temporary)
        if cold is not None:
            setup = real_archives(cold, place)
        else:
            setup = rendered_drives(place, trajectories, pixels, seed, staff, progress)
        console.print(f"Data: {setup.description}", markup=False, highlight=False)
        config = {
            "command": command_line(),
            "experiment": "localization",
            "data": setup.description,
            "trials": trials,
            "sizes": numbers,
            "methods": names,
            "budget": budget,
            "tune_at": tune_at,
            "seed": seed,
        }
        folder.write_config(config)
        outcome = experiment.run_trials(
            setup,
            trials=trials,
            sizes=numbers,
            methods=names,
            budget=budget,
            tune_at=tune_at,
            seed=seed,
            journals=folder.path,
            workers=staff,
            progress=progress,
        )
    metrics = experiment.metrics_of(outcome)
    folder.write_metrics(metrics)
    write_files(folder, outcome, metrics)
    captions = {FIGURE_NAME: f"Errors against the number of training poses; {setup.description}"}
    finish(folder, "Robot localization", config, _table(metrics), captions)


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table

    def cell(figure: Mapping[str, float]) -> str:
        return f"{figure['mean']:.2f} ± {figure['std']:.2f}"

    rows = [
        (
            f"n = {size}, {method}",
            cell(figures["position_rmse_m"]),
            cell(figures["position_median_m"]),
            f"{100 * figures['share_beyond_1m']['mean']:.1f} %",
            cell(figures["highest_weight_median_m"]),
        )
        for size, by_method in metrics.items()
        for method, figures in by_method.items()
    ]
    columns = ("Map and method", "RMSE [m]", "Median [m]", "Beyond 1 m", "Median, highest weight")
    return Table("Robot localization, mean ± std over choices of poses", columns, rows)
