"""The files of the sum rules' experiment: raw errors as CSV and the four panels as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.sum_rule import Errors
from kbf_localization.experiments.trials import (
    draw_curve,
    finish_panel,
    save_figure,
    trials_text,
    write_csv,
)
from kbf_localization.training_map.picture import COLOURS

COMBINED_LABELS = {
    "np_np": "NP + NP",
    "np_mb": "NP + Mb",
    "np_mb_estimated": "NP + Mb (est)",
    "mb_np": "Mb + NP",
}


def write_files(
    folder: ResultsFolder, results: Sequence[Errors], metrics: Mapping[str, Any]
) -> None:
    """`errors.csv` (a row for each trial and estimator) and `sum_rule.png`, `.pdf` and `.svg`."""
    rows = [
        (trial, estimator, error)
        for trial, errors in enumerate(results)
        for estimator, error in errors.items()
    ]
    write_csv(folder, "errors.csv", ("trial", "estimator", "rkhs_error"), rows)
    save_figure(folder, "sum_rule.png", draw(metrics))


def draw(metrics: Mapping[str, Any]) -> Figure:
    """The four panels of the paper's figure."""
    figure = Figure(figsize=(10.0, 7.6), layout="constrained")
    (top_left, top_right), (bottom_left, bottom_right) = figure.subplots(2, 2)
    _draw_regularization(top_left, metrics)
    _draw_misspecification(
        top_right, metrics, "misspecified_mean", r"$p_M(y|x) = g(y\,|\,\sigma_1 Ax, \Sigma)$",
        r"scale of the mean, $\sigma_1$",
    )  # fmt: skip
    _draw_misspecification(
        bottom_left, metrics, "misspecified_noise", r"$p_M(y|x) = g(y\,|\,Ax, \sigma_2\Sigma)$",
        r"scale of the covariance, $\sigma_2$",
    )  # fmt: skip
    for index, (key, label) in enumerate(COMBINED_LABELS.items()):
        _draw_over_numbers(bottom_right, label, metrics["combined"][key], index)
    bottom_right.set(xscale="log", title="Two sum rules in a row")
    bottom_right.set_xlabel(r"regularization $\varepsilon$")
    for axes in (top_left, top_right, bottom_left, bottom_right):
        finish_panel(axes, "error in the RKHS norm")
    trials = trials_text(metrics["trials"])
    figure.suptitle(f"Kernel sum rules, mean ± standard deviation of {trials}")
    return figure


def _draw_regularization(axes: Axes, metrics: Mapping[str, Any]) -> None:
    _draw_over_numbers(axes, "NP-KSR", metrics["np_ksr"], 0)
    positions = [float(epsilon) for epsilon in metrics["np_ksr"]]
    for index, (key, label) in enumerate(
        {"mb_ksr": "Mb-KSR", "mb_ksr_estimated": "Mb-KSR (est)"}.items(), start=1
    ):
        draw_curve(axes, label, positions, [metrics[key]] * len(positions), index)
    axes.set(xscale="log", title="One sum rule")
    axes.set_xlabel(r"regularization $\varepsilon$")


def _draw_misspecification(
    axes: Axes, metrics: Mapping[str, Any], key: str, title: str, label: str
) -> None:
    _draw_over_numbers(axes, "Mb-KSR, misspecified", metrics[key], 1, place=0)
    for index, (estimator, name) in enumerate(
        {"np_ksr_best": "NP-KSR, best ε", "mb_ksr_estimated": "Mb-KSR (est)"}.items()
    ):
        axes.axhline(
            metrics[estimator]["mean"], color=COLOURS[2 * index], linestyle="--", label=name
        )
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    axes.set(title=title)
    axes.set_xlabel(label)


def _draw_over_numbers(
    axes: Axes,
    label: str,
    figures: Mapping[str, Mapping[str, float]],
    index: int,
    place: int | None = None,
) -> None:
    """A curve over the numbers that are the keys of `figures`."""
    draw_curve(axes, label, [float(key) for key in figures], list(figures.values()), index, place)
