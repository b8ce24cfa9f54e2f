"""Build training maps from drives, look into them, check them, and edit them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Optional

import typer

from kbf_localization.cli import map_check, map_edit
from kbf_localization.cli.describers import (
    Describer,
    InputSize,
    Kernel,
    NewModel,
    Normalize,
    OutputName,
    Pool,
)
from kbf_localization.cli.drives import SOURCE_HELP, Reading, Train, reads_drives
from kbf_localization.cli.map_files import FloorPlan, Force, NoThumbnails, Output, on_floor_plan
from kbf_localization.cli.options import Dask, Jobs, Seed
from kbf_localization.errors import ParameterError

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")

for command, example in (
    (map_check.check, map_check.EXAMPLE),
    (map_edit.add, map_edit.ADD_EXAMPLE),
    (map_edit.remove, map_edit.REMOVE_EXAMPLE),
    (map_edit.merge, map_edit.MERGE_EXAMPLE),
):
    app.command(epilog=example)(command)


@app.callback()
def map_commands() -> None:
    """Build training maps from drives, look into them, check them, and edit them."""


@app.command(
    epilog="Example: [bold]kbf map build drives/cloudy1 drives/cloudy2 --output office.kbfmap"
    "[/bold]. A bag needs a pose topic: [bold]kbf map build office.mcap --pose-topic "
    "/ground_truth --output office.kbfmap[/bold]. With a learned network: [bold]kbf map build "
    "drives/cloudy1 --describer 'sift*onnx' --model net.onnx --output office.kbfmap[/bold]"
)
@reads_drives
def build(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help=SOURCE_HELP)],
    output: Output,
    force: Force = False,
    no_thumbnails: NoThumbnails = False,
    poses: Annotated[int, typer.Option(min=1, help="How many poses to choose.")] = 1000,
    select: Annotated[
        str, typer.Option(help="How to choose them: coverage (of pose space) or random.")
    ] = "coverage",
    parameters: Annotated[
        Optional[Path], typer.Option(metavar="FILE", help="Hyper-parameters from 'kbf tune'.")
    ] = None,
    like: Annotated[
        Optional[Path],
        typer.Option(metavar="MAP", help="Use this map's visual words, to merge with it later."),
    ] = None,
    floor_plan: Annotated[
        Optional[Path],
        typer.Option(metavar="YAML", help="Keep this plan in the map: map_server's map.yaml."),
    ] = None,
    describer: Describer = "sift",
    model: NewModel = None,
    input_size: InputSize = None,
    normalize: Normalize = "imagenet",
    output_name: OutputName = None,
    pool: Pool = None,
    kernel: Kernel = "gaussian",
    words: Annotated[int, typer.Option(min=2, max=5000, help="Visual words to learn.")] = 200,
    seed: Seed = 0,
    jobs: Jobs = -1,
    dask: Dask = None,
    train: Train = None,
    *,
    reading: Reading,
) -> None:
    """Build a map from one or more drives with known poses."""
    from kbf_localization.cli.describers import recipes_of
    from kbf_localization.cli.map_files import check_output, print_map
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.parallel import workers
    from kbf_localization.training_map import build_map, load_map, save_map, without_thumbnails

    tuned = None if parameters is None else _read_parameters(parameters)
    check_output(output, force)
    base = None if like is None else load_map(like, model)
    if base is not None and describer != "sift":
        raise ParameterError("--like takes the describer of that map: leave --describer away")
    recipe = (
        recipes_of([describer], model, input_size, normalize, output_name, pool, kernel)[0]
        if base is None
        else "sift"
    )
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
            workers=workers(jobs, dask),
            progress=progress,
        )
    if no_thumbnails:
        training_map = without_thumbnails(training_map)
    save_map(training_map, output)
    print_map(training_map, output)


@app.command(epilog="Example: [bold]kbf map info office.kbfmap[/bold]")
def info(
    map_path: Annotated[Path, typer.Argument(metavar="MAP", help="The map file.")],
    output: Annotated[
        Optional[Path], typer.Option(metavar="DIR", help="Folder for the picture.")
    ] = None,
    floor_plan: FloorPlan = None,
) -> None:
    """Show what is in a map, as a table and a picture."""
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
