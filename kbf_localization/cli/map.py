"""Build training maps from drives, look into them, check them, and edit them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import command_line, print_line, print_table
from kbf_localization.cli.describers import Descriptor, Model, Network, NewModel
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.map_files import (
    Force,
    KeptPlan,
    MappingOptions,
    NoThumbnails,
    Output,
    check_floor_plan,
    check_output,
    on_floor_plan,
    parse_pair,
    print_map,
    read_pairs,
    read_parameters,
    report_mapping,
    write_alignment,
)
from kbf_localization.cli.options import (
    FloorPlan,
    Jobs,
    MapFile,
    ParallelOptions,
    Results,
    Seed,
    Sources,
    Train,
    takes_groups,
)
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.parallel import make_workers
from kbf_localization.threads import limit_threads

app = typer.Typer(add_completion=False, no_args_is_help=True)
EXIT_BELOW_THE_BAR = 1
NO_BOX = (math.nan,) * 4
"""Ubuntu 24.04's Typer takes no None for an option of several numbers."""

_MORE_DRIVES = Argument(metavar="[DRIVE]...", help="As after --sources.")
_SOURCES = Option(
    metavar="DRIVE...",
    help="The map's drives, or others with known poses: all their images are used.",
)
_MEDIAN = Option(metavar="M", min=0.0, help="Exit code 1 if the median error is above (m).")
_PARAMETERS = Option(metavar="FILE", help="Hyper-parameters from 'kbf tune'.")
_VOCABULARY_FROM = Option(metavar="MAP", help="Use this map's vocabulary, to merge with it later.")
_SELECT = Option(help="How to choose them: coverage (of pose space) or random.")
_POSES_FROM = Option(
    metavar="SOURCE",
    help="given: known poses; odometry: from wheels and images; auto: known where all are.",
)
_ADDED_FROM = Option(
    metavar="SOURCE",
    help="given: known poses; odometry: by localization on the map; auto: known where there are.",
)
_ANCHOR = Option(
    metavar="X,Y,DEG@DRIVE:SECONDS",
    help="A known pose, such as 1.5,2,90@cloudy1:12.5; repeatable.",
)
_SCALE = Option(min=0.1, max=10.0, help="Multiply the wheels' distances by this.")
_REQUIRE_JOINED = Option(
    "--require-joined", help="Refuse drives that nothing joins, instead of leaving them out."
)
_REFINE = Option(
    "--refine-poses", help="Given poses are noisy: find jumps, drift and gaps, and mend them."
)
_POSES = Option(min=1, help="How many poses to choose; default: as many as cover the paths.")
_MORE = Option(min=1, help="How many poses to add; default: as many a drive as the map has.")
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


