"""kbf experiment localization: section 6.3 of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

from typer import Option

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import (
    Computers,
    ImageSize,
    ManyMethods,
    Results,
    Seed,
    chosen_methods,
    parse_image_size,
    takes_groups,
)
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table

_COLD = Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar.")
_TUNE_AT = Option(min=10, help="Tune once, with so many poses, instead of at each size.")


@takes_groups
def localization(
    trials: common.Trials = 10,
    seed: Seed = 0,
    sizes: common.Sizes = "100,200,400,800",
    methods: ManyMethods = None,
    cold: Annotated[Optional[Path], _COLD] = None,
    trajectories: common.Trajectories = None,
    budget: common.Budget = 24,
    tune_at: Annotated[Optional[int], _TUNE_AT] = None,
    drives: common.KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
    *,
    computers: Computers,
) -> None:
    """Section 6.3: the position's error against the size of the map, for all methods.

    Example: `kbf experiment localization --trials 3 --sizes 100,400`. The paper's own data:
    `kbf experiment localization --cold COLD`
    """
    limit_threads(1)
    from kbf_localization.cli.console import print_line
    from kbf_localization.errors import ParameterError
    from kbf_localization.experiments import localization as experiment
    from kbf_localization.experiments.localization_drives import real_archives, rendered_drives
    from kbf_localization.experiments.localization_figure import FIGURE_NAME, write_files

    numbers, pixels = common.parse_sizes(sizes), parse_image_size(size)
    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    if cold is not None and trajectories is not None:
        raise ParameterError("--cold has its own trajectories: give it or --trajectories, not both")
    settings: dict[str, Any] = {"trials": trials, "sizes": numbers, "methods": names}
    settings |= {"budget": budget, "tune_at": tune_at, "seed": seed}
    record = common.Record("localization", output, **settings)
    workers = computers.workers()
    with common.rendering(drives) as (folder, progress):
        if cold is not None:
            setup = real_archives(cold, folder)
        else:
            setup = rendered_drives(folder, trajectories, pixels, seed, workers, progress)
        print_line(f"Data: {setup.description}")
        record.note(data=setup.description)
        journals = record.folder.path
        outcome = experiment.run_trials(
            setup, **settings, journals=journals, workers=workers, progress=progress
        )
    metrics = experiment.metrics_of(outcome)
    write_files(record.folder, outcome, metrics)
    captions = {FIGURE_NAME: f"Errors against the number of training poses; {setup.description}"}
    record.finish("Robot localization", metrics, [_table(metrics)], captions)


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus

    rows = [
        (
            f"n = {size}, {method}",
            plus_minus(figures["position_rmse_m"], 2),
            plus_minus(figures["position_median_m"], 2),
            f"{100 * figures['share_beyond_1m']['mean']:.1f} %",
            plus_minus(figures["highest_weight_median_m"], 2),
        )
        for size, by_method in metrics.items()
        for method, figures in by_method.items()
    ]
    columns = ("Map and method", "RMSE [m]", "Median [m]", "Beyond 1 m", "Median, highest weight")
    return Table("Robot localization, mean ± std over choices of poses", columns, rows)
