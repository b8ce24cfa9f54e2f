"""Section 6.1 of the paper: the sum rules where the true kernel mean is known in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from kbf_localization.arrays import Array
from kbf_localization.embeddings import (
    AffineMap,
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    MixtureNoise,
    ModelBasedSumRule,
    NonparametricSumRule,
)
from kbf_localization.evaluation.map_plot import COLOURS
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.trials import (
    draw_curve,
    finish_panel,
    nested_summaries,
    plus_minus,
    trials_text,
)
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

REGULARIZATIONS = (0.1, 0.05, 0.01, 0.005, 0.001, 0.0005, 0.0001, 0.00005)
MEAN_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
NOISE_FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SAMPLES = 500
COMPONENTS = 4

Errors = dict[str, float]
IDENTITY = np.eye(2)
KERNEL_X, KERNEL_Y = GaussianKernel(0.1 * IDENTITY), GaussianKernel(IDENTITY)
KERNEL_BETWEEN, KERNEL_Z = KERNEL_X, KERNEL_Y
"""Of y and z where two rules are chained. The paper does not give them: with 0.1·I between the
rules NP + Mb and Mb + NP overlap, as its caption says; with I Mb + NP is a third better."""


@dataclass(frozen=True)
class Problem:
    """One trial's data: prior sample X̃, pairs (X, Y) and (Y, Z), and the prior's parameters."""

    prior_points: Array
    inputs: Array
    outputs: Array
    second_inputs: Array
    second_outputs: Array
    means: Array
    covariances: Array


def draw_problem(generator: np.random.Generator, samples: int = SAMPLES) -> Problem:
    """Return the paper's distributions: A = Σ = I, a prior of four random Gaussians."""
    means = generator.uniform(-5.0, 5.0, (COMPONENTS, 2))
    factors = generator.uniform(-2.0, 2.0, (COMPONENTS, 2, 2))
    covariances = np.swapaxes(factors, 1, 2) @ factors
    which = generator.integers(COMPONENTS, size=samples)
    # W = UᵀU, so Uᵀ times a standard normal has the covariance W.
    normal = generator.standard_normal((samples, 2))
    prior_points = means[which] + np.einsum("nji,nj->ni", factors[which], normal)
    inputs, second_inputs = generator.uniform(-10.0, 10.0, (2, samples, 2))
    return Problem(
        prior_points=prior_points,
        inputs=inputs,
        outputs=inputs + generator.standard_normal((samples, 2)),
        second_inputs=second_inputs,
        second_outputs=second_inputs + generator.standard_normal((samples, 2)),
        means=means,
        covariances=covariances,
    )


def true_mean(problem: Problem, noise: Array, kernel: GaussianKernel = KERNEL_Y) -> KernelMean:
    """Return the exact kernel mean of the prior after steps with total covariance `noise`."""
    parts = [
        GaussianNoise(covariance + noise, mean)
        for mean, covariance in zip(problem.means, problem.covariances)
    ]
    mixture = MixtureNoise(np.full(COMPONENTS, 1.0 / COMPONENTS), parts)
    return KernelMean(np.zeros((1, 2)), [1.0], kernel, mixture)


def error_against(truth: KernelMean) -> Callable[[KernelMean], float]:
    """Return ‖m − truth‖ in the RKHS as a function of m, the truth's norm computed once."""
    constant = truth.inner(truth)

    def error(estimate: KernelMean) -> float:
        squared = estimate.inner(estimate) - 2.0 * estimate.inner(truth) + constant
        return float(np.sqrt(max(squared, 0.0)))

    return error


def linear_model(
    matrix: Array, covariance: Array, kernel: GaussianKernel = KERNEL_Y
) -> ModelBasedSumRule:
    """Return p_M(y | x) = g(y | Ax, Σ)."""
    return ModelBasedSumRule(AffineMap(matrix), GaussianNoise(covariance), kernel)


def estimated_model(inputs: Array, outputs: Array) -> ModelBasedSumRule:
    """Return the linear Gaussian model of greatest likelihood for the pairs."""
    matrix = np.linalg.lstsq(inputs, outputs, rcond=None)[0].T
    residuals = outputs - inputs @ matrix.T
    return linear_model(matrix, residuals.T @ residuals / len(inputs))


