"""Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import print_line
from kbf_localization.cli.experiment_record import (
    Buildings,
    KeptDrives,
    MapPoses,
    MorePaths,
    Record,
    Sizes,
    Trajectories,
    Trials,
    parse_sizes,
    rendering,
)
from kbf_localization.cli.options import (
    Computers,
    ImageSize,
    Jobs,
    ManyMethods,
    Results,
    Seed,
    chosen_methods,
    parse_image_size,
    takes_groups,
)
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import DatasetError, ParameterError
from kbf_localization.parallel import make_workers
from kbf_localization.threads import limit_threads

app = typer.Typer(add_completion=False, no_args_is_help=True)

_BUDGET = Option(min=1, help="Settings tried for each method.")
_COLD = Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar.")
_FOLDERS = Argument(metavar="FOLDER...", help="Folders with data sets, or drives.")
_SEEDS = Option(min=1, help="Times that odometry is simulated where there is none.")
_STARTS = Option(min=2, help="Global starts; kidnappings are half as many.")
_TUNE_AT = Option(min=10, help="Tune once, with so many poses, instead of at each size.")


@app.command()
def sum_rule(trials: Trials = 30, seed: Seed = 0, jobs: Jobs = -1, output: Results = None) -> None:
    """Section 6.1: the sum rules' exact errors where the truth is known in closed form.

    Example: `kbf experiment sum-rule --trials 30`
    """
    limit_threads(1)
    from kbf_localization.experiments.sum_rule import run_trials
    from kbf_localization.experiments.sum_rule_findings import findings

    record = Record("sum-rule", output, trials=trials, seed=seed)
    with show_progress() as progress:
        results = run_trials(trials, seed, make_workers(jobs), progress)
    record.finish(findings(results))


@app.command()
def synthetic(
    trials: Trials = 30,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Sizes = "50,100,200",
    output: Results = None,
) -> None:
    """Section 6.2: filtering with the model-based and the non-parametric sum rule, two grids.

    Example: `kbf experiment synthetic --trials 3`
    """
    limit_threads(1)
    from kbf_localization.experiments.synthetic import GRIDS, run_trials
    from kbf_localization.experiments.synthetic_findings import findings

    numbers, grids = parse_sizes(sizes), {name: vars(grid) for name, grid in GRIDS.items()}
    record = Record("synthetic", output, trials=trials, seed=seed, sizes=numbers, grids=grids)
    with show_progress() as progress:
        outcomes = run_trials(trials, seed, numbers, make_workers(jobs), progress)
    record.finish(findings(outcomes, trials))


@app.command()
@takes_groups
def localization(
    trials: Trials = 10,
    seed: Seed = 0,
    sizes: Sizes = "100,200,400,800",
    methods: ManyMethods = None,
    cold: Annotated[Optional[Path], _COLD] = None,
    trajectories: Trajectories = None,
    budget: Annotated[int, _BUDGET] = 24,
    tune_at: Annotated[Optional[int], _TUNE_AT] = None,
    drives: KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
    *,
    computers: Computers,
) -> None:
    """Section 6.3: the position's error against the size of the map, for all methods.

    Example: `kbf experiment localization --trials 3 --sizes 100,400`. The paper's own data:
    `kbf experiment localization --cold COLD`
    """
    limit_threads(1)
    from kbf_localization.experiments.localization import findings, run_trials
    from kbf_localization.experiments.localization_drives import real_archives, rendered_drives

    numbers, pixels = parse_sizes(sizes), parse_image_size(size)
    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    if cold is not None and trajectories is not None:
        raise ParameterError("--cold has its own trajectories: give it or --trajectories, not both")
    settings: dict[str, Any] = {"trials": trials, "sizes": numbers, "methods": names}
    settings |= {"budget": budget, "tune_at": tune_at, "seed": seed}
    record = Record("localization", output, **settings)
    workers = computers.workers()
    with rendering(drives) as (folder, progress):
        if cold is not None:
            setup = real_archives(cold, folder)
        else:
            setup = rendered_drives(folder, trajectories, pixels, seed, workers, progress)
        print_line(f"Data: {setup.description}")
        record.note(data=setup.description)
        results, tunings = run_trials(
            setup, **settings, journals=record.folder.path, workers=workers, progress=progress
        )
    record.finish(findings(results, tunings, setup.description))


@app.command()
def recovery(
    trials: Annotated[int, _STARTS] = 100,
    poses: Annotated[int, Option(min=50, help="Poses of the map.")] = 1000,
    frames: Annotated[int, Option(min=200, help="Frames of each simulated drive.")] = 1000,
    size: ImageSize = "320x240",
    drives: Annotated[int, Option(min=1, help="Undisturbed test drives.")] = 3,
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Global starts, kidnappings, honesty of the covariance, and another light than the map's.

    Example: `kbf experiment recovery --trials 20`
    """
    limit_threads(1)
    from kbf_localization.experiments.recovery import make_world, run_trials
    from kbf_localization.experiments.recovery_findings import findings

    pixels = parse_image_size(size)
    settings = {"trials": trials, "poses": poses, "frames": frames, "drives": drives}
    record = Record("recovery", output, **settings, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering() as (folder, progress):
        world = make_world(
            folder, poses, frames, drives, pixels, seed=seed, workers=workers, progress=progress
        )
        outcome = run_trials(world, trials, seed, workers, progress)
    record.finish(findings(outcome))


@app.command()
def public(
    folders: Annotated[list[Path], _FOLDERS],
    methods: ManyMethods = None,
    poses: Annotated[int, Option(min=10, help="Poses of each map, at most.")] = 1000,
    seeds: Annotated[int, _SEEDS] = 3,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """All methods on every public data set in FOLDER: map from one time, test at another.

    7-Scenes by its own split, OpenLORIS by visits, any other drive by its two halves; interleaved,
    and labelled so, where the later half sees nothing of the first. Where a data set has no wheel
    odometry it is simulated, several times, and marked.

    Example: `kbf experiment public ~/datasets/7scenes`
    """
    limit_threads(1)
    from kbf_localization.experiments.public import findings, run_protocol
    from kbf_localization.experiments.public_protocols import find_protocols

    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    protocols = find_protocols(folders)
    record = Record("public", output, folders=folders, methods=names, poses=poses, seeds=seeds)
    workers = make_workers(jobs)
    sets: list[tuple[str, dict[str, Any]]] = []
    with show_progress() as progress:
        for protocol in protocols:
            try:
                figures = run_protocol(
                    protocol, names, poses=poses, seeds=seeds, workers=workers, progress=progress
                )
            except DatasetError as error:
                print_line(f"Note: left out: {error}")
                continue
            sets.append((protocol.name, figures))
            # What is done is kept, should a later set be interrupted.
            record.folder.write_metrics(findings(sets).metrics)
    if not sets:
        raise DatasetError("none of the data sets could be used")
    record.finish(findings(sets))


@app.command()
def faults(
    buildings: Annotated[int, Option(min=2, help="Offices, of consecutive seeds.")] = 3,
    trajectories: MorePaths = None,
    only: Annotated[Optional[str], Option(help="Faults, with commas. Default: all.")] = None,
    kidnappings: Annotated[int, Option(min=1, help="Kidnappings over all buildings.")] = 51,
    poses: MapPoses = 400,
    frames: Annotated[int, Option(min=400, help="Frames of each simulated drive.")] = 500,
    size: ImageSize = "320x240",
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """21 faults of camera, odometry, map and place: does it notice, and does it come back?

    Example: `kbf experiment faults --only covered,kidnapped`
    """
    limit_threads(1)
    from kbf_localization.experiments.faults_buildings import Builder
    from kbf_localization.experiments.faults_run import check_faults, findings, run_faults

    pixels, names = parse_image_size(size), check_faults(only)
    settings = {"buildings": buildings, "trajectories": trajectories, "kidnappings": kidnappings}
    record = Record("faults", output, **settings, poses=poses, frames=frames, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering() as (folder, progress):
        builder = Builder(poses, pixels, workers, progress)
        places = [
            builder.invented(folder / f"office{number}", number, frames)
            for number in range(seed, seed + buildings)
        ]
        if trajectories is not None:
            places.append(builder.round_path(folder / "path", trajectories, seed))
        outcomes = list(run_faults(places, names, kidnappings, workers, progress))
    record.finish(findings(outcomes, len(places)))


@app.command()
def map_check(
    buildings: Buildings = 4,
    poses: MapPoses = 500,
    size: ImageSize = "320x240",
    seed: Seed = 61,
    drives: KeptDrives = None,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Cut holes into maps: does a later drive fail where 'kbf map check' says, and err as much?

    Example: `kbf experiment map-check --buildings 4`
    """
    limit_threads(1)
    from kbf_localization.experiments.localization_drives import rendered_drives
    from kbf_localization.experiments.map_prediction import findings, predict

    pixels = parse_image_size(size)
    record = Record("map-check", output, buildings=buildings, poses=poses, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering(drives) as (folder, progress):
        setups = {
            number: rendered_drives(folder, None, pixels, number, workers, progress)
            for number in range(seed, seed + buildings)
        }
        found = predict(setups, poses, workers, progress)
    record.finish(findings(found))


@app.command()
def ablation(
    trials: Trials = 5,
    offices: Buildings = 2,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Sizes = "200,800",
    trajectories: Trajectories = None,
    drives: KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
) -> None:
    """The error of localization with one part of the filter left out after the other.

    Example: `kbf experiment ablation --trials 2 --sizes 200`
    """
    limit_threads(1)
    from kbf_localization.experiments.ablation import findings, run_trials
    from kbf_localization.experiments.localization_drives import rendered_drives

    numbers, pixels = parse_sizes(sizes), parse_image_size(size)
    settings: dict[str, Any] = {"trials": trials, "seed": seed, "sizes": numbers}
    record = Record(
        "ablation", output, **settings, offices=offices, size=size, trajectories=trajectories
    )
    workers = make_workers(jobs)
    with rendering(drives) as (folder, progress):
        setups = [
            rendered_drives(folder, trajectories, pixels, number, workers, progress)
            for number in range(seed, seed + offices)
        ]
        results = run_trials(setups, **settings, workers=workers, progress=progress)
    record.finish(findings(results))
