"""The consoles that commands write to, and the tables that they print at their end."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

console = Console()
error_console = Console(stderr=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: the first column on the left, the others, figures, on the right."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(format_cell(cell) for cell in row))
    console.print(table)


def format_cell(value: object) -> str:
    """Numbers with three significant digits, or all their digits before the point."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
