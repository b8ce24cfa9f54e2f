"""Tables that several commands end with."""

from __future__ import annotations

from collections.abc import Mapping


def print_methods(title: str, methods: Mapping[str, Mapping[str, float]]) -> None:
    """The figures of methods side by side, a row for each, with its unit."""
    from rich.markup import escape

    from kbf_localization.cli.console import print_table
    from kbf_localization.evaluation.metrics import UNITS

    rows = [
        (key, *(figures.get(key) for figures in methods.values()), unit)
        for key, unit in UNITS.items()
        if any(key in figures for figures in methods.values())
    ]
    columns = ["Metric", *("Value" if len(methods) == 1 else name for name in methods), "Units"]
    print_table(escape(title), columns, rows)