def run_trial(seed: np.random.SeedSequence) -> Errors:
    """Return all errors of one trial; a key such as `combined/np_mb/0.01` says which."""
    problem = draw_problem(np.random.default_rng(seed))
    prior = KernelMean(problem.prior_points, None, KERNEL_X)
    learnt = {}
    for epsilon in REGULARIZATIONS:
        # The paper's ε is absolute, the rule's in units of k(x, x).
        relative = epsilon / KERNEL_X.at_zero()
        rule = NonparametricSumRule(problem.inputs, problem.outputs, KERNEL_X, KERNEL_Y, relative)
        learnt[epsilon] = rule(prior)
    return _single_rule(problem, prior, learnt) | _combined_rules(problem, prior, learnt)


def _single_rule(problem: Problem, prior: KernelMean, learnt: Mapping[float, KernelMean]) -> Errors:
    """Return errors of one sum rule x → y: NP for each ε, Mb true, estimated and misspecified."""
    error = error_against(true_mean(problem, IDENTITY))
    errors: Errors = {
        "mb_ksr": error(linear_model(IDENTITY, IDENTITY)(prior)),
        "mb_ksr_estimated": error(estimated_model(problem.inputs, problem.outputs)(prior)),
    }
    for epsilon, mean in learnt.items():
        errors[f"np_ksr/{epsilon:g}"] = error(mean)
    for factor in MEAN_FACTORS:
        model = linear_model(factor * IDENTITY, IDENTITY)
        errors[f"misspecified_mean/{factor:g}"] = error(model(prior))
    for factor in NOISE_FACTORS:
        model = linear_model(IDENTITY, factor * IDENTITY)
        errors[f"misspecified_noise/{factor:g}"] = error(model(prior))
    return errors


def _combined_rules(
    problem: Problem, prior: KernelMean, learnt: Mapping[float, KernelMean]
) -> Errors:
    """Return errors of two sum rules in a row, x → y → z, for each ε."""
    inputs, outputs = problem.second_inputs, problem.second_outputs
    error = error_against(true_mean(problem, 2.0 * IDENTITY))
    model, estimated = linear_model(IDENTITY, IDENTITY), estimated_model(inputs, outputs)
    modelled = linear_model(IDENTITY, IDENTITY, KERNEL_BETWEEN)(prior)
    errors: Errors = {}
    for epsilon, learnt_mean in learnt.items():
        # The weights of the first rule do not depend on the kernel of y.
        mean = KernelMean(learnt_mean.points, learnt_mean.weights, KERNEL_BETWEEN)
        relative = epsilon / KERNEL_BETWEEN.at_zero()
        second = NonparametricSumRule(inputs, outputs, KERNEL_BETWEEN, KERNEL_Z, relative)
        errors[f"combined/np_np/{epsilon:g}"] = error(second(mean))
        errors[f"combined/np_mb/{epsilon:g}"] = error(model(mean))
        errors[f"combined/np_mb_estimated/{epsilon:g}"] = error(estimated(mean))
        errors[f"combined/mb_np/{epsilon:g}"] = error(second(modelled))
    return errors


def run_trials(
    trials: int, seed: int, workers: Workers, progress: Progress = no_progress
) -> list[Errors]:
    """Return the errors of each trial.

    The same seed gives the same numbers, however many workers.
    """
    seeds = np.random.SeedSequence(seed).spawn(trials)
    return list(tracked(workers.map(run_trial, seeds), "sum rules", progress, trials))


def metrics_of(results: Sequence[Errors]) -> dict[str, Any]:
    """Return what `metrics.json` holds: mean and deviation over the trials, nested by the keys."""
    values = nested_summaries(
        (key.split("/"), error) for errors in results for key, error in errors.items()
    )
    metrics = {"trials": len(results), **values}
    by_epsilon = metrics["np_ksr"]
    best = min(by_epsilon, key=lambda epsilon: by_epsilon[epsilon]["mean"])
    metrics["np_ksr_best"] = {**by_epsilon[best], "epsilon": float(best)}
    return metrics


