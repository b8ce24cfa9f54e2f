"""The figure and tables of the localization experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments.localization import FIGURES, UNTUNED, Outcome
from kbf_localization.experiments.trials import draw_curve, save_figure, write_csv
from kbf_localization.filters.registry import TITLES

FIGURE_NAME = "localization.png"


def write_files(folder: ResultsFolder, outcome: Outcome, metrics: Mapping[str, Any]) -> None:
    """`localization.csv` with every trial, `tuned.csv`, and the paper's figure."""
    write_csv(
        folder,
        "localization.csv",
        ("test_drive", "poses", "method", "choice", *FIGURES),
        (
            (one.place, one.poses, one.method, one.choice, *(one.figures[key] for key in FIGURES))
            for one in outcome.trials
        ),
    )
    write_csv(
        folder,
        "tuned.csv",
        ("test_drive", "poses", "method", "cross_validated_rmse_m", "parameter", "value"),
        (
            (fold, poses, method, tuned.rmse_m, name, value)
            for fold, by_size in outcome.tuned.items()
            for poses, by_method in by_size.items()
            for method, tuned in by_method.items()
            for name, value in (
                *tuned.parameters.items(),
                ("defaults_rmse_m", tuned.default_rmse_m),
            )
        ),
    )
    _draw(folder, metrics)


def _draw(folder: ResultsFolder, metrics: Mapping[str, Any]) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    sizes = [int(key) for key in metrics]
    methods = [name for name in next(iter(metrics.values())) if name != UNTUNED]
    labels = {"position_rmse_m": "RMSE of the position [m]", "position_median_m": "Median [m]"}
    for axes, (key, label) in zip(panels, labels.items(), strict=True):
        for index, method in enumerate(methods):
            figures = [metrics[str(size)][method][key] for size in sizes]
            draw_curve(axes, TITLES[method], sizes, figures, index)
        axes.set_xlabel("Training poses n")
        axes.set_ylabel(label)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
    panels[1].legend(fontsize="small")
    save_figure(folder, FIGURE_NAME, figure)
