"""What the sum rules' experiment found: a table, raw errors, and the four panels of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.findings import Findings
from kbf_localization.experiments.sum_rule import Errors, metrics_of
from kbf_localization.experiments.trials import draw_curve, finish_panel, plus_minus, trials_text
from kbf_localization.training_map.picture import COLOURS

COMBINED_LABELS = {
    "np_np": "NP + NP",
    "np_mb": "NP + Mb",
    "np_mb_estimated": "NP + Mb (est)",
    "mb_np": "Mb + NP",
}


def findings(results: Sequence[Errors]) -> Findings:
    """The table, a row of `errors.csv` for each trial and estimator, and the paper's figure."""
    metrics = metrics_of(results)
    errors = (
        (trial, estimator, error)
        for trial, errors in enumerate(results)
        for estimator, error in errors.items()
    )
    return Findings(
        "The sum rules where the truth is known",
        metrics,
        tables=[_table(metrics)],
        csv={"errors.csv": (("trial", "estimator", "rkhs_error"), errors)},
        pictures={
            "sum_rule.png": (
                _draw(metrics),
                "Errors of the sum rules, as in the paper's figure of section 6.1",
            )
        },
    )


def _table(metrics: Mapping[str, Any]) -> Table:
    rows = [(name, plus_minus(metrics[name])) for name in ("mb_ksr", "mb_ksr_estimated")]
    best = metrics["np_ksr_best"]
    rows.append((f"np_ksr_best (ε = {best['epsilon']:g})", plus_minus(best)))
    groups = {key: metrics[key] for key in ("np_ksr", "misspecified_mean", "misspecified_noise")}
    for group, figures in (groups | metrics["combined"]).items():
        rows += [(f"{group} {key}", plus_minus(figure)) for key, figure in figures.items()]
    title = f"Errors in the RKHS norm, {trials_text(metrics['trials'])}"
    return Table(title, ("Estimator", "Mean ± std"), rows)


def _draw(metrics: Mapping[str, Any]) -> Figure:
    """The four panels of the paper's figure."""
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
