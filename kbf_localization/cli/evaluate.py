"""Replay recorded drives offline against a map and measure the error.

Without --method it compares kbf with the nearest image alone, nai. With --build-from a map is
built for each --descriptor and evaluated, in one table.

Example: `kbf evaluate drives/cloudy3 --map office.kbfmap --method kbf,nai` writes metrics.json,
trajectories in TUM format and report.html into results/latest. Several drives give a table for each
lighting: `kbf evaluate drives/cloudy3 drives/night1 --map office.kbfmap`. Descriptors side by side,
each with a map that is built for it: `kbf evaluate drives/cloudy3 --build-from drives/cloudy1
--build-from drives/cloudy2 --descriptor sift --descriptor 'sift*onnx' --model net.onnx`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.markup import escape
from typer import Option

from kbf_localization.cli.console import command_line, print_line, print_methods, print_table
from kbf_localization.cli.describers import Descriptors, Model, Network
from kbf_localization.cli.drives import Reading, print_missing_truth, print_notes
from kbf_localization.cli.map_files import on_floor_plan
from kbf_localization.cli.options import (
    Files,
    FloorPlan,
    Methods,
    PerhapsOnMap,
    Sources,
    Test,
    Train,
    chosen_methods,
    takes_groups,
)
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError
from kbf_localization.parallel import make_workers
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.datasets.drive import Drive
    from kbf_localization.vision.recipe import Recipe


MAP_NAME = "map.kbfmap"
TABLE_METRICS = (
    "position_rmse_m",
    "position_median_m",
    "position_p95_m",
    "share_beyond_1m",
    "share_tracking",
    "step_ms_p50",
)

app = typer.Typer(add_completion=False)
MAP_POSES = 1000


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
    """Build, evaluate and write one descriptor after the other; at the end print the table.

    `how` as for `evaluate_describers`.
    """
    from kbf_localization.evaluation.evaluate import evaluate_describers, write_results
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
            metrics = write_results(
                own, variant.results, training_map, of_map, stopwatch, progress, **files.wanted
            )
            size = variant.bytes_per_pose
            found[variant.describer] = {"folder": part, "bytes_per_pose": size, **metrics}
            folder.write_metrics({"odometry": metrics["odometry"], "describers": found})
    print_notes([*training, *tests])
    print_missing_truth(tests)
    _print(", ".join(drive.name for drive in tests), found)
    warnings = [line for metrics in found.values() for line in metrics.get("warnings", ())]
    for warning in dict.fromkeys(warnings):
        print_line(f"Warning: {warning}", style="bold red")
    print_line(f"Where the time went: {stopwatch.summary()}")
    if len(found) > 1:
        folders = " ".join(str(folder.path / metrics["folder"]) for metrics in found.values())
        print_line(f"What is noise: kbf compare {folders} --method {methods[0]}")
    print_line(f"Results: {folder.path / 'metrics.json'}, and a folder for each descriptor")


def _print(title: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a row for each descriptor and method, and for each lighting of several."""
    from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text

    rows: list[tuple[object, ...]] = []
    for describer, metrics in found.items():
        conditions = metrics.get("conditions", {})
        parts = conditions if len(conditions) > 1 else {"all": metrics["methods"]}
        rows += [
            (
                escape(describer),
                f"{metrics['bytes_per_pose']}",
                escape(condition),
                method,
                *(metric_text(key, by_method[method].get(key)) for key in TABLE_METRICS),
            )
            for condition, by_method in parts.items()
            for method in by_method
        ]
    columns = ("Descriptor", "Bytes a pose", "Lighting", "Method")
    print_table(
        escape(title), (*columns, *(METRIC_TEXTS[key].label for key in TABLE_METRICS)), rows
    )


