"""The consoles that commands write to, and the tables that they print at their end."""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kbf_localization.sanitize import shown


class SafeConsole(Console):
    """Shows control characters in texts and tables instead of sending them."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(shown(text), **how)


FIGURE = re.compile(r"(?:[ .,:±+−×(-]*[\d–][\d .,:±+−–×%°()-]*(?:[a-zµ]{1,5})?)?")
"""A number, perhaps with a deviation and a unit, or the dash of what is not known."""

console = SafeConsole()
error_console = SafeConsole(stderr=True)


def command_line() -> str:
    """Return the command as it was typed, for those who want to run it again."""
    return shlex.join(["kbf", *sys.argv[1:]])


def print_line(text: str, style: str | None = None) -> None:
    """Print one line as it is: not wrapped, so that paths can be copied, and with no markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Return a duration as a person would say it: 40 s, 12 min, 3.5 h."""
    if seconds < 100.0:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 6000.0 else f"{seconds / 3600.0:.1f} h"


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: numeric columns flush right, the others flush left.

    Title and cells are rich's markup; columns are plain, such as "RMSE [m]".
    """
    table = Table(title=title, title_justify="left")
    cells = [[format_cell(cell) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        numeric = index > 0 and all(FIGURE.fullmatch(row[index]) for row in cells)
        table.add_column(escape(column), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def print_findings(title: str, findings: Iterable[tuple[str, str, str, str]]) -> None:
    """Print what was looked at, what was found in which style, and what to do about it."""
    table = Table(title=title, title_justify="left")
    for column in ("Aspect", "Found", "Advice"):
        table.add_column(column, overflow="fold")
    for aspect, value, style, advice in findings:
        table.add_row(aspect, Text(shown(value), style=style), Text(shown(advice)))
    console.print(table)


def format_cell(value: object) -> str:
    """Return numbers with three significant digits, or all their digits before the point."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def print_methods(title: str, methods: Mapping[str, Mapping[str, float]]) -> None:
    """Print the metrics of methods side by side, a row for each, in words and with units."""
    from kbf_localization.evaluation.metric_texts import metric_rows

    columns = ["Metric", *("Value" if len(methods) == 1 else name for name in methods)]
    rows = [(row["label"], *row["texts"]) for row in metric_rows(methods)]
    print_table(escape(title), columns, rows)
