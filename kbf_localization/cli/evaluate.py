"""Replay recorded drives offline against a map and measure the error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kbf_localization.cli.describers import (
    Describers,
    InputSize,
    Kernel,
    Model,
    Normalize,
    OutputName,
    Pool,
)
from kbf_localization.cli.drives import SOURCE_HELP, Reading, Test, Train, reads_drives
from kbf_localization.cli.map_files import FloorPlan, on_floor_plan
from kbf_localization.cli.methods import Methods, chosen_methods
from kbf_localization.cli.options import Pictures, Report, Results
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.evaluation.evaluate import SourceResult

app = typer.Typer(add_completion=False)

EXAMPLE = (
    "Example: [bold]kbf evaluate drives/cloudy3 --map office.kbfmap --method kbf,nai[/bold] "
    "writes metrics.json, trajectories in TUM format and report.html into results/latest. "
    "Several drives give a table for each lighting: "
    "[bold]kbf evaluate drives/cloudy3 drives/night1 --map office.kbfmap[/bold]. Describers side "
    "by side, each with a map that is built for it: [bold]kbf evaluate drives/cloudy3 --build-from "
    "drives/cloudy1 --build-from drives/cloudy2 --describer sift --describer 'sift*onnx' --model "
    "net.onnx[/bold]"
)


@app.command(epilog=EXAMPLE)
@reads_drives
def evaluate(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help=SOURCE_HELP)],
    map_path: Annotated[
        Optional[Path], typer.Option("--map", metavar="MAP", help="The map to localize on.")
    ] = None,
    method: Methods = None,
    output: Results = None,
    test: Test = None,
    seed: Annotated[int, typer.Option(help="Seed of the methods that draw samples.")] = 0,
    smooth: Annotated[
        bool,
        typer.Option("--smooth", help="Also look back: each pose by what came after it, too."),
    ] = False,
    build_from: Annotated[
        Optional[list[Path]],
        typer.Option(
            "--build-from",
            metavar="DRIVE",
            help="In place of --map: build it from this drive; repeated, from several.",
        ),
    ] = None,
    train: Train = None,
    poses: Annotated[int, typer.Option(min=1, help="Poses of a map that is built.")] = 1000,
    describer: Describers = None,
    model: Model = None,
    input_size: InputSize = None,
    normalize: Normalize = "imagenet",
    output_name: OutputName = None,
    pool: Pool = None,
    kernel: Kernel = "gaussian",
    floor_plan: FloorPlan = None,
    report: Report = True,
    pictures: Pictures = False,
    *,
    reading: Reading,
) -> None:
    """Replay recorded drives offline against a map and measure the error.

    Without --method it compares kbf with the nearest image alone, nai. With --build-from a map is
    built for each --describer and evaluated, in one table.
    """
    from kbf_localization.threads import limit_threads

    # Images are described on all cores at once: a second BLAS thread each would only be in the way.
    limit_threads(1)

    from kbf_localization.cli.console import command_line, console, print_line
    from kbf_localization.cli.describers import recipes_of
    from kbf_localization.cli.drives import print_missing_truth, print_notes
    from kbf_localization.cli.evaluate_describers import evaluate_each
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.evaluate import evaluate_drives, write_results
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.evaluation.stopwatch import Stopwatch
    from kbf_localization.training_map import load_map

    names, stopwatch = chosen_methods(method, "kbf,nai"), Stopwatch()
    if build_from:
        if map_path is not None:
            raise ParameterError("--build-from builds a map: leave --map away, or --build-from")
        recipes = recipes_of(
            describer or ["sift"], model, input_size, normalize, output_name, pool, kernel
        )
        evaluate_each(
            recipes,
            reading.open_all(build_from, train),
            reading.open_all(sources, test),
            names,
            output=output,
            config={
                "command": command_line(),
                "sources": sources,
                "build_from": build_from,
                "train": train,
                "test": test,
                "describers": [recipe.text for recipe in recipes],
                "model": model,
                "poses": poses,
                "methods": names,
                "odometry": reading.odometry,
                "seed": seed,
            },
            floor_plan=floor_plan,
            poses=poses,
            seed=seed,
            smooth=smooth,
            report=report,
            pictures=pictures,
        )
        return
    if map_path is None:
        raise ParameterError("name a map, --map MAP, or drives to build one, --build-from DRIVE")
    defaults = {"poses": 1000, "normalize": "imagenet", "kernel": "gaussian"}
    for name, value in {
        "describer": describer or None,
        "train": train,
        "poses": poses,
        "input-size": input_size,
        "normalize": normalize,
        "output-name": output_name,
        "pool": pool,
        "kernel": kernel,
    }.items():
        if value != defaults.get(name):
            raise ParameterError(
                f"--{name} is for a map that is built: name its drives with --build-from"
            )
    with stopwatch.measuring("reading the map"):
        training_map = on_floor_plan(load_map(map_path, model), floor_plan)
    drives = reading.open_all(sources, test)
    with show_progress() as progress:
        results = evaluate_drives(
            drives,
            training_map,
            names,
            seed=seed,
            smooth=smooth,
            stopwatch=stopwatch,
            progress=progress,
        )
        folder = ResultsFolder.create("evaluate", output)
        config = {
            "command": command_line(),
            "sources": sources,
            "map": map_path,
            "map_identity": training_map.identity,
            "methods": list(results[0].runs),
            "odometry": reading.odometry,
            "seed": seed,
        }
        metrics = write_results(
            folder,
            results,
            training_map,
            config,
            report=report,
            pictures=pictures,
            stopwatch=stopwatch,
            progress=progress,
        )
    drive_s = float(sum(drive.stamps_ns[-1] - drive.stamps_ns[0] for drive in drives)) * 1e-9
    run_s = stopwatch.total
    speed = {
        "drive_s": drive_s,
        "run_s": run_s,
        "times_as_fast": drive_s / run_s,
        "seconds": stopwatch.seconds,
    }
    folder.write_metrics({**metrics, "speed": speed})
    print_notes(drives)
    print_missing_truth(drives)
    _print_tables(results)
    for warning in metrics.get("warnings", ()):
        console.print(f"Warning: {warning}", style="bold red", markup=False, soft_wrap=True)
    console.print(
        f"{drive_s:.0f} s of driving in {run_s:.1f} s: {drive_s / run_s:.1f} times as fast",
        highlight=False,
    )
    print_line(f"Where the time went: {stopwatch.summary()}")
    shown = folder.path / ("report.html" if report else "metrics.json")
    print_line(f"Results: {shown} ({shown.stat().st_size / 1e6:.1f} MB)")


def _print_tables(results: list[SourceResult]) -> None:
    from rich.markup import escape

    from kbf_localization.cli.console import print_table
    from kbf_localization.cli.tables import print_methods
    from kbf_localization.evaluation.evaluate import (
        metrics_by_condition,
        metrics_by_method,
        odometry_origin,
    )
    from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text

    methods = metrics_by_method(results)
    names = ", ".join(result.drive.name for result in results)
    origin = odometry_origin(results)
    print_methods(f"{names}: {', '.join(methods)}; odometry {origin}", methods)
    conditions = metrics_by_condition(results)
    if len(results) > 1 and conditions:
        keys = ("position_rmse_m", "position_median_m", "share_beyond_1m", "frames")
        print_table(
            "By lighting",
            ("Lighting", "Method", *(METRIC_TEXTS[key].label for key in keys)),
            [
                (escape(condition), name, *(metric_text(key, figures.get(key)) for key in keys))
                for condition, by_method in conditions.items()
                for name, figures in by_method.items()
            ],
        )
