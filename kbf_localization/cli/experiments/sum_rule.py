"""kbf experiment sum-rule: section 6.1 of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import Jobs, Results, Seed
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def sum_rule(
    trials: common.Trials = 30, seed: Seed = 0, jobs: Jobs = -1, output: Results = None
) -> None:
    """Section 6.1: the sum rules' exact errors where the truth is known in closed form.

    Example: `kbf experiment sum-rule --trials 30`
    """
    limit_threads(1)
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.experiments.sum_rule import metrics_of, run_trials
    from kbf_localization.experiments.sum_rule_figure import write_files
    from kbf_localization.parallel import make_workers

    record = common.Record("sum-rule", output, trials=trials, seed=seed)
    with show_progress() as progress:
        results = run_trials(trials, seed, make_workers(jobs), progress)
    metrics = metrics_of(results)
    write_files(record.folder, results, metrics)
    captions = {"sum_rule.png": "Errors of the sum rules, as in the paper's figure of section 6.1"}
    record.finish("The sum rules where the truth is known", metrics, [_table(metrics)], captions)


def _table(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus, trials_text

    rows = [(name, plus_minus(metrics[name])) for name in ("mb_ksr", "mb_ksr_estimated")]
    best = metrics["np_ksr_best"]
    rows.append((f"np_ksr_best (ε = {best['epsilon']:g})", plus_minus(best)))
    for group in ("np_ksr", "misspecified_mean", "misspecified_noise"):
        rows += [(f"{group} {key}", plus_minus(figure)) for key, figure in metrics[group].items()]
    for name, by_epsilon in metrics["combined"].items():
        rows += [(f"{name} {key}", plus_minus(figure)) for key, figure in by_epsilon.items()]
    title = f"Errors in the RKHS norm, {trials_text(metrics['trials'])}"
    return Table(title, ("Estimator", "Mean ± std"), rows)
