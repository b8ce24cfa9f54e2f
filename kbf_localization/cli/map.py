"""Build training maps from drives, look into them, and join them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kbf_localization.cli.drives import (
    SOURCE_HELP,
    ImageTopic,
    Odometry,
    OdomTopic,
    PoseTopic,
    Train,
)
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.training_map import TrainingMap

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")

Output = Annotated[Path, typer.Option("--output", metavar="MAP", help="The map file to write.")]


@app.callback()
def map_commands() -> None:
    """Build training maps from drives, look into them, and join them."""


@app.command(
    epilog="Example: [bold]kbf map build drives/cloudy1 drives/cloudy2 --output office.kbfmap"
    "[/bold]. A bag needs a pose topic: [bold]kbf map build office.mcap --pose-topic "
    "/ground_truth --output office.kbfmap[/bold]"
)
def build(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help=SOURCE_HELP)],
    output: Output,
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
    words: Annotated[int, typer.Option(min=2, max=5000, help="Visual words to learn.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    jobs: Annotated[int, typer.Option(help="Worker processes; -1: one for each core.")] = -1,
    dask: Annotated[
        Optional[str], typer.Option(metavar="ADDRESS", help="Describe images on this Dask cluster.")
    ] = None,
    train: Train = None,
    odometry: Odometry = "measured",
    odom_topic: OdomTopic = None,
    image_topic: ImageTopic = None,
    pose_topic: PoseTopic = None,
) -> None:
    """Build a map from one or more drives with known poses."""
    from kbf_localization.cli.drives import open_drives
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.parallel import workers
    from kbf_localization.training_map import build_map, load_map, save_map

    tuned = None if parameters is None else _read_parameters(parameters)
    _check_output(output)
    drives = open_drives(
        sources,
        odometry=odometry,
        part=train,
        odom_topic=odom_topic,
        image_topic=image_topic,
        pose_topic=pose_topic,
    )
    with show_progress() as progress:
        training_map = build_map(
            drives,
            poses=poses,
            select=select,
            words=words,
            like=None if like is None else load_map(like),
            parameters=tuned,
            seed=seed,
            workers=workers(jobs, dask),
            progress=progress,
        )
    save_map(training_map, output)
    _print_map(training_map, output)


@app.command(epilog="Example: [bold]kbf map info office.kbfmap[/bold]")
def info(
    map_path: Annotated[Path, typer.Argument(metavar="MAP", help="The map file.")],
    output: Annotated[
        Optional[Path], typer.Option(metavar="DIR", help="Folder for the picture.")
    ] = None,
) -> None:
    """Show what is in a map, as a table and a picture."""
    from kbf_localization.cli.console import console
    from kbf_localization.evaluation.plots import save_figure
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.training_map import load_map
    from kbf_localization.training_map.picture import draw_map

    training_map = load_map(map_path)
    _print_map(training_map, map_path)
    folder = ResultsFolder.create("map-info", output)
    save_figure(folder, "map.png", draw_map(training_map))
    console.print(
        f"Picture: {folder.path / 'map.png'}", markup=False, highlight=False, soft_wrap=True
    )


@app.command(
    epilog="Example: [bold]kbf map build drives/night1 --like cloudy.kbfmap --output night.kbfmap"
    "[/bold], then [bold]kbf map merge cloudy.kbfmap night.kbfmap --output both.kbfmap[/bold]"
)
def merge(
    maps: Annotated[list[Path], typer.Argument(metavar="MAP...", help="Maps of the same words.")],
    output: Output,
) -> None:
    """Join maps, such as those of several lightings, into one."""
    from kbf_localization.training_map import load_map, save_map
    from kbf_localization.training_map.merge import merge_maps

    _check_output(output)
    merged = merge_maps([load_map(path) for path in maps])
    save_map(merged, output)
    _print_map(merged, output)


def _check_output(path: Path) -> None:
    """Refuse before minutes of work what could not be written after them."""
    from kbf_localization.errors import MapError

    if path.is_dir() or not path.parent.is_dir():
        raise MapError(f"{path}: cannot be written; name a file in a folder that exists")


def _read_parameters(path: Path) -> tuple[Mapping[str, float], Mapping[str, float] | None]:
    """Hyper-parameters and, where the file has them, thresholds."""
    import math

    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: not a YAML file of parameters") from error
    content = content if isinstance(content, dict) else {}
    tables = []
    for name in ("parameters", "thresholds"):
        table = content.get(name)
        if table is not None and not (
            isinstance(table, dict)
            and all(
                isinstance(value, (int, float)) and math.isfinite(value) for value in table.values()
            )
        ):
            raise ParameterError(f"{path}: '{name}' must be a table of numbers")
        tables.append(table)
    if tables[0] is None:
        raise ParameterError(f"{path}: has no 'parameters'; make it with 'kbf tune'")
    return {str(key): float(value) for key, value in tables[0].items()}, tables[1]


def _print_map(training_map: TrainingMap, path: Path) -> None:
    from rich.markup import escape

    from kbf_localization.cli.console import console, print_table

    for warning in training_map.warnings:
        console.print(f"Note: {warning}", markup=False, highlight=False)
    settings = training_map.describer_settings
    low, high = training_map.poses[:, :2].min(axis=0), training_map.poses[:, :2].max(axis=0)
    noise = training_map.motion_variances**0.5
    rows: list[tuple[object, ...]] = [
        ("Poses", len(training_map), ""),
        ("Extent", f"{high[0] - low[0]:.1f} x {high[1] - low[1]:.1f}", "m"),
        ("Images", f"{settings.image_width} x {settings.image_height}", "pixels"),
        ("Visual words", settings.words, ""),
        ("Histogram bins", settings.bins, ""),
        ("Motion noise of a frame", f"{1e3 * noise[0]:.1f}, {1e3 * noise[1]:.1f}", "mm"),
        ("Size", f"{path.stat().st_size / 1e6:.1f}", "MB"),
        ("Identity", training_map.identity, ""),
    ]
    rows += [(escape(name), value, "") for name, value in training_map.parameters.items()]
    rows += [(escape(name), value, "") for name, value in training_map.thresholds.items()]
    print_table(escape(str(path)), ("Property", "Value", "Units"), rows)
    print_table(
        "Sources",
        ("Source", "Kind", "Lighting", "Frames", "Poses"),
        [
            (
                escape(source.name),
                escape(source.kind),
                None if source.condition is None else escape(source.condition),
                source.frames,
                source.chosen,
            )
            for source in training_map.sources
        ],
    )