@app.command()
@takes_groups
def build(
    sources: Sources,
    output: Output,
    force: Force = False,
    no_thumbnails: NoThumbnails = False,
    poses: Annotated[Optional[int], _POSES] = None,
    select: Annotated[str, _SELECT] = "coverage",
    parameters: Annotated[Optional[Path], _PARAMETERS] = None,
    vocabulary_from: Annotated[Optional[Path], _VOCABULARY_FROM] = None,
    floor_plan: KeptPlan = None,
    no_landmarks: Annotated[
        bool, Option("--no-landmarks", help="Leave out the landmarks that measure centimetres.")
    ] = False,
    vocabulary_size: Annotated[int, Option(min=2, max=5000, help="Visual words to learn.")] = 200,
    descriptor: Descriptor = "sift",
    model: NewModel = None,
    seed: Seed = 0,
    train: Train = None,
    poses_from: Annotated[str, _POSES_FROM] = "auto",
    anchor: Annotated[Optional[list[str]], _ANCHOR] = None,
    odometry_scale: Annotated[float, _SCALE] = 1.0,
    require_joined: Annotated[bool, _REQUIRE_JOINED] = False,
    refine_poses: Annotated[bool, _REFINE] = False,
    results: Annotated[
        Optional[Path], Option(metavar="DIR", help="Folder for mapping.html and mapping.json.")
    ] = None,
    *,
    parallel: ParallelOptions,
    network: Network,
    reading: Reading,
) -> None:
    """Build a map from one or more drives, with known poses or without any.

    Example: `kbf map build drives/cloudy1 drives/cloudy2 --output office.kbfmap`. Known poses in a
    bag have a topic: `kbf map build office.mcap --pose-topic /ground_truth --output office.kbfmap`.
    Without known poses, or with `--poses-from odometry`, they are estimated from wheel odometry and
    images, and mapping.html shows how well. With
    a learned network: `kbf map build drives/cloudy1 --descriptor 'sift*onnx' --model net.onnx
    --output office.kbfmap`
    """
    limit_threads(1)
    from kbf_localization.mapping import build_map, load_map
    from kbf_localization.training_map import save_map, without_thumbnails

    tuned = None if parameters is None else read_parameters(parameters)
    check_output(output, force)
    if floor_plan is not None:
        check_floor_plan(floor_plan)
    base = None if vocabulary_from is None else load_map(vocabulary_from, model)
    if base is not None and descriptor != "sift":
        raise ParameterError(
            "--vocabulary-from takes the descriptor of that map: leave --descriptor away"
        )
    recipe = network.recipes([descriptor], model)[0] if base is None else "sift"
    drives = reading.open_all(sources, train)
    workers = parallel.workers()
    options = MappingOptions(
        poses_from, anchor or [], odometry_scale, require_joined, refine_poses, seed
    )
    with show_progress() as progress:
        source = options.with_poses(drives, workers, progress)
        report_mapping(drives, source, options, output, results)
        training_map = build_map(
            source.drives,
            poses_from="given",
            poses=poses,
            select=select,
            words=vocabulary_size,
            describer=recipe,
            like=base,
            parameters=tuned,
            floor_plan=floor_plan,
            landmarks=not no_landmarks,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    training_map = source.annotated(training_map)
    if no_thumbnails:
        training_map = without_thumbnails(training_map)
    save_map(training_map, output, replace=force)
    print_map(training_map, output)


@app.command("add-landmarks")
@takes_groups
def add_landmarks(
    map_path: MapFile,
    sources: Annotated[list[Path], Option(help="A drive that the map was built from; repeatable.")],
    output: Annotated[
        Optional[Path], Option(metavar="MAP", help="Where it goes; default: the map itself.")
    ] = None,
    force: Force = False,
    *,
    parallel: ParallelOptions,
    reading: Reading,
) -> None:
    """Give an old map landmarks, from the drives that it was built from.

    Example: `kbf map add-landmarks office.kbfmap --sources drives/cloudy1 --sources drives/cloudy2`
    """
    limit_threads(1)
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.landmarks import add_landmarks as make
    from kbf_localization.training_map import save_map

    target = output or map_path
    if output is not None:
        check_output(output, force)
    training_map = load_map(map_path)
    drives = reading.open_all(sources)
    with show_progress() as progress:
        made = make(training_map, drives, parallel.workers(), progress)
    save_map(made, target, replace=output is None or force)
    print_map(made, target)


@app.command()
@takes_groups
def check(
    map_path: MapFile,
    more: Annotated[Optional[list[Path]], _MORE_DRIVES] = None,
    sources: Annotated[Optional[list[Path]], _SOURCES] = None,
    require_median: Annotated[Optional[float], _MEDIAN] = None,
    as_json: Annotated[bool, Option("--json", help="Print metrics.json, no table.")] = False,
    output: Results = None,
    model: Model = None,
    floor_plan: FloorPlan = None,
    seed: Seed = 0,
    *,
    reading: Reading,
) -> None:
    """Find out where a map will work and where not, before a robot relies on it.

    Example: `kbf map check office.kbfmap` writes check.html; `kbf map check office.kbfmap
    --sources drives/cloudy1 drives/cloudy2` uses all images of these drives; `kbf map check
    office.kbfmap --require-median 0.3` ends with exit code 1 where the map is worse than that.
    """
    limit_threads(1)
    from kbf_localization.evaluation.map_check.check import check_map
    from kbf_localization.evaluation.map_check.page import metric_rows, write_check
    from kbf_localization.evaluation.results import ResultsFolder, to_plain
    from kbf_localization.mapping import load_map

    training_map = on_floor_plan(load_map(map_path, model), floor_plan)
    paths = [*(sources or []), *(more or [])]
    drives = reading.open_all(paths)
    with show_progress() as progress:
        found = check_map(training_map, drives, seed=seed, progress=progress)
        folder = ResultsFolder.create("map-check", output)
        config = {
            "command": command_line(),
            "map": map_path,
            "map_identity": training_map.identity,
            "sources": paths,
            "seed": seed,
        }
        page = write_check(folder, found, config)
    if as_json:
        typer.echo(json.dumps(to_plain(found.metrics), indent=2, allow_nan=False))
    else:
        print_table("Expected of this map", ("Metric", "Value"), metric_rows(found))
        for line in (found.verdict, *(f"{n}. {text}" for n, text in enumerate(found.advice, 1))):
            print_line(line)
        print_line(f"Results: {page}")
    median_m = math.inf if found.median_m is None else found.median_m
    if require_median is not None and not median_m <= require_median:
        raise typer.Exit(EXIT_BELOW_THE_BAR)


@app.command()
def info(
    map_path: MapFile,
    output: Annotated[Optional[Path], Option(metavar="DIR", help="Folder for the plot.")] = None,
    floor_plan: FloorPlan = None,
) -> None:
    """Show what is in a map, as a table and a plot.

    Example: `kbf map info office.kbfmap`
    """
    from kbf_localization.evaluation.map_plot import draw_map
    from kbf_localization.evaluation.plots import save_figure
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.mapping import load_map

    training_map = on_floor_plan(load_map(map_path), floor_plan)
    print_map(training_map, map_path)
    folder = ResultsFolder.create("map-info", output, latest=False)
    print_line(f"Plot: {save_figure(folder, 'map.png', draw_map(training_map))}")


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
    poses_from: Annotated[str, _ADDED_FROM] = "auto",
    *,
    reading: Reading,
) -> None:
    """Add drives to a map, described with its visual words.

    A drive without known poses is localized on the map first. Example: `kbf map add office.kbfmap
    drives/night1 --output office2.kbfmap`; with `--output office.kbfmap --force` the map itself is
    replaced.
    """
    limit_threads(1)
    from kbf_localization.datasets.parts import with_camera
    from kbf_localization.evaluation.evaluate import localized_drive
    from kbf_localization.mapping import build_map, load_map
    from kbf_localization.mapping.editing import merge_maps, refuse_repeated
    from kbf_localization.mapping.poses import POSES_FROM
    from kbf_localization.training_map import save_map, without_thumbnails

    check_output(output, force)
    if poses_from not in POSES_FROM:
        raise ParameterError(f"--poses-from {poses_from}: give {', '.join(POSES_FROM)}")
    training_map = load_map(map_path, model)
    drives, landmarks = reading.open_all(sources, train), training_map.landmarks
    if landmarks is not None:  # which need the map's camera
        drives = [with_camera(drive, landmarks.camera, landmarks.mount) for drive in drives]
    refuse_repeated(
        [source.name for source in training_map.sources], [drive.name for drive in drives]
    )
    if training_map.own_frame and poses_from == "given":
        raise MapError(
            f"{map_path}: has its own frame, so given poses do not fit it; align it first with "
            "'kbf map align', or let the drive be localized: --poses-from odometry"
        )
    default_poses = -(-len(training_map) // len(training_map.sources)) * len(drives)
    with show_progress() as progress:
        drives = [
            drive
            if poses_from == "given"
            or (poses_from == "auto" and drive.poses is not None and not training_map.own_frame)
            else localized_drive(training_map, drive, seed, progress)
            for drive in drives
        ]
        more = build_map(
            drives,
            poses_from="given",
            poses=poses or default_poses,
            like=training_map,
            seed=seed,
            parameters=training_map.parameters,
            workers=make_workers(jobs),
            progress=progress,
        )
    joined = merge_maps([training_map, without_thumbnails(more) if no_thumbnails else more])
    save_map(joined, output, replace=force)
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
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.editing import remove_box, remove_sources
    from kbf_localization.training_map import save_map, without_thumbnails

    boxed = not all(map(math.isnan, box))
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


@app.command()
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


@app.command()
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
    for path in (image, output):
        check_output(path, force)
    plan = drivable_grid(load_map(map_path), robot_radius, resolution, obstacles)
    pgm, text = plan_files(plan, image.name)
    with atomic_write(image, replace=force) as temporary:
        temporary.write_bytes(pgm)
    with atomic_write(output, replace=force) as temporary:
        temporary.write_text(text, encoding="ascii")
    height, width = plan.image.shape
    print_line(f"Grid: {output}, {width} x {height} cells of {resolution:g} m, image {image.name}")


@app.command()
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
    from kbf_localization.mapping import load_map
    from kbf_localization.mapping.editing import disagreement, frame_from_pairs, move_map
    from kbf_localization.training_map import save_map

    pairs = [] if to is None else read_pairs(to).tolist()
    pairs += [parse_pair(text) for text in pair or ()]
    if not pairs:
        if floor_plan is None:
            raise ParameterError("give points, --to CSV or --pair, or a --floor-plan to click on")
        write_alignment(map_path, floor_plan, results)
        return
    if output is None:
        raise ParameterError("name the map to write: --output MAP")
    check_output(output, force)
    frame, errors = frame_from_pairs(pairs)
    moved = on_floor_plan(move_map(load_map(map_path), frame), floor_plan)
    save_map(moved, output, replace=force)
    x, y, degrees = frame[0], frame[1], math.degrees(frame[2])
    moved_by = f"Moved by x {x:.3f} m, y {y:.3f} m, {degrees:.2f} degrees"
    print_line(f"{moved_by}; the points agree within {errors.max():.3f} m")
    if (doubt := disagreement(pairs, frame)) is not None:
        print_line(f"Warning: {doubt}", style="bold red")
    print_line(f"Map: {output}")