@app.command()
@takes_groups
def evaluate(
    sources: Sources,
    map_path: PerhapsOnMap = None,
    method: Methods = None,
    test: Test = None,
    seed: Annotated[int, Option(help="Random seed of the methods that sample.")] = 0,
    smooth: Annotated[
        bool, Option("--smooth", help="Also smooth: estimate each pose from later images too.")
    ] = False,
    build_from: Annotated[
        Optional[list[Path]],
        Option(metavar="DRIVE", help="In place of --map: build one from these drives; repeatable."),
    ] = None,
    train: Train = None,
    poses: Annotated[int, Option(min=1, help="Poses of a map that is built.")] = MAP_POSES,
    descriptor: Descriptors = None,
    model: Model = None,
    floor_plan: FloorPlan = None,
    use_cache: Annotated[
        bool,
        Option(
            "--cache/--no-cache",
            help="Keep descriptions of images for later evaluations (kbf cache).",
        ),
    ] = True,
    *,
    network: Network,
    files: Files,
    reading: Reading,
) -> None:
    # Images are described on all cores at once: a second BLAS thread each would only slow them.
    limit_threads(1)
    from kbf_localization.datasets.drive import MEASURED
    from kbf_localization.evaluation.description_cache import opened_cache
    from kbf_localization.evaluation.evaluate import (
        ALIGNED_NOTE,
        evaluate_drives,
        write_results,
    )
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.evaluation.stopwatch import Stopwatch
    from kbf_localization.mapping import load_map

    names, stopwatch = chosen_methods(method, "kbf,nai"), Stopwatch()
    config = {
        "command": command_line(),
        "sources": sources,
        "methods": names,
        "seed": seed,
    }
    if reading.odometry != MEASURED:
        config["odometry"] = reading.odometry
    if build_from:
        if map_path is not None:
            raise ParameterError("--build-from builds a map: leave --map away, or --build-from")
        recipes = network.recipes(descriptor or ["sift"], model)
        config |= {"build_from": build_from, "train": train, "test": test, "poses": poses}
        config |= {"describers": [recipe.text for recipe in recipes], "model": model}
        training, tests = reading.open_all(build_from, train), reading.open_all(sources, test)
        how = {"poses": poses, "seed": seed, "smooth": smooth}
        evaluate_each(recipes, training, tests, names, how, floor_plan, config, files)
        return
    if map_path is None:
        raise ParameterError("name a map, --map MAP, or drives to build one, --build-from DRIVE")
    given = {"descriptor": descriptor or None, "train": train, "poses": poses, **vars(network)}
    defaults = {"descriptor": None, "train": None, "poses": MAP_POSES, **vars(Network())}
    for name, value in given.items():
        if value != defaults[name]:
            raise ParameterError(
                f"--{name.replace('_', '-')} is for a map that is built: name its drives with "
                "--build-from"
            )
    with stopwatch.measuring("reading the map"):
        training_map = on_floor_plan(load_map(map_path, model), floor_plan)
    drives = reading.open_all(sources, test)
    with show_progress() as progress, opened_cache(use_cache) as cache:
        results = evaluate_drives(
            drives,
            training_map,
            names,
            seed=seed,
            smooth=smooth,
            cache=cache,
            workers=make_workers(-1),
            stopwatch=stopwatch,
            progress=progress,
        )
        folder = ResultsFolder.create("evaluate", files.output)
        config |= {"map": map_path, "map_identity": training_map.identity}
        config["methods"] = list(results[0].runs)
        metrics = write_results(
            folder, results, training_map, config, stopwatch, progress, **files.wanted
        )
    drive_s = float(sum(drive.stamps_ns[-1] - drive.stamps_ns[0] for drive in drives)) * 1e-9
    run_s = stopwatch.total
    times = drive_s / run_s
    speed = {"drive_s": drive_s, "run_s": run_s, "times_as_fast": times}
    folder.write_metrics({**metrics, "speed": {**speed, "seconds": stopwatch.seconds}})
    print_notes(drives)
    print_missing_truth(drives)
    of, methods = ", ".join(drive.name for drive in drives), metrics["methods"]
    print_methods(f"{of}: {', '.join(methods)}; odometry {metrics['odometry']}", methods)
    if len(drives) > 1 and "conditions" in metrics:
        _print_lightings(metrics["conditions"])
    if metrics.get("aligned"):
        print_line(f"Note: {ALIGNED_NOTE}")
    for warning in metrics.get("warnings", ()):
        print_line(f"Warning: {warning}", style="bold red")
    print_line(f"{drive_s:.0f} s of driving in {run_s:.1f} s: {times:.1f} times as fast")
    print_line(f"Where the time went: {stopwatch.summary()}")
    shown = files.shown(folder)
    size = sum(path.stat().st_size for path in folder.path.rglob(shown.name))
    print_line(f"Results: {shown} ({size / 1e6:.1f} MB)")


def _print_lightings(conditions: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print a row for each lighting and method."""
    from kbf_localization.evaluation.metric_texts import METRIC_TEXTS, metric_text

    keys = ("position_rmse_m", "position_median_m", "share_beyond_1m", "frames")
    columns = ("Lighting", "Method", *(METRIC_TEXTS[key].label for key in keys))
    rows = [
        (escape(condition), name, *(metric_text(key, metrics.get(key)) for key in keys))
        for condition, by_method in conditions.items()
        for name, metrics in by_method.items()
    ]
    print_table("By lighting", columns, rows)
