"""Write the tables of measured figures in the pages from the files that commands wrote.

Usage: .venv/bin/python tools/make_docs_figures.py [NAME RESULTS]     (`make docs-figures`)

A table stands below a line such as `<!-- figures/tutorial.json: position_rmse_m frames -->`, which
names the file in docs/figures and the metrics. With NAME and RESULTS, a folder of `kbf evaluate`,
its metrics become docs/figures/NAME.json first. A test finds tables that differ from their files.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from kbf_localization import __version__
from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
PAGES = (PROJECT / "README.md", *sorted(DOCS.glob("*.md")))
MARK = re.compile(r"(<!-- (figures/[\w-]+\.json): ([\w ]+?) -->\n\n).*?(?=\n\n|\Z)", re.S)


def take(name: str, results: Path) -> Path:
    """Keep the metrics of a run, and the command and version that measured them."""
    metrics = json.loads((results / "metrics.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((results / "config.yaml").read_text(encoding="utf-8"))
    content = {"command": config["command"], "version": __version__, "methods": metrics["methods"]}
    path = DOCS / "figures" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def table(content: dict[str, Any], keys: list[str]) -> str:
    """Return the table of these metrics, a column for each method."""
    methods = content["methods"]
    rows = [["", *methods], ["---"] * (1 + len(methods))]
    for key in keys:
        texts = [metric_text(key, metrics.get(key)) for metrics in methods.values()]
        rows.append([METRIC_TEXTS[key].label, *texts])
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)


def filled(page: str) -> str:
    """Return the text of a page with every table as its file has it."""

    def fill(found: re.Match[str]) -> str:
        content = json.loads((DOCS / found[2]).read_text(encoding="utf-8"))
        return found[1] + table(content, found[3].split())

    return MARK.sub(fill, page)


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
