"""Build training maps from drives, look into them, check them, and edit them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Option

from kbf_localization.cli import map_check, map_edit
from kbf_localization.cli.describers import Describer, Network, NewModel
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.map_files import Force, NoThumbnails, Output, on_floor_plan
from kbf_localization.cli.options import (
    Computers,
    FloorPlan,
    MapFile,
    Seed,
    Sources,
    Train,
    takes_groups,
)
from kbf_localization.errors import ParameterError

app = typer.Typer(add_completion=False, no_args_is_help=True)

for command in (map_check.check, map_edit.add, map_edit.remove, map_edit.merge):
    app.command()(command)

_PARAMETERS = Option(metavar="FILE", help="Hyper-parameters from 'kbf tune'.")
_LIKE = Option(metavar="MAP", help="Use this map's visual words, to merge with it later.")
_PLAN = Option(metavar="YAML", help="Keep this plan in the map: map_server's map.yaml.")
_SELECT = Option(help="How to choose them: coverage (of pose space) or random.")


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
    from kbf_localization.cli.map_files import check_output, print_map
    from kbf_localization.cli.progress import show_progress
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


@app.command()
def info(
    map_path: MapFile,
    output: Annotated[Optional[Path], Option(metavar="DIR", help="Folder for the picture.")] = None,
    floor_plan: FloorPlan = None,
) -> None:
    """Show what is in a map, as a table and a picture.

    Example: `kbf map info office.kbfmap`
    """
    from kbf_localization.cli.console import print_line
    from kbf_localization.cli.map_files import print_map
    from kbf_localization.evaluation.plots import save_figure
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.training_map import load_map
    from kbf_localization.training_map.picture import draw_map

    training_map = on_floor_plan(load_map(map_path), floor_plan)
    print_map(training_map, map_path)
    folder = ResultsFolder.create("map-info", output, latest=False)
    save_figure(folder, "map.png", draw_map(training_map))
    print_line(f"Picture: {folder.path / 'map.png'}")


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
