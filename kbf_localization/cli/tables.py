"""Tables that several commands end with."""

from __future__ import annotations

from collections.abc import Mapping


def print_methods(title: str, methods: Mapping[str, Mapping[str, float]]) -> None:
    """The figures of methods side by side, a row for each, in words and with units."""
    from rich.markup import escape

    from kbf_localization.cli.console import print_table
    from kbf_localization.evaluation.metric_texts import metric_rows

    columns = ["Metric", *("Value" if len(methods) == 1 else name for name in methods)]
    rows = [(row["label"], *row["texts"]) for row in metric_rows(methods)]
    print_table(escape(title), columns, rows)
