"""Proposition 1 of the paper: the error of the Mb-KSR falls as that of its input does.

The setting is that of section 6.1, where all errors are known in closed form. ℓ samples represent
the prior, and the NP-KSR learns from as many pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kbf_localization.arrays import Array
from kbf_localization.embeddings import KernelMean, NonparametricSumRule
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.sum_rule import (
    IDENTITY,
    KERNEL_X,
    KERNEL_Y,
    REGULARIZATIONS,
    Problem,
    draw_problem,
    error_against,
    linear_model,
    true_mean,
)
from kbf_localization.experiments.trials import draw_curve, plus_minus, summary, trials_text
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

TITLES = {"input": "input, samples of the prior", "mb_ksr": "Mb-KSR", "np_ksr": "NP-KSR, best ε"}


@dataclass(frozen=True)
class Errors:
    """RKHS errors of one trial at sample sizes (s,): of each estimator (s,), of NP-KSR (s, ε)."""

    sizes: Array
    input: Array
    mb_ksr: Array
    np_ksr: Array


def run_trial(sizes: Sequence[int], seed: np.random.SeedSequence) -> Errors:
    """Return the errors on the first ℓ samples of one problem, for each ℓ of `sizes`."""
    problem = draw_problem(np.random.default_rng(seed), max(sizes))
    input_error = error_against(true_mean(problem, 0.0 * IDENTITY, KERNEL_X))
    output_error = error_against(true_mean(problem, IDENTITY))
    model = linear_model(IDENTITY, IDENTITY)
    of_input, modelled, learnt = [], [], []
    for size in sizes:
        prior = KernelMean(problem.prior_points[:size], None, KERNEL_X)
        of_input.append(input_error(prior))
        modelled.append(output_error(model(prior)))
        learnt.append([output_error(mean) for mean in _learnt(problem, prior, size)])
    return Errors(np.array(sizes), np.array(of_input), np.array(modelled), np.array(learnt))


def _learnt(problem: Problem, prior: KernelMean, size: int) -> list[KernelMean]:
    """Return the NP-KSR's estimates from the first `size` pairs, for each ε of the paper."""
    inputs, outputs = problem.inputs[:size], problem.outputs[:size]
    return [
        NonparametricSumRule(inputs, outputs, KERNEL_X, KERNEL_Y, epsilon / KERNEL_X.at_zero())(
            prior
        )
        for epsilon in REGULARIZATIONS
    ]


def run_trials(
    trials: int,
    seed: int,
    sizes: Sequence[int],
    workers: Workers,
    progress: Progress = no_progress,
) -> list[Errors]:
    """Return the errors of each trial.

    The same seed gives the same numbers, however many workers.
    """
    seeds = np.random.SeedSequence(seed).spawn(trials)
    task = partial(run_trial, sorted(sizes))
    return list(tracked(workers.map(task, seeds), "convergence", progress, trials))


def curves(results: Sequence[Errors]) -> dict[str, Array]:
    """Return errors (trials, sizes) of each estimator; NP-KSR's with the ε best in the mean."""
    learnt = np.array([result.np_ksr for result in results])
    best = learnt.mean(axis=0).argmin(axis=1)
    return {
        "input": np.array([result.input for result in results]),
        "mb_ksr": np.array([result.mb_ksr for result in results]),
        "np_ksr": np.take_along_axis(learnt, best[None, :, None], axis=2)[..., 0],
    }


def slope(sizes: Array, errors: Array) -> dict[str, float]:
    """Return −α of error ∝ ℓ^(−α): the mean of the trials' slopes, and its standard error.

    `errors` (trials, sizes) are positive. One trial alone has no standard error (NaN).
    """
    logs = np.log(sizes) - np.log(sizes).mean()
    slopes = np.log(errors) @ logs / (logs @ logs)
    count = len(slopes)
    spread = float(slopes.std(ddof=1)) if count > 1 else float("nan")
    return {"slope": float(slopes.mean()), "standard_error": spread / np.sqrt(count)}


def metrics_of(results: Sequence[Errors]) -> dict[str, Any]:
    """Return what `metrics.json` holds: error by size, and the slope, of each estimator."""
    sizes = results[0].sizes
    return {"trials": len(results)} | {
        name: {
            **slope(sizes, errors),
            "errors": {str(size): summary(errors[:, i]) for i, size in enumerate(sizes)},
        }
        for name, errors in curves(results).items()
    }


def experiment_result(results: Sequence[Errors]) -> ExperimentResult:
    """Return the slopes, every error, and the curves on logarithmic axes."""
    metrics = metrics_of(results)
    sizes = [str(size) for size in results[0].sizes]
    rows = [
        (
            title,
            f"{metrics[name]['slope']:.3f} ± {metrics[name]['standard_error']:.3f}",
            *(plus_minus(metrics[name]["errors"][size]) for size in sizes),
        )
        for name, title in TITLES.items()
    ]
    columns = ("Estimator", "Slope ± standard error", *(f"ℓ = {size}" for size in sizes))
    raw = (
        (trial, name, size, error)
        for name, errors in curves(results).items()
        for trial, by_size in enumerate(errors)
        for size, error in zip(sizes, by_size, strict=True)
    )
    title = f"Errors in the RKHS norm, {trials_text(metrics['trials'])}"
    caption = "Errors of the sum rules against the number of samples, with fitted rates"
    return ExperimentResult(
        "Rates of convergence (Proposition 1)",
        metrics,
        tables=[Table(title, columns, rows)],
        csv={"convergence.csv": (("trial", "estimator", "samples", "rkhs_error"), raw)},
        plots={"convergence.png": (_draw(metrics), caption)},
    )


def _draw(metrics: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    for index, (name, title) in enumerate(TITLES.items()):
        label = f"{title}: slope {metrics[name]['slope']:.2f}"
        draw_curve(axes, label, metrics[name]["errors"], index)
    axes.set(xscale="log", yscale="log", xlabel="samples ℓ, and training pairs of the NP-KSR")
    axes.set_ylabel("error in the RKHS norm")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    return figure
