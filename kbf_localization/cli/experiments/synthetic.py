"""kbf experiment synthetic: section 6.2 of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import Jobs, Results, Seed
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def synthetic(
    trials: common.Trials = 30,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: common.Sizes = "50,100,200",
    output: Results = None,
) -> None:
    """Section 6.2: filtering with the model-based and the non-parametric sum rule, two grids.

    Example: `kbf experiment synthetic --trials 3`
    """
    limit_threads(1)
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.experiments.synthetic import GRIDS, metrics_of, run_trials
    from kbf_localization.experiments.synthetic_figure import write_files
    from kbf_localization.parallel import make_workers

    numbers = common.parse_sizes(sizes)
    record = common.Record("synthetic", output, trials=trials, seed=seed, sizes=numbers)
    record.note(grids={name: vars(grid) for name, grid in GRIDS.items()})
    with show_progress() as progress:
        outcomes = run_trials(trials, seed, numbers, make_workers(jobs), progress)
    metrics = metrics_of(outcomes)
    write_files(record.folder, outcomes, metrics, trials)
    captions = {
        "synthetic.png": "Mean squared errors over the number of training pairs (section 6.2)",
        "weights.png": "Weights on the training points at one time, positive and negative",
    }
    record.finish("Filtering in a synthetic world", metrics, [_table(metrics)], captions)


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus

    rows = [
        (
            f"{grid} {setting}",
            size,
            plus_minus(figures["kbf"]),
            plus_minus(figures["fkbf"]),
            figures["fkbf"]["mean"] / figures["kbf"]["mean"],
        )
        for grid, panels in metrics.items()
        for setting, by_size in panels.items()
        for size, figures in by_size.items()
    ]
    columns = ("Grid and panel", "n", "KBF, MSE", "fKBF, MSE", "fKBF / KBF")
    return Table("Synthetic filtering", columns, rows)
