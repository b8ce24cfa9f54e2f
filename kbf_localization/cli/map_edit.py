"""Edit maps: remove drives or areas, merge maps, align them, write a grid for Nav2."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Optional

from typer import Argument, Option

from kbf_localization.cli.console import command_line, print_line
from kbf_localization.cli.map_files import (
    Force,
    KeptPlan,
    Output,
    check_output,
    on_floor_plan,
    print_map,
)
from kbf_localization.cli.options import MapFile
from kbf_localization.errors import MapError, ParameterError

NO_BOX = (math.nan,) * 4
"""Ubuntu 24.04's Typer takes no None for an option of several numbers."""

_SOURCE = Option(metavar="NAME", help="The poses of this drive; repeatable.")
_BOX = Option(
    metavar="X0 Y0 X1 Y1", help="The poses between these corners, in metres.", show_default=False
)
_RADIUS = Option(min=0.01, max=10.0, help="Free cells reach so far from the path (m).")
_GRID = Option(metavar="YAML", help="The grid's file; the image lies beside it.")
_OBSTACLES = Option("--obstacles", help="Mark cells with landmarks at a robot's height.")
_TO = Option(metavar="CSV", help="Lines of x_map,y_map,x_to,y_to in metres; two or more.")
_PAIR = Option(
    metavar="X,Y,X_TO,Y_TO", help="A point in the map and where it is there; repeatable."
)


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
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.editing import remove_box, remove_sources
    from kbf_localization.training_map import save_map, without_thumbnails

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
    save_map(training_map, output, replace=force)
    print_map(training_map, output)


def merge(
    maps: Annotated[list[Path], Argument(metavar="MAP...", help="Maps of the same words.")],
    output: Output,
    force: Force = False,
) -> None:
    """Join maps, such as those of several lightings, into one.

    Example: `kbf map build drives/night1 --vocabulary-from cloudy.kbfmap --output night.kbfmap`,
    then `kbf map merge cloudy.kbfmap night.kbfmap --output both.kbfmap`
    """
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.editing import merge_maps
    from kbf_localization.training_map import save_map

    check_output(output, force)
    loaded = [load_map(path) for path in maps]
    own = [str(path) for path, part in zip(maps, loaded) if part.own_frame]
    if own and len(maps) > 1:
        raise MapError(
            f"{own[0]}: has its own frame, so it fits no other map; align it first with 'kbf map "
            "align', or add the other's drives with 'kbf map add'"
        )
    merged = merge_maps(loaded)
    save_map(merged, output, replace=force)
    print_map(merged, output)


def grid(
    map_path: MapFile,
    output: Annotated[Path, _GRID],
    robot_radius: Annotated[float, _RADIUS] = 0.25,
    resolution: Annotated[float, Option(min=0.005, max=1.0, help="Metres a cell.")] = 0.05,
    obstacles: Annotated[bool, _OBSTACLES] = False,
    force: Annotated[bool, Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a grid for Nav2's map_server: free where the robot drove, unknown elsewhere.

    Example: `kbf map grid office.kbfmap --robot-radius 0.25 --output office.yaml`
    """
    from kbf_localization.atomic_write import atomic_write
    from kbf_localization.datasets.floor_plan_image import plan_files
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.grid import drivable_grid

    if output.suffix not in (".yaml", ".yml"):
        raise MapError(f"{output}: name a .yaml file; the image lies beside it")
    image = output.with_suffix(".pgm")
    for path in (output, image):
        check_output(path, force)
    plan = drivable_grid(load_map(map_path), robot_radius, resolution, obstacles)
    pgm, text = plan_files(plan, image.name)
    with atomic_write(image, replace=force) as temporary:
        temporary.write_bytes(pgm)
    with atomic_write(output, replace=force) as temporary:
        temporary.write_text(text, encoding="ascii")
    height, width = plan.image.shape
    print_line(f"Grid: {output}, {width} x {height} cells of {resolution:g} m, image {image.name}")


def align(
    map_path: MapFile,
    to: Annotated[Optional[Path], _TO] = None,
    pair: Annotated[Optional[list[str]], _PAIR] = None,
    floor_plan: KeptPlan = None,
    output: Annotated[Optional[Path], Option(metavar="MAP", help="The map file to write.")] = None,
    results: Annotated[Optional[Path], Option(metavar="DIR", help="Folder for align.html.")] = None,
    force: Force = False,
) -> None:
    """Move a map into another frame, by points that are known in both.

    Example: `kbf map align office.kbfmap --to points.csv --output aligned.kbfmap`, where each line
    of points.csv is x_map,y_map,x_to,y_to in metres. With a floor plan and no points a page is
    written on which they are clicked, and which shows the command to run:
    `kbf map align office.kbfmap --floor-plan plan.yaml`
    """
    from kbf_localization.cli.mapping import parse_pair, read_pairs
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.editing import disagreement, frame_from_pairs, move_map
    from kbf_localization.training_map import save_map

    pairs = [] if to is None else read_pairs(to).tolist()
    pairs += [parse_pair(text) for text in pair or ()]
    if not pairs:
        if floor_plan is None:
            raise ParameterError("give points, --to CSV or --pair, or a --floor-plan to click on")
        _write_alignment(map_path, floor_plan, results)
        return
    if output is None:
        raise ParameterError("name the map to write: --output MAP")
    check_output(output, force)
    frame, errors = frame_from_pairs(pairs)
    moved = on_floor_plan(move_map(load_map(map_path), frame), floor_plan)
    save_map(moved, output, replace=force)
    x, y, heading = frame
    print_line(
        f"Moved by x {x:.3f} m, y {y:.3f} m, {math.degrees(heading):.2f} degrees; the points agree "
        f"within {errors.max():.3f} m"
    )
    doubt = disagreement(pairs, frame)
    if doubt is not None:
        print_line(f"Warning: {doubt}", style="bold red")
    print_line(f"Map: {output}")


def _write_alignment(map_path: Path, floor_plan: Path, results: Path | None) -> None:
    """Write the page on which a map is aligned by mouse."""
    from kbf_localization.evaluation.alignment_page import write_alignment_page
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.mapping import load_map

    training_map = load_map(map_path)
    folder = ResultsFolder.create("map-align", results)
    page = write_alignment_page(folder, training_map, map_path, floor_plan, command_line())
    print_line(f"Open {page}, click three pairs of places, and run the command that it shows.")
