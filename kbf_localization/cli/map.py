"""Build training maps from drives, look into them, check them, and edit them."""

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
from kbf_localization.cli.map_check import EXAMPLE as CHECK_EXAMPLE
from kbf_localization.cli.map_check import check
from kbf_localization.errors import ParameterError

if TYPE_CHECKING:
    from kbf_localization.training_map import TrainingMap

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")

app.command(epilog=CHECK_EXAMPLE)(check)

Output = Annotated[Path, typer.Option("--output", metavar="MAP", help="The map file to write.")]


@app.callback()
def map_commands() -> None:
    """Build training maps from drives, look into them, check them, and edit them."""


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
    from kbf_localization.atomic_write import check_writable
    from kbf_localization.errors import MapError

    if path.is_dir() or not path.parent.is_dir():
        raise MapError(f"{path}: cannot be written; name a file in a folder that exists")
    check_writable(path.parent)


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


def _print_map(training_map: TrainingMap, path: Path) -> None:
    from rich.markup import escape

    from kbf_localization.cli.console import console, print_table

    for warning in training_map.warnings:
        console.print(f"Note: {warning}", markup=False, highlight=False)
    settings = training_map.describer_settings
    low, high = training_map.poses[:, :2].min(axis=0), training_map.poses[:, :2].max(axis=0)
    rows: list[tuple[object, ...]] = [
        ("Poses", len(training_map), ""),
        ("Extent", f"{high[0] - low[0]:.1f} x {high[1] - low[1]:.1f}", "m"),
        ("Images", f"{settings.image_width} x {settings.image_height}", "pixels"),
        ("Visual words", settings.words, ""),
        ("Histogram bins", settings.bins, ""),
        ("Grid of words", "no; offsets cannot be read, build the map anew", "")
        if training_map.word_grids is None
        else (
            "Grid of words",
            training_map.word_grids.itemsize * training_map.word_grids.shape[1],
            "bytes/pose",
        ),
        ("Size", f"{path.stat().st_size / 1e6:.1f}", "MB"),
        ("Identity", training_map.identity, ""),
    ]
    rows += [(escape(name), value, "") for name, value in training_map.parameters.items()]
    print_table(escape(str(path)), ("Property", "Value", "Units"), rows)
    print_table(
        "What the map learned", ("Quantity", "Value", "What it means"), _learned(training_map)
    )
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


def _learned(training_map: TrainingMap) -> list[tuple[object, ...]]:
    """What the map knows about itself, each quantity with what it means."""
    import numpy as np

    known = training_map.learned
    resemblance, readout, noise = known.resemblance, known.readout, known.motion_noise
    best = np.sqrt(readout.variances(readout.prominence[1], readout.apparent[0]))
    worst = np.sqrt(readout.variances(readout.prominence[0], readout.apparent[1]))
    metre = np.sqrt(noise.per_metre)
    return [
        (
            "learned from",
            f"{known.probes} images, {known.drives} drive{'s' if known.drives != 1 else ''}",
            "each compared with images of other times"
            if known.revisits
            else "no place was seen twice: what follows may flatter; map a second drive",
        ),
        (
            "scales d0, phi0",
            f"{resemblance.distance_m:.2f} m, {np.degrees(resemblance.angle_rad):.0f} deg",
            "so far apart, two images no longer look alike",
        ),
        ("contrast", f"{resemblance.amplitude:.2f}", "of images of one place: 0 none, 1 strong"),
        (
            "evidence",
            f"{known.evidence.usual:.1f} (rarely below {known.evidence.low:.1f})",
            "log odds that an image at its right pose gives against elsewhere",
        ),
        (
            "pose from one image",
            f"{best[0]:.2f} to {worst[0]:.2f} m, {np.degrees(best[2]):.0f} to "
            f"{np.degrees(worst[2]):.0f} deg",
            "standard deviation forward and in heading, best and worst match",
        ),
        (
            "odometry, after 1 m",
            f"{metre[0]:.3f} m, {np.degrees(metre[2]):.1f} deg",
            f"standard deviation; {noise.set_aside} stretches set aside as faults",
        ),
    ]
