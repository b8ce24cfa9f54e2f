"""`kbf map check`: where a map will work and where not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import command_line, print_line, print_table
from kbf_localization.cli.describers import Model
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.map_files import on_floor_plan
from kbf_localization.cli.options import FloorPlan, MapFile, Results, Seed, takes_groups
from kbf_localization.cli.progress import show_progress
from kbf_localization.threads import limit_threads

EXIT_BELOW_THE_BAR = 1

_MORE = Argument(metavar="[DRIVE]...", help="As after --sources.")
_SOURCES = Option(
    metavar="DRIVE...",
    help="The map's drives, or others with known poses: all their images are used.",
)
_MEDIAN = Option(metavar="M", min=0.0, help="Exit code 1 if the median error is above (m).")


@takes_groups
def check(
    map_path: MapFile,
    more: Annotated[Optional[list[Path]], _MORE] = None,
    sources: Annotated[Optional[list[Path]], _SOURCES] = None,
    require_median: Annotated[Optional[float], _MEDIAN] = None,
    as_json: Annotated[bool, Option("--json", help="Print metrics.json, no table.")] = False,
    output: Results = None,
    model: Model = None,
    floor_plan: FloorPlan = None,
    seed: Seed = 0,
    *,
    reading: Reading,
) -> None:
    """Find out where a map will work and where not, before a robot relies on it.

    Example: `kbf map check office.kbfmap` writes check.html; `kbf map check office.kbfmap
    --sources drives/cloudy1 drives/cloudy2` uses all images of these drives; `kbf map check
    office.kbfmap --require-median 0.3` ends with exit code 1 where the map is worse than that.
    """
    limit_threads(1)
    from kbf_localization.evaluation.map_check.check import check_map
    from kbf_localization.evaluation.map_check.page import figures, write_check
    from kbf_localization.evaluation.results import ResultsFolder, to_plain
    from kbf_localization.training_map import load_map

    training_map = on_floor_plan(load_map(map_path, model), floor_plan)
    paths = [*(sources or []), *(more or [])]
    drives = reading.open_all(paths)
    with show_progress() as progress:
        found = check_map(training_map, drives, seed=seed, progress=progress)
        folder = ResultsFolder.create("map-check", output)
        config = {
            "command": command_line(),
            "map": map_path,
            "map_identity": training_map.identity,
            "sources": paths,
            "seed": seed,
        }
        page = write_check(folder, found, config)
    if as_json:
        typer.echo(json.dumps(to_plain(found.metrics), indent=2, allow_nan=False))
    else:
        print_table("Expected of this map", ("Figure", "Value", "Units"), figures(found))
        for line in (found.verdict, *(f"{n}. {text}" for n, text in enumerate(found.advice, 1))):
            print_line(line)
        print_line(f"Results: {page}")
    if require_median is not None and not (
        found.median_m is not None and found.median_m <= require_median
    ):
        raise typer.Exit(EXIT_BELOW_THE_BAR)