MODEL_BASED_LABELS = {"mb_ksr": "Mb-KSR", "mb_ksr_estimated": "Mb-KSR (est)"}
SWEPT_LABELS = {
    "np_ksr": "NP-KSR, ε =",
    "misspecified_mean": "Mb-KSR, mean scaled by σ₁ =",
    "misspecified_noise": "Mb-KSR, covariance scaled by σ₂ =",
}
COMBINED_LABELS = {
    "np_np": "NP + NP",
    "np_mb": "NP + Mb",
    "np_mb_estimated": "NP + Mb (est)",
    "mb_np": "Mb + NP",
}


def experiment_result(results: Sequence[Errors]) -> ExperimentResult:
    """Return the table, the paper's figure, and a row of `errors.csv` a trial and estimator."""
    metrics = metrics_of(results)
    errors = (
        (trial, estimator, error)
        for trial, errors in enumerate(results)
        for estimator, error in errors.items()
    )
    return ExperimentResult(
        "The sum rules where the truth is known",
        metrics,
        tables=[_table(metrics)],
        csv={"errors.csv": (("trial", "estimator", "rkhs_error"), errors)},
        plots={
            "sum_rule.png": (
                _draw(metrics),
                "Errors of the sum rules, as in the paper's figure of section 6.1",
            )
        },
    )


def _table(metrics: Mapping[str, Any]) -> Table:
    rows = [(label, plus_minus(metrics[key])) for key, label in MODEL_BASED_LABELS.items()]
    best = metrics["np_ksr_best"]
    rows.append((f"NP-KSR, best ε = {best['epsilon']:g}", plus_minus(best)))
    groups = {label: metrics[key] for key, label in SWEPT_LABELS.items()} | {
        f"{label}, ε =": metrics["combined"][key] for key, label in COMBINED_LABELS.items()
    }
    for group, values in groups.items():
        rows += [(f"{group} {key}", plus_minus(figure)) for key, figure in values.items()]
    title = f"Errors in the RKHS norm, {trials_text(metrics['trials'])}"
    return Table(title, ("Estimator", "Mean ± std"), rows)


def _draw(metrics: Mapping[str, Any]) -> Figure:
    """Return the four panels of the paper's figure."""
    figure = Figure(figsize=(10.0, 7.6), layout="constrained")
    one_rule, wrong_mean, wrong_noise, two_rules = figure.subplots(2, 2).flat
    draw_curve(one_rule, "NP-KSR", metrics["np_ksr"], 0)
    draw_curve(one_rule, "Mb-KSR", dict.fromkeys(metrics["np_ksr"], metrics["mb_ksr"]), 1)
    estimated = metrics["mb_ksr_estimated"]
    draw_curve(one_rule, "Mb-KSR (est)", dict.fromkeys(metrics["np_ksr"], estimated), 2)
    for index, (key, label) in enumerate(COMBINED_LABELS.items()):
        draw_curve(two_rules, label, metrics["combined"][key], index)
    for axes, title in ((one_rule, "One sum rule"), (two_rules, "Two sum rules in a row")):
        axes.set(xscale="log", title=title, xlabel=r"regularization $\varepsilon$")
    for axes, key in ((wrong_mean, "misspecified_mean"), (wrong_noise, "misspecified_noise")):
        draw_curve(axes, "Mb-KSR, misspecified", metrics[key], 1, place=0)
        best = metrics["np_ksr_best"]["mean"]
        axes.axhline(best, color=COLOURS[0], linestyle="--", label="NP-KSR, best ε")
        axes.axhline(estimated["mean"], color=COLOURS[2], linestyle="--", label="Mb-KSR (est)")
        axes.axvline(1.0, color="0.4", linewidth=0.8)
    wrong_mean.set(
        title=r"$p_M(y|x) = g(y\,|\,\sigma_1 Ax, \Sigma)$",
        xlabel=r"scale of the mean, $\sigma_1$",
    )
    wrong_noise.set(
        title=r"$p_M(y|x) = g(y\,|\,Ax, \sigma_2\Sigma)$",
        xlabel=r"scale of the covariance, $\sigma_2$",
    )
    for axes in figure.axes:
        finish_panel(axes, "error in the RKHS norm")
    trials = trials_text(metrics["trials"])
    figure.suptitle(f"Kernel sum rules, mean ± standard deviation of {trials}")
    return figure
