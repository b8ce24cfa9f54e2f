"""Put two or more runs of the same drive side by side, with what is noise.

Blocks of time are resampled 1000 times, the same for all runs; where 95 % of the differences
include zero, a difference is within noise.

Example: `kbf compare results/old_map results/new_map --method kbf` after two runs of
`kbf evaluate` on the same drive; the first is what the others are compared with. One folder with
two methods will do as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer import Argument, Option

from kbf_localization.cli.console import command_line, print_line, print_methods, print_table
from kbf_localization.cli.options import Methods, Results, Seed

app = typer.Typer(add_completion=False)
_RESULTS = Argument(metavar="RESULTS...", help="Folders that evaluate, replay or demo wrote.")
_BLOCK = Option(min=0.1, metavar="S", help="Seconds after which errors are taken for independent.")


@app.command()
def compare(
    results: Annotated[list[Path], _RESULTS],
    method: Methods = None,
    block: Annotated[float, _BLOCK] = 10.0,
    seed: Seed = 0,
    output: Results = None,
) -> None:
    from kbf_localization.evaluation.compare import (
        differences_table,
        read_comparison,
        summary,
        write_comparison,
    )
    from kbf_localization.evaluation.results import ResultsFolder

    wanted = [name.strip() for names in method or () for name in names.split(",") if name.strip()]
    comparison = read_comparison(results, wanted)
    differences = comparison.differences(block, seed=seed)
    folder = ResultsFolder.create("compare", output)
    config = {"command": command_line(), "results": results, "block_s": block, "seed": seed}
    report = write_comparison(folder, comparison, differences, config)
    frames = sum(len(drive) for drive in comparison.drives)
    print_methods(f"{frames} frames that all runs have", comparison.metrics())
    table = differences_table(comparison.labels[0], differences)
    rows = [tuple(escape(str(cell)) for cell in row) for row in table.rows]
    print_table(escape(table.title), table.columns, rows)
    print_line(summary(comparison.labels, differences))
    print_line(f"Results: {report}")
