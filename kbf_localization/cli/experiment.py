"""Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.markup import escape
from typer import Argument, Option

from kbf_localization.cli.console import command_line, format_cell, print_line, print_table
from kbf_localization.cli.options import (
    ImageSize,
    Jobs,
    ManyMethods,
    ParallelOptions,
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

if TYPE_CHECKING:
    from kbf_localization.experiments.result import ExperimentResult
    from kbf_localization.progress import Progress

app = typer.Typer(add_completion=False, no_args_is_help=True)
_BUDGET = Option(min=1, help="Settings tried for each method.")
_COLD = Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar.")
_FOLDERS = Argument(metavar="FOLDER...", help="Folders with data sets, or drives.")
_SEEDS = Option(min=1, help="Times that odometry is simulated where there is none.")
_STARTS = Option(min=2, help="Global starts; kidnappings are half as many.")
_TUNE_AT = Option(min=10, help="Tune once, with so many poses, instead of at each size.")
_PATHS = "Folder with the paths of COLD's Saarbrücken seq1_cloudy1 and seq2_cloudy1 (places.lst)"
Trials = Annotated[int, Option(min=1, help="Independent trials.")]
Sizes = Annotated[str, Option(help="Numbers n of training poses or pairs, separated by commas.")]
Buildings = Annotated[int, Option(min=1, help="Invented offices, of consecutive seeds.")]
MapPoses = Annotated[int, Option(min=50, help="Poses of each map.")]
Trajectories = Annotated[
    Optional[Path], Option(help=f"{_PATHS}, to render images along. Default: an invented path.")
]
MorePaths = Annotated[Optional[Path], Option(help=f"{_PATHS}: one more building, round them.")]
KeptDrives = Annotated[
    Optional[Path], Option(help="Keep the rendered drives in this folder, and use them again.")
]


def parse_sizes(text: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ParameterError(f"--sizes {text}: give whole numbers, such as 50,100,200") from None
    if numbers[0] < 4:
        raise ParameterError(f"--sizes {text}: cross validation needs at least 4 training pairs")
    return numbers


class Record:
    """The folder of an experiment, with its configuration and what it found."""

    def __init__(self, experiment: str, output: Path | None, **settings: Any) -> None:
        from kbf_localization.evaluation.results import ResultsFolder

        self.folder = ResultsFolder.create(f"experiment {experiment}", output)
        self._config: dict[str, Any] = {"command": command_line(), "experiment": experiment}
        self.note(**settings)

    def note(self, **settings: Any) -> None:
        """Add to the configuration."""
        self._config |= settings
        self.folder.write_config(self._config)

    def finish(self, found: ExperimentResult) -> None:
        """Write all files, and print the tables."""
        report = found.write(self.folder, self._config)
        for table in found.tables:
            rows = [[escape(format_cell(cell)) for cell in row] for row in table.rows]
            print_table(escape(table.title), table.columns, rows)
        print_line(f"Results: {report}")


@contextmanager
def rendering(kept: Path | None = None) -> Iterator[tuple[Path, Progress]]:
    """Yield a folder for rendered drives, removed at the end unless `kept`, and a progress."""
    with tempfile.TemporaryDirectory(prefix="kbf-drives-") as folder, show_progress() as progress:
        yield kept or Path(folder), progress


@app.command()
def sum_rule(trials: Trials = 30, seed: Seed = 0, jobs: Jobs = -1, output: Results = None) -> None:
    """Run section 6.1: the sum rules' exact errors where the truth is known in closed form.

    Example: `kbf experiment sum-rule --trials 30`
    """
    limit_threads(1)
    from kbf_localization.experiments.sum_rule import experiment_result, run_trials

    record = Record("sum-rule", output, trials=trials, seed=seed)
    with show_progress() as progress:
        results = run_trials(trials, seed, make_workers(jobs), progress)
    record.finish(experiment_result(results))


@app.command()
def convergence(
    trials: Trials = 20,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Sizes = "50,100,200,400,800",
    output: Results = None,
) -> None:
    """Proposition 1: how fast the sum rules' errors fall as the samples grow, with slopes.

    Example: `kbf experiment convergence --trials 20`
    """
    limit_threads(1)
    from kbf_localization.experiments.convergence import experiment_result, run_trials

    numbers = parse_sizes(sizes)
    if len(numbers) < 2:
        raise ParameterError("--sizes: a slope needs at least two sizes")
    record = Record("convergence", output, trials=trials, seed=seed, sizes=numbers)
    with show_progress() as progress:
        results = run_trials(trials, seed, numbers, make_workers(jobs), progress)
    record.finish(experiment_result(results))


@app.command()
def synthetic(
    trials: Trials = 30,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Sizes = "50,100,200",
    output: Results = None,
) -> None:
    """Run section 6.2: filtering with the model-based and the non-parametric sum rule, two grids.

    Example: `kbf experiment synthetic --trials 3`
    """
    limit_threads(1)
    from kbf_localization.experiments.synthetic import experiment_result, run_trials
    from kbf_localization.experiments.synthetic_filter import GRIDS

    numbers, grids = parse_sizes(sizes), {name: vars(grid) for name, grid in GRIDS.items()}
    record = Record("synthetic", output, trials=trials, seed=seed, sizes=numbers, grids=grids)
    with show_progress() as progress:
        outcomes = run_trials(trials, seed, numbers, make_workers(jobs), progress)
    record.finish(experiment_result(outcomes, trials))


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
    parallel: ParallelOptions,
) -> None:
    """Run section 6.3: the position's error against the size of the map, for all methods.

    Example: `kbf experiment localization --trials 3 --sizes 100,400`. The paper's own data:
    `kbf experiment localization --cold COLD`
    """
    limit_threads(1)
    from kbf_localization.experiments.localization import (
        DEFAULT_METHODS,
        experiment_result,
        real_archives,
        rendered_drives,
        run_trials,
    )

    numbers, pixels = parse_sizes(sizes), parse_image_size(size)
    names = chosen_methods(methods, DEFAULT_METHODS)
    if cold is not None and trajectories is not None:
        raise ParameterError("--cold has its own trajectories: give it or --trajectories, not both")
    settings: dict[str, Any] = {"trials": trials, "sizes": numbers, "methods": names}
    settings |= {"budget": budget, "tune_at": tune_at, "seed": seed}
    record = Record("localization", output, **settings)
    workers = parallel.workers()
    with rendering(drives) as (folder, progress):
        if cold is not None:
            setup = real_archives(cold, folder)
        else:
            setup = rendered_drives(folder, trajectories, pixels, seed, workers, progress)
        print_line(f"Data: {setup.description}")
        record.note(data=setup.description)
        outcome = run_trials(
            setup, **settings, journals=record.folder.path, workers=workers, progress=progress
        )
    record.finish(experiment_result(outcome, setup.description))


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
    """Measure global starts, kidnappings, the covariance's consistency, and other light.

    Example: `kbf experiment recovery --trials 20`
    """
    limit_threads(1)
    from kbf_localization.experiments.recovery import experiment_result, make_world, run_trials

    pixels = parse_image_size(size)
    settings = {"trials": trials, "poses": poses, "frames": frames, "drives": drives}
    record = Record("recovery", output, **settings, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering() as (folder, progress):
        world = make_world(
            folder, poses, frames, drives, pixels, seed=seed, workers=workers, progress=progress
        )
        outcome = run_trials(world, trials, seed, workers, progress)
    record.finish(experiment_result(outcome))


@app.command()
def public(
    folders: Annotated[list[Path], _FOLDERS],
    methods: ManyMethods = None,
    poses: Annotated[int, Option(min=10, help="Poses of each map, at most.")] = 1000,
    seeds: Annotated[int, _SEEDS] = 3,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Run all methods on every public data set in FOLDER: map from one time, test at another.

    7-Scenes by its own split, OpenLORIS by visits, any other drive by time, at half or later;
    interleaved, and labelled so, where its later part hardly comes back to the first. Where a data
    set has no wheel odometry it is simulated, several times, and marked.

    Example: `kbf experiment public ~/datasets/7scenes`
    """
    limit_threads(1)
    from kbf_localization.experiments.public import experiment_result, find_protocols, run_protocol

    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    protocols = find_protocols(folders)
    record = Record("public", output, folders=folders, methods=names, poses=poses, seeds=seeds)
    workers = make_workers(jobs)
    sets: list[tuple[str, dict[str, Any]]] = []
    with show_progress() as progress:
        for protocol in protocols:
            try:
                metrics = run_protocol(
                    protocol, names, poses=poses, seeds=seeds, workers=workers, progress=progress
                )
            except DatasetError as error:
                print_line(f"Note: left out: {error}")
                continue
            sets.append((protocol.name, metrics))
            # What is done is kept, should a later set be interrupted.
            record.folder.write_metrics(experiment_result(sets).metrics)
    if not sets:
        raise DatasetError("none of the data sets could be used")
    record.finish(experiment_result(sets))


