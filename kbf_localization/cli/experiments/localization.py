"""kbf experiment localization: section 6.3 of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from kbf_localization.cli.experiments import common
from kbf_localization.cli.methods import ManyMethods, chosen_methods
from kbf_localization.cli.options import Dask, Jobs, Results, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def localization(
    trials: common.Trials = 10,
    seed: common.Seed = 0,
    jobs: Jobs = -1,
    sizes: common.Sizes = "100,200,400,800",
    methods: ManyMethods = None,
    cold: Annotated[
        Optional[Path],
        typer.Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar."),
    ] = None,
    trajectories: common.Trajectories = None,
    budget: Annotated[int, typer.Option(min=1, help="Settings tried for each method.")] = 24,
    tune_at: Annotated[
        Optional[int],
        typer.Option(min=10, help="Tune once, with so many poses, instead of at each size."),
    ] = None,
    drives: common.KeptDrives = None,
    size: common.ImageSize = "320x240",
    dask: Dask = None,
    output: Results = None,
) -> None:
    """Section 6.3: the position's error against the size of the map, for all methods."""
    limit_threads(1)
    from kbf_localization.cli.console import print_line
    from kbf_localization.errors import ParameterError
    from kbf_localization.experiments import localization as experiment
    from kbf_localization.experiments.localization_drives import real_archives, rendered_drives
    from kbf_localization.experiments.localization_figure import FIGURE_NAME, write_files
    from kbf_localization.parallel import workers

    numbers, pixels = common.parse_sizes(sizes), parse_image_size(size)
    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    if cold is not None and trajectories is not None:
        raise ParameterError("--cold has its own trajectories: give it or --trajectories, not both")
    record = common.Record("localization", output, trials=trials, sizes=numbers, methods=names)
    staff = workers(jobs, dask)
    with common.rendering(drives) as (folder, progress):
        if cold is not None:
            setup = real_archives(cold, folder)
        else:
            setup = rendered_drives(folder, trajectories, pixels, seed, staff, progress)
        print_line(f"Data: {setup.description}")
        record.note(data=setup.description, budget=budget, tune_at=tune_at, seed=seed)
        outcome = experiment.run_trials(
            setup,
            trials=trials,
            sizes=numbers,
            methods=names,
            budget=budget,
            tune_at=tune_at,
            seed=seed,
            journals=record.folder.path,
            workers=staff,
            progress=progress,
        )
    metrics = experiment.metrics_of(outcome)
    record.folder.write_metrics(metrics)
    write_files(record.folder, outcome, metrics)
    captions = {FIGURE_NAME: f"Errors against the number of training poses; {setup.description}"}
    record.finish("Robot localization", [_table(metrics)], captions)


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
