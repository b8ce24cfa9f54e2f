"""Build training maps from drives, look into them, check them, and edit them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli import map_check
from kbf_localization.cli.console import print_line
from kbf_localization.cli.describers import Describer, Model, Network, NewModel
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.map_files import (
    Force,
    NoThumbnails,
    Output,
    check_output,
    on_floor_plan,
    print_map,
)
from kbf_localization.cli.options import (
    Computers,
    FloorPlan,
    Jobs,
    MapFile,
    Seed,
    Sources,
    Train,
    takes_groups,
)
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.parallel import make_workers

app = typer.Typer(add_completion=False, no_args_is_help=True)


NO_BOX = (math.nan,) * 4
"""Ubuntu 24.04's Typer takes no None for an option of several numbers."""

_PARAMETERS = Option(metavar="FILE", help="Hyper-parameters from 'kbf tune'.")
_LIKE = Option(metavar="MAP", help="Use this map's visual words, to merge with it later.")
_PLAN = Option(metavar="YAML", help="Keep this plan in the map: map_server's map.yaml.")
_SELECT = Option(help="How to choose them: coverage (of pose space) or random.")
_SOURCE = Option(metavar="NAME", help="The poses of this drive; repeatable.")
_BOX = Option(
    metavar="X0 Y0 X1 Y1", help="The poses between these corners, in metres.", show_default=False
)
_MORE = Option(min=1, help="How many poses to add; default: as many a drive as the map has.")


@app.command()
@takes_groups
def build(
    sources: Sources,
    output: Output,
    force: Force = False,
    no_thumbnails: NoThumbnails = False,
    poses: Annotated[int, Option(min=1, help="How many poses to choose.")] = 1000,
    select: Annotated[str, _SELECT] = "coverage",
    parameters: Annotated[Optional[Path], _PARAMETERS] = None,
    like: Annotated[Optional[Path], _LIKE] = None,
    floor_plan: Annotated[Optional[Path], _PLAN] = None,
    words: Annotated[int, Option(min=2, max=5000, help="Visual words to learn.")] = 200,
    describer: Describer = "sift",
    model: NewModel = None,
    seed: Seed = 0,
    train: Train = None,
    *,
    computers: Computers,
    network: Network,
    reading: Reading,
) -> None:
    """Build a map from one or more drives with known poses.

    Example: `kbf map build drives/cloudy1 drives/cloudy2 --output office.kbfmap`. A bag needs a
    pose topic: `kbf map build office.mcap --pose-topic /ground_truth --output office.kbfmap`. With
    a learned network: `kbf map build drives/cloudy1 --describer 'sift*onnx' --model net.onnx
    --output office.kbfmap`
    """
    from kbf_localization.training_map import build_map, load_map, save_map, without_thumbnails

    tuned = None if parameters is None else _read_parameters(parameters)
    check_output(output, force)
    base = None if like is None else load_map(like, model)
    if base is not None and describer != "sift":
        raise ParameterError("--like takes the describer of that map: leave --describer away")
    recipe = network.recipes([describer], model)[0] if base is None else "sift"
    drives = reading.open_all(sources, train)
    with show_progress() as progress:
        training_map = build_map(
            drives,
            poses=poses,
            select=select,
            words=words,
            describer=recipe,
            like=base,
            parameters=tuned,
            floor_plan=floor_plan,
            seed=seed,
            workers=computers.workers(),
            progress=progress,
        )
    if no_thumbnails:
        training_map = without_thumbnails(training_map)
    save_map(training_map, output)
    print_map(training_map, output)


app.command()(map_check.check)


@app.command()
def info(
    map_path: MapFile,
    output: Annotated[Optional[Path], Option(metavar="DIR", help="Folder for the picture.")] = None,
    floor_plan: FloorPlan = None,
) -> None:
    """Show what is in a map, as a table and a picture.

    Example: `kbf map info office.kbfmap`
    """
    from kbf_localization.evaluation.plots import save_figure
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.training_map import load_map
    from kbf_localization.training_map.picture import draw_map

    training_map = on_floor_plan(load_map(map_path), floor_plan)
    print_map(training_map, map_path)
    folder = ResultsFolder.create("map-info", output, latest=False)
    save_figure(folder, "map.png", draw_map(training_map))
    print_line(f"Picture: {folder.path / 'map.png'}")


