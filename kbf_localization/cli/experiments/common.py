"""What the experiments' commands share: options, their checks, and the end of a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.evaluation.results import ResultsFolder

Trials = Annotated[int, typer.Option(min=1, help="Independent trials.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")]
Jobs = Annotated[int, typer.Option(help="Processes; -1 means one for each core.")]
Output = Annotated[Optional[Path], typer.Option(help="Folder for the results instead of results/.")]


def limit_to_one_thread() -> None:
    """One BLAS thread for each process: the trials run beside each other."""
    from kbf_localization.threads import limit_threads

    limit_threads(1)


def parse_sizes(text: str) -> list[int]:
    from kbf_localization.errors import ParameterError

    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ParameterError(f"--sizes {text}: give whole numbers, such as 50,100,200") from None
    if numbers[0] < 4:
        raise ParameterError(f"--sizes {text}: cross validation needs at least 4 training pairs")
    return numbers


def parse_image_size(text: str) -> tuple[int, int]:
    from kbf_localization.errors import ParameterError

    width, cross, height = text.partition("x")
    if not (cross and width.isdigit() and height.isdigit()):
        raise ParameterError(f"--size {text}: give width and height, such as 320x240")
    return int(width), int(height)


def command_line() -> str:
    return shlex.join(["kbf", *sys.argv[1:]])


def finish(
    folder: ResultsFolder,
    title: str,
    config: Mapping[str, Any],
    table: Table,
    captions: Mapping[str, str],
) -> None:
    """Print the table, write the report of it with the pictures, and say where it is."""
    from kbf_localization.cli.console import console, print_table
    from kbf_localization.evaluation.report import Picture, write_simple_report

    pictures = [Picture(folder.file(name), caption) for name, caption in captions.items()]
    report = write_simple_report(folder, title, config, tables=[table], pictures=pictures)
    print_table(table.title, table.columns, table.rows)
    console.print(f"Results: {report}", markup=False, highlight=False, soft_wrap=True)
