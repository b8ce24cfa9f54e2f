"""The files of a comparison: `metrics.json`, and a page with errors on one axis and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kbf_localization.evaluation.compare import Comparison, Difference, summary
from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text
from kbf_localization.evaluation.report import Table, write_chart_report
from kbf_localization.evaluation.report_data import packed
from kbf_localization.evaluation.results import ResultsFolder

Differences = Mapping[str, Mapping[str, Difference]]


def write_comparison(
    folder: ResultsFolder,
    comparison: Comparison,
    differences: Differences,
    config: Mapping[str, Any],
) -> Path:
    """Write metrics, configuration and `report.html`; the page's path."""
    figures = comparison.figures()
    sentences = summary(comparison.labels, differences)
    folder.write_config(config)
    folder.write_metrics(
        {
            "reference": comparison.labels[0],
            "methods": figures,
            "differences": {
                label: {key: {**asdict(one), "verdict": one.verdict} for key, one in found.items()}
                for label, found in differences.items()
            },
            "summary": sentences,
        }
    )
    table = differences_table(comparison.labels[0], differences)
    data = {
        "labels": comparison.labels,
        "drives": [
            {
                "name": drive.name,
                "seconds": packed(drive.seconds),
                "errors": [packed(errors) for errors in drive.errors[0]],
            }
            for drive in comparison.drives
        ],
    }
    title = "Comparison of " + ", ".join(comparison.labels)
    return write_chart_report(folder, title, config, sentences, data, figures, table)


def differences_table(reference: str, differences: Differences) -> Table:
    """A line for each run and figure: the difference, 95 % of its resamples, and the verdict."""
    rows = [
        (
            label,
            METRIC_TEXTS[key].label,
            _signed(key, one.difference),
            f"{_signed(key, one.low)} to {_signed(key, one.high)}",
            one.verdict,
        )
        for label, found in differences.items()
        for key, one in found.items()
    ]
    columns = ("Run", "Metric", "Difference", "95 % of resamples", "Verdict")
    return Table(f"Differences to {reference}", columns, rows)


def _signed(key: str, value: float) -> str:
    return f"{'−' if value < 0 else '+'}{metric_text(key, abs(value))}"
