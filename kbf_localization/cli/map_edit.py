"""`kbf map add`, `remove` and `merge`: drives into a map and out of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Optional

from typer import Argument, Option

from kbf_localization.cli.describers import Model
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.map_files import Force, NoThumbnails, Output
from kbf_localization.cli.options import Jobs, MapFile, Seed, Sources, Train, takes_groups
from kbf_localization.errors import MapError


@takes_groups
def add(
    map_path: MapFile,
    sources: Sources,
    output: Output,
    model: Model = None,
    force: Force = False,
    no_thumbnails: NoThumbnails = False,
    poses: Annotated[
        Optional[int],
        Option(min=1, help="How many poses to add; default: as many a drive as the map has."),
    ] = None,
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
    from kbf_localization.cli.map_files import check_output, print_map
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.parallel import make_workers
    from kbf_localization.training_map import build_map, load_map, save_map, without_thumbnails
    from kbf_localization.training_map.merge import merge_maps, refuse_repeated

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
            workers=make_workers(jobs, None),
            progress=progress,
        )
    joined = merge_maps([training_map, without_thumbnails(more) if no_thumbnails else more])
    save_map(joined, output)
    print_map(joined, output)


NO_BOX = (math.nan,) * 4
"""Ubuntu 24.04's Typer takes no None for an option of several numbers."""


_SOURCE = Option(metavar="NAME", help="The poses of this drive; repeatable.")
_BOX = Option(
    metavar="X0 Y0 X1 Y1", help="The poses between these corners, in metres.", show_default=False
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
    from kbf_localization.cli.map_files import check_output, print_map
    from kbf_localization.training_map import load_map, save_map, without_thumbnails
    from kbf_localization.training_map.remove import remove_box, remove_sources

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


def merge(
    maps: Annotated[list[Path], Argument(metavar="MAP...", help="Maps of the same words.")],
    output: Output,
    force: Force = False,
) -> None:
    """Join maps, such as those of several lightings, into one.

    Example: `kbf map build drives/night1 --like cloudy.kbfmap --output night.kbfmap`, then
    `kbf map merge cloudy.kbfmap night.kbfmap --output both.kbfmap`
    """
    from kbf_localization.cli.map_files import check_output, print_map
    from kbf_localization.training_map import load_map, save_map
    from kbf_localization.training_map.merge import merge_maps

    check_output(output, force)
    merged = merge_maps([load_map(path) for path in maps])
    save_map(merged, output)
    print_map(merged, output)
