"""kbf experiment ablation: what each part of the filter is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import Jobs, Results, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def ablation(
    trials: common.Trials = 5,
    offices: Annotated[int, typer.Option(min=1, help="Offices, of consecutive seeds.")] = 2,
    seed: common.Seed = 0,
    jobs: Jobs = -1,
    sizes: common.Sizes = "200,800",
    trajectories: common.Trajectories = None,
    drives: common.KeptDrives = None,
    size: common.ImageSize = "320x240",
    output: Results = None,
) -> None:
    """The error of localization with one part of the filter left out after the other."""
    limit_threads(1)
    from kbf_localization.experiments.ablation import FIGURES, metrics_of, run_trials
    from kbf_localization.experiments.localization_drives import rendered_drives
    from kbf_localization.experiments.trials import write_csv
    from kbf_localization.parallel import workers

    numbers, pixels = common.parse_sizes(sizes), parse_image_size(size)
    record = common.Record("ablation", output, trials=trials, seed=seed, sizes=numbers)
    record.note(offices=offices, size=size, trajectories=trajectories)
    staff = workers(jobs)
    with common.rendering(drives) as (folder, progress):
        setups = [
            rendered_drives(folder, trajectories, pixels, number, staff, progress)
            for number in range(seed, seed + offices)
        ]
        results = run_trials(
            setups, trials=trials, sizes=numbers, seed=seed, workers=staff, progress=progress
        )
    metrics = metrics_of(results)
    record.folder.write_metrics(metrics)
    write_csv(
        record.folder,
        "ablation.csv",
        ("variant", "poses", "office", "choice", *FIGURES),
        (
            (one.variant, one.poses, one.office, one.choice, *(one.figures[key] for key in FIGURES))
            for one in results
        ),
    )
    record.finish("Parts left out", [_table(metrics)])


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
