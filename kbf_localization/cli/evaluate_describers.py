"""`kbf evaluate --describer`: a map for each describer, evaluated on the same drives, one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from kbf_localization.cli.console import print_line, print_table
from kbf_localization.cli.drives import print_missing_truth, print_notes
from kbf_localization.cli.map_files import on_floor_plan
from kbf_localization.cli.progress import show_progress
from kbf_localization.parallel import make_workers

if TYPE_CHECKING:
    from kbf_localization.cli.options import Files
    from kbf_localization.datasets.drive import Drive
    from kbf_localization.vision.recipe import Recipe

MAP_NAME = "map.kbfmap"
SHOWN = (
    "position_rmse_m",
    "position_median_m",
    "position_p95_m",
    "share_beyond_1m",
    "share_tracking",
    "step_ms_p50",
)


def evaluate_each(
    recipes: Sequence[Recipe],
    training: Sequence[Drive],
    tests: Sequence[Drive],
    methods: Sequence[str],
    how: Mapping[str, Any],
    floor_plan: Path | None,
    config: Mapping[str, Any],
    files: Files,
) -> None:
    """Build, evaluate and write one describer after the other; at the end print the table.

    `how` as for `evaluate_describers`.
    """
    from kbf_localization.evaluation.describers import evaluate_describers
    from kbf_localization.evaluation.evaluate import write_results
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.evaluation.stopwatch import Stopwatch
    from kbf_localization.training_map import save_map

    folder, stopwatch = ResultsFolder.create("evaluate", files.output), Stopwatch()
    folder.write_config(config)
    found: dict[str, dict[str, Any]] = {}
    with show_progress() as progress:
        variants = evaluate_describers(
            recipes,
            training,
            tests,
            methods,
            **how,
            workers=make_workers(-1),
            stopwatch=stopwatch,
            progress=progress,
        )
        for number, variant in enumerate(variants, start=1):
            part = f"{number:02d}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', variant.describer)[:60]}"
            own = ResultsFolder.create("evaluate", folder.path / part)
            training_map = on_floor_plan(variant.training_map, floor_plan)
            save_map(training_map, own.path / MAP_NAME)
            of_map = {**config, "map": own.path / MAP_NAME, "describer": variant.describer}
            figures = write_results(
                own, variant.results, training_map, of_map, stopwatch, progress, **files.wanted
            )
            size = variant.bytes_per_pose
            found[variant.describer] = {"folder": part, "bytes_per_pose": size, **figures}
            folder.write_metrics({"odometry": figures["odometry"], "describers": found})
    print_notes([*training, *tests])
    print_missing_truth(tests)
    _print(", ".join(drive.name for drive in tests), found)
    warnings = [line for one in found.values() for line in one.get("warnings", ())]
    for warning in dict.fromkeys(warnings):
        print_line(f"Warning: {warning}", style="bold red")
    print_line(f"Where the time went: {stopwatch.summary()}")
    if len(found) > 1:
        folders = " ".join(str(folder.path / one["folder"]) for one in found.values())
        print_line(f"What is noise: kbf compare {folders} --method {methods[0]}")
    print_line(f"Results: {folder.path / 'metrics.json'}, and a folder for each describer")


def _print(title: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """A row for each describer and method, and for each lighting where there are several."""
    from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text

    rows: list[tuple[object, ...]] = []
    for describer, figures in found.items():
        conditions = figures.get("conditions", {})
        parts = conditions if len(conditions) > 1 else {"all": figures["methods"]}
        rows += [
            (
                escape(describer),
                f"{figures['bytes_per_pose']}",
                escape(condition),
                method,
                *(metric_text(key, by_method[method].get(key)) for key in SHOWN),
            )
            for condition, by_method in parts.items()
            for method in by_method
        ]
    columns = ("Describer", "Bytes a pose", "Lighting", "Method")
    print_table(escape(title), (*columns, *(METRIC_TEXTS[key].label for key in SHOWN)), rows)