@app.command()
def faults(
    buildings: Annotated[int, Option(min=2, help="Offices, of consecutive seeds.")] = 3,
    trajectories: MorePaths = None,
    only: Annotated[Optional[str], Option(help="Faults, with commas. Default: all.")] = None,
    kidnappings: Annotated[int, Option(min=1, help="Kidnappings over all buildings.")] = 51,
    test_drives: Annotated[int, Option(min=1, help="Drives of each kind in a building.")] = 2,
    poses: MapPoses = 400,
    frames: Annotated[int, Option(min=400, help="Frames of each simulated drive.")] = 500,
    size: ImageSize = "320x240",
    drives: KeptDrives = None,
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Inject 21 faults of camera, odometry, map and place; measure detection and recovery.

    Example: `kbf experiment faults --only covered,kidnapped`
    """
    limit_threads(1)
    from kbf_localization.experiments.faults import check_faults
    from kbf_localization.experiments.faults_run import Builder, experiment_result, run_faults

    pixels, names = parse_image_size(size), check_faults(only)
    settings = {"buildings": buildings, "trajectories": trajectories, "kidnappings": kidnappings}
    settings |= {"test_drives": test_drives, "poses": poses, "frames": frames}
    record = Record("faults", output, **settings, faults=names, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering(drives) as (folder, progress):
        builder = Builder(poses, pixels, workers, progress, test_drives)
        places = [
            builder.invented(folder / f"{number}-{frames}-{test_drives}-{size}", number, frames)
            for number in range(seed, seed + buildings)
        ]
        if trajectories is not None:
            places.append(builder.round_path(folder / "path", trajectories, seed))
        outcomes = list(run_faults(places, names, kidnappings, workers, progress))
    record.finish(experiment_result(outcomes, len(places)))


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
    """Cut holes into maps and compare a later drive with what 'kbf map check' predicts.

    Example: `kbf experiment map-check --buildings 4`
    """
    limit_threads(1)
    from kbf_localization.experiments.localization import rendered_offices
    from kbf_localization.experiments.map_check import experiment_result, predict

    pixels = parse_image_size(size)
    record = Record("map-check", output, buildings=buildings, poses=poses, size=size, seed=seed)
    workers = make_workers(jobs)
    with rendering(drives) as (folder, progress):
        setups = rendered_offices(folder, None, pixels, seed, buildings, workers, progress)
        found = predict(setups, poses, workers, progress)
    record.finish(experiment_result(found))


@app.command()
def ablation(
    trials: Trials = 5,
    offices: Buildings = 2,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Sizes = "200,800",
    trajectories: Trajectories = None,
    rules: Annotated[bool, Option("--rules", help="Forms of the kernel Bayes' rule.")] = False,
    drives: KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
) -> None:
    """Measure the localization error with one part of the filter left out after the other.

    With `--rules`: Algorithm 1 in one office with each form of the kernel Bayes' rule, power of the
    image kernel and regularization, on even and uneven maps of 160 poses, on one of several drives,
    and where places look alike.

    Example: `kbf experiment ablation --trials 2 --sizes 200`
    """
    limit_threads(1)
    from kbf_localization.experiments.ablation import experiment_result, run_trials
    from kbf_localization.experiments.localization import rendered_offices

    numbers, pixels, workers = parse_sizes(sizes), parse_image_size(size), make_workers(jobs)
    settings: dict[str, Any] = {"trials": trials, "seed": seed}
    record = Record("ablation", output, **settings, size=size, trajectories=trajectories)
    if rules:
        from kbf_localization.experiments import rule_ablation

        record.note(rules=True)
        with rendering(drives) as (folder, progress):
            setup = rendered_offices(folder, trajectories, pixels, seed, 1, workers, progress)[seed]
            found = rule_ablation.run_trials(setup, **settings, workers=workers, progress=progress)
        record.finish(rule_ablation.experiment_result(found))
        return
    settings["sizes"] = numbers
    record.note(offices=offices, sizes=numbers)
    with rendering(drives) as (folder, progress):
        setups = rendered_offices(folder, trajectories, pixels, seed, offices, workers, progress)
        results = run_trials(list(setups.values()), **settings, workers=workers, progress=progress)
    record.finish(experiment_result(results))


@app.command()
def ambiguity(
    offices: Buildings = 2,
    seed: Seed = 0,
    jobs: Jobs = -1,
    only: Annotated[Optional[str], Option(help="Worlds, with commas. Default: all.")] = None,
    drives: KeptDrives = None,
    size: ImageSize = "320x240",
    output: Results = None,
) -> None:
    """Localize where places look alike and where parts of the building are copies of each other.

    Example: `kbf experiment ambiguity --offices 1 --only look_alikes_4,tiles_near_landmarks`
    """
    limit_threads(1)
    from kbf_localization.experiments.ambiguity import (
        check_worlds,
        experiment_result,
        rendered_worlds,
        run_trials,
    )

    worlds, pixels = check_worlds(only), parse_image_size(size)
    record = Record("ambiguity", output, offices=offices, seed=seed, worlds=worlds, size=size)
    workers = make_workers(jobs)
    with rendering(drives) as (folder, progress):
        results = [
            trial
            for part, setups in rendered_worlds(
                folder, worlds, pixels, seed, offices, workers, progress
            )
            for trial in run_trials(setups, part, seed=seed, workers=workers, progress=progress)
        ]
    record.finish(experiment_result(results))


@app.command()
def mapping(
    buildings: Buildings = 3,
    seed: Seed = 11,
    drives: Annotated[str, Option(help="Numbers of drives, such as 1,2.")] = "1,2",
    frames: Annotated[
        Optional[int], Option(min=20, help="Images of a drive: 1000, with --faults 300.")
    ] = None,
    faults: Annotated[
        bool, Option("--faults", help="What can go wrong, in a small office.")
    ] = False,
    fault: Annotated[Optional[str], Option(help="Only faults with this in their names.")] = None,
    size: ImageSize = "320x240",
    localized: Annotated[int, Option(min=0, help="Images of a further drive on each map.")] = 400,
    trajectory: Annotated[
        Optional[Path], Option(metavar="places.lst", help="Drive along this real drive's path.")
    ] = None,
    jobs: Jobs = -1,
    kept: KeptDrives = None,
    output: Results = None,
) -> None:
    """Estimate the poses of drives from wheel odometry and images, and compare with the truth.

    A map is built of each, on which a further drive is localized. With `--faults`: slip, missing
    images, a covered lens, drives of two buildings and more, each in the offices' first.
    Example: `kbf experiment mapping --buildings 3 --seed 24`
    """
    limit_threads(1)
    if faults or fault:
        _map_under_faults(seed, frames or 300, size, fault, jobs, kept, output)
        return
    from kbf_localization.experiments.mapping import Settings, mapping_result, run_buildings

    try:
        counts = sorted({int(part) for part in drives.split(",")})
    except ValueError:
        counts = []
    if not counts or not 1 <= counts[0] <= counts[-1] <= 10:
        raise ParameterError(f"--drives {drives}: give numbers from 1 to 10, such as 1,2")
    settings = Settings(counts, frames or 1000, parse_image_size(size), localized)
    offices = {"buildings": buildings, "seed": seed, "trajectory": trajectory}
    driven = {"drives": counts, "frames": settings.frames, "size": size, "localized": localized}
    record = Record("mapping", output, **offices, **driven)
    with rendering(kept) as (folder, progress):
        found = run_buildings(
            folder, buildings, seed, settings, make_workers(jobs), progress, trajectory
        )
    record.finish(mapping_result(found))


def _map_under_faults(
    seed: int,
    frames: int,
    size: str,
    fault: str | None,
    jobs: int,
    kept: Path | None,
    output: Path | None,
) -> None:
    from kbf_localization.experiments.mapping import FaultOffice, faults_result, run_faults

    record = Record("mapping", output, faults=True, seed=seed, frames=frames, size=size)
    workers = make_workers(jobs)
    with rendering(kept) as (folder, progress):
        office = FaultOffice(folder, seed, frames, parse_image_size(size), workers, progress)
        found = run_faults(office, workers, progress, fault)
    record.finish(faults_result(found))
