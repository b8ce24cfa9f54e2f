"""The result of an experiment: metrics, tables, raw data as CSV, plots, and a report."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from kbf_localization.evaluation.report import Plot, Table, write_simple_report
from kbf_localization.evaluation.results import ResultsFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNDATED = {".png": None, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""No date is in a plot: the same data give the same files."""


@dataclass(frozen=True)
class ExperimentResult:
    """What was found: `metrics` as `metrics.json` holds them, and `tables` of them.

    `csv` has files of raw data by their names, each a header and rows; `plots` has figures by
    their PNG files' names, each with its caption.
    """

    title: str
    metrics: Mapping[str, Any]
    tables: Sequence[Table]
    csv: Mapping[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = field(default_factory=dict)
    plots: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)

    def write(self, folder: ResultsFolder, config: Mapping[str, Any]) -> Path:
        """Write all files, plots also as PDF and SVG for papers; return the report's path."""
        from matplotlib import rc_context

        folder.write_metrics(self.metrics)
        for name, (header, rows) in self.csv.items():
            with (
                folder.writing(name) as temporary,
                temporary.open("w", newline="", encoding="utf-8") as file,
            ):
                writer = csv.writer(file)
                writer.writerow(header)
                writer.writerows(rows)
        for name, (figure, _) in self.plots.items():
            for suffix, metadata in UNDATED.items():
                path = str(PurePath(name).with_suffix(suffix))
                with folder.writing(path) as temporary, rc_context({"svg.hashsalt": name}):
                    figure.savefig(temporary, dpi=150, format=suffix[1:], metadata=metadata)
        plots = [Plot(folder.file(name), caption) for name, (_, caption) in self.plots.items()]
        return write_simple_report(folder, self.title, config, tables=self.tables, plots=plots)