@app.command()
@takes_groups
def add(
    map_path: MapFile,
    sources: Sources,
    output: Output,
    model: Model = None,
    force: Force = False,
    no_thumbnails: NoThumbnails = False,
    poses: Annotated[Optional[int], _MORE] = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    train: Train = None,
    *,
    reading: Reading,
) -> None:
    """Add drives to a map, described with its visual words.

    Example: `kbf map add office.kbfmap drives/night1 --output office2.kbfmap`; with
    `--output office.kbfmap --force` the map itself is replaced.
    """
    from kbf_localization.training_map import build_map, load_map, save_map, without_thumbnails
    from kbf_localization.training_map.editing import merge_maps, refuse_repeated

    check_output(output, force)
    training_map = load_map(map_path, model)
    drives = reading.open_all(sources, train)
    refuse_repeated([source.name for source in training_map.sources], [one.name for one in drives])
    usual = -(-len(training_map) // len(training_map.sources)) * len(drives)
    with show_progress() as progress:
        more = build_map(
            drives,
            poses=poses or usual,
            like=training_map,
            seed=seed,
            parameters=training_map.parameters,
            workers=make_workers(jobs),
            progress=progress,
        )
    joined = merge_maps([training_map, without_thumbnails(more) if no_thumbnails else more])
    save_map(joined, output)
    print_map(joined, output)


@app.command()
def remove(
    map_path: MapFile,
    output: Output,
    force: Force = False,
    source: Annotated[Optional[list[str]], _SOURCE] = None,
    box: Annotated[tuple[float, float, float, float], _BOX] = NO_BOX,
    thumbnails: Annotated[
        bool, Option("--thumbnails", help="The small camera images of all poses.")
    ] = False,
) -> None:
    """Remove a drive, all poses within a box, or the small images from a map.

    Example: `kbf map remove office.kbfmap --source cloudy1 --output less.kbfmap`, or
    `kbf map remove office.kbfmap --box 2 0 6.5 3 --output less.kbfmap` for what was rebuilt between
    x = 2 and 6.5 m and y = 0 and 3 m
    """
    from kbf_localization.training_map import load_map, save_map, without_thumbnails
    from kbf_localization.training_map.editing import remove_box, remove_sources

    boxed = not all(math.isnan(corner) for corner in box)
    if not (source or boxed or thumbnails):
        raise MapError("nothing to remove: name a --source, a --box or --thumbnails")
    check_output(output, force)
    training_map = load_map(map_path)
    if source:
        training_map = remove_sources(training_map, source)
    if boxed:
        training_map = remove_box(training_map, box)
    if thumbnails:
        training_map = without_thumbnails(training_map)
    save_map(training_map, output)
    print_map(training_map, output)


@app.command()
def merge(
    maps: Annotated[list[Path], Argument(metavar="MAP...", help="Maps of the same words.")],
    output: Output,
    force: Force = False,
) -> None:
    """Join maps, such as those of several lightings, into one.

    Example: `kbf map build drives/night1 --like cloudy.kbfmap --output night.kbfmap`, then
    `kbf map merge cloudy.kbfmap night.kbfmap --output both.kbfmap`
    """
    from kbf_localization.training_map import load_map, save_map
    from kbf_localization.training_map.editing import merge_maps

    check_output(output, force)
    merged = merge_maps([load_map(path) for path in maps])
    save_map(merged, output)
    print_map(merged, output)


def _read_parameters(path: Path) -> Mapping[str, float]:
    """Hyper-parameters from a file of 'kbf tune'."""
    from kbf_localization.datasets.files import read_yaml
    from kbf_localization.limits import MAX_PARAMETER_FILE_BYTES, check_parameter

    content = read_yaml(path, MAX_PARAMETER_FILE_BYTES)
    table = content.get("parameters") if isinstance(content, dict) else None
    if table is None:
        raise ParameterError(f"{path}: has no 'parameters'; make it with 'kbf tune'")
    if not isinstance(table, dict):
        raise ParameterError(f"{path}: 'parameters' must be a table of numbers")
    try:
        return {str(name): check_parameter(str(name), value) for name, value in table.items()}
    except ValueError as error:
        raise ParameterError(f"{path}: {error}") from error
