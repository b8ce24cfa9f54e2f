"""kbf experiment ablation: what each part of the filter is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import ImageSize, Jobs, Results, Seed, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def ablation(
    trials: common.Trials = 5,
    offices: common.Buildings = 2,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: common.Sizes = "200,800",
    trajectories: common.Trajectories = None,
    drives: common.KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
) -> None:
    """The error of localization with one part of the filter left out after the other.

    Example: `kbf experiment ablation --trials 2 --sizes 200`
    """
    limit_threads(1)
    from kbf_localization.experiments.ablation import FIGURES, metrics_of, run_trials
    from kbf_localization.experiments.localization_drives import rendered_drives
    from kbf_localization.experiments.trials import write_csv
    from kbf_localization.parallel import make_workers

    numbers, pixels = common.parse_sizes(sizes), parse_image_size(size)
    record = common.Record("ablation", output, trials=trials, seed=seed, sizes=numbers)
    record.note(offices=offices, size=size, trajectories=trajectories)
    workers = make_workers(jobs)
    with common.rendering(drives) as (folder, progress):
        setups = [
            rendered_drives(folder, trajectories, pixels, number, workers, progress)
            for number in range(seed, seed + offices)
        ]
        results = run_trials(
            setups, trials=trials, sizes=numbers, seed=seed, workers=workers, progress=progress
        )
    metrics = metrics_of(results)
    write_csv(
        record.folder,
        "ablation.csv",
        ("variant", "poses", "office", "choice", *FIGURES),
        (
            (one.method, one.poses, one.place, one.choice, *(one.figures[key] for key in FIGURES))
            for one in results
        ),
    )
    record.finish("Parts left out", metrics, [_table(metrics)])


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus

    rows = [
        (
            f"n = {size}, {name.replace('_', ' ')}",
            plus_minus(figures["position_rmse_m"], 2),
            plus_minus(figures["position_median_m"], 3),
            plus_minus(figures["share_beyond_1m"], 1, 100.0),
        )
        for size, by_variant in metrics.items()
        for name, figures in by_variant.items()
    ]
    columns = ("Map and filter", "RMSE [m]", "Median [m]", "Beyond 1 m [%]")
    return Table("Each part left out in turn, mean ± std over offices and choices", columns, rows)
