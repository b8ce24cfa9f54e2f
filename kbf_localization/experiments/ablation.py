"""What each part of the filter is worth: localization with one part left out after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.localization_drives import Setup
from kbf_localization.experiments.trials import Trial, plus_minus, summaries
from kbf_localization.filters.hypothesis_filter import HypothesisFilter, Parts
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map.view import view_parameters

FIGURES = ("position_rmse_m", "position_median_m", "share_beyond_1m")


@dataclass(frozen=True)
class Variant:
    """The filter with some of its parts; the map has learned with the same ones."""

    parts: Parts = Parts()  # noqa: RUF009 (frozen)
    bayes_rule: bool = True
    read_out: bool = True


VARIANTS: Mapping[str, Variant] = {
    "everything": Variant(),
    "one_hypothesis": Variant(Parts(many=False)),
    "no_elsewhere": Variant(Parts(elsewhere=False)),
    "no_read_out": Variant(read_out=False),
    "plain_weights": Variant(bayes_rule=False),
    "fixed_gain": Variant(Parts(kalman=False)),
}
"""All of it, and each part left out in turn."""


def run_trials(
    setups: Sequence[Setup],
    *,
    trials: int,
    sizes: Sequence[int],
    seed: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> list[Trial]:
    """Every variant on the same `trials` random maps of each size, in each office."""
    results: list[Trial] = []
    for office, setup in enumerate(setups):
        for fold in setup.folds:
            pool = fold.describe(seed, workers, progress)
            task = partial(_run, pool, len(fold.training), office, seed)
            items = [(name, n, k) for n in sizes for k in range(trials) for name in VARIANTS]
            doing = f"parts left out, office {office + 1} of {len(setups)}"
            results += tracked(workers.map(task, items), doing, progress, len(items))
    return results


def _run(
    pool: FramePool, training_drives: int, office: int, seed: int, item: tuple[str, int, int]
) -> Trial:
    """One variant on one random map of so many poses."""
    name, poses, choice = item
    variant = VARIANTS[name]
    if not variant.read_out:
        pool = _without_word_grids(pool)
    chosen = pool.random_map(
        range(training_drives),
        poses,
        seed + 100_000 + choice,
        {"kbf.bayes_rule": float(variant.bayes_rule)},
    )
    pose_filter = HypothesisFilter(chosen, view_parameters(chosen.parameters), variant.parts)
    run = replay(pool.drive(training_drives), Localizer(chosen, pose_filter))
    return Trial(str(office), poses, name, choice, trajectory_metrics(run))


def _without_word_grids(pool: FramePool) -> FramePool:
    """The same frames, from which no offset can be read."""
    described = {
        row: replace(one, image=replace(one.image, words=None))
        for row, one in pool.described.items()
    }
    return replace(pool, described=described)


def findings(trials: Sequence[Trial]) -> Findings:
    """The figures over offices and choices, and every trial."""
    metrics = summaries(trials, FIGURES)
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
    title = "Each part left out in turn, mean ± std over offices and choices"
    columns = ("Map and filter", "RMSE [m]", "Median [m]", "Beyond 1 m [%]")
    header = ("variant", "poses", "office", "choice", *FIGURES)
    raw = (
        (one.method, one.poses, one.place, one.choice, *(one.figures[key] for key in FIGURES))
        for one in trials
    )
    return Findings(
        "Parts left out",
        metrics,
        tables=[Table(title, columns, rows)],
        csv={"ablation.csv": (header, raw)},
    )
