"""Write the measured figures in the pages from the files that commands wrote.

Usage: .venv/bin/python tools/make_docs_figures.py [NAME RESULTS]     (`make docs-figures`)

With NAME and RESULTS, a folder of results, its metrics become docs/figures/NAME.json first. In a
page, what stands below or behind these lines is written from the file:

    <!-- figures/tutorial.json: position_rmse_m frames -->       a row a metric, a column a method
    <!-- figures/demo.json rows: position_rmse_m frames -->      a row a method (and map size)
    <!-- figures/demo.json mapping.ate_rmse_m -->0.07 m<!-- -->  one figure in a sentence

A test finds what differs from its file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kbf_localization import __version__
from kbf_localization.evaluation.metric_texts import (
    METRIC_TEXTS,
    metric_text,
    number_text,
    percent_text,
    unit_of,
)
from kbf_localization.filters.methods import TITLES

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
PAGES = (PROJECT / "README.md", *sorted(DOCS.glob("*.md")))
TABLE = re.compile(r"(<!-- (figures/[\w-]+\.json)( rows)?: ([\w ]+?) -->\n\n).*?(?=\n\n|\Z)", re.S)
FIGURE = re.compile(r"(<!-- (figures/[\w-]+\.json) ([\w.-]+) -->)[^\n]*?(<!-- -->)")
LEFT_OUT = ("conditions", "sources", "speed", "warnings")
"""Of metrics.json: what no page shows."""
ROW_TITLES = {**TITLES, "node": "the node", "kbf": "kernel Bayes filter"}


def take(name: str, results: Path) -> Path:
    """Keep the metrics of a run, and the command and version that measured them."""
    metrics = json.loads((results / "metrics.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8"))
    kept = {key: value for key, value in metrics.items() if key not in LEFT_OUT}
    content = {"command": config["command"], "version": __version__, "metrics": kept}
    path = DOCS / "figures" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def by_metric(metrics: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the table with a row for each metric and a column for each method."""
    methods = metrics["methods"]
    rows = [["", *methods], ["---"] * (1 + len(methods))]
    for key in keys:
        texts = [metric_text(key, values.get(key)) for values in methods.values()]
        rows.append([METRIC_TEXTS[key].label, *texts])
    return written(rows)


def by_method(metrics: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the table with a row for each method, of each size of the map in an experiment."""
    sized = "methods" not in metrics
    labels = [METRIC_TEXTS[key].label + (" [m]" if unit_of(key) == "m" else "") for key in keys]
    rows = [[*(["n"] if sized else []), "method", *labels]]
    rows.append(["---"] * len(rows[0]))
    for size, methods in metrics.items() if sized else [("", metrics["methods"])]:
        rows += [
            [*([size] if sized else []), ROW_TITLES.get(method, method), *cells(values, keys)]
            for method, values in methods.items()
        ]
    return written(rows)


def cells(values: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    return (plain(key, values.get(key)) for key in keys)


def plain(key: str, value: Any) -> str:
    """Return a figure without its unit, with its standard deviation where it is a mean."""
    if value is None:
        return ""
    mean, std = (value["mean"], value["std"]) if isinstance(value, dict) else (value, None)
    if "share" in key:
        return percent_text(mean)
    if unit_of(key) != "m":
        return f"{mean:.1f}°" if unit_of(key) == "°" else number_text(mean)
    digits = 3 if abs(mean) < 0.1 else 2
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")


def written(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def filled(page: str) -> str:
    """Return the text of a page with every table and figure as its file has it."""

    def metrics_of(file: str) -> dict[str, Any]:
        content = json.loads((DOCS / file).read_text(encoding="utf-8"))
        return dict(content["metrics"])

    def table(found: re.Match[str]) -> str:
        make = by_method if found[3] else by_metric
        return found[1] + make(metrics_of(found[2]), found[4].split())

    def figure(found: re.Match[str]) -> str:
        value: Any = metrics_of(found[2])
        *_, key = names = found[3].split(".")
        for name in names:
            value = value[name]
        unit = " m" if unit_of(key) == "m" else ""
        return f"{found[1]}{plain(key, value)}{unit}{found[4]}"

    return FIGURE.sub(figure, TABLE.sub(table, page))


def main() -> None:
    if len(sys.argv) == 3:
        print(take(sys.argv[1], Path(sys.argv[2])))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            path.write_text(filled(text), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
