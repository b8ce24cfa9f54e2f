"""Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.evaluation.results import ResultsFolder

app = typer.Typer(add_completion=False, no_args_is_help=True)

Trials = Annotated[int, typer.Option(min=1, help="Independent trials.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")]
Jobs = Annotated[int, typer.Option(help="Processes; -1 means one for each core.")]
Output = Annotated[Optional[Path], typer.Option(help="Folder for the results instead of results/.")]


@app.callback()
def experiment() -> None:
    """Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""


@app.command("sum-rule", epilog="Example: [bold]kbf experiment sum-rule --trials 30[/bold]")
def sum_rule(trials: Trials = 30, seed: Seed = 0, jobs: Jobs = -1, output: Output = None) -> None:
    """Section 6.1: the sum rules' exact errors where the truth is known in closed form."""
    _limit_threads()
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments.sum_rule import metrics_of, run_trials
    from kbf_localization.experiments.sum_rule_figure import write_files
    from kbf_localization.parallel import workers

    folder = ResultsFolder.create("experiment sum-rule", output)
    config = {"command": _command(), "experiment": "sum-rule", "trials": trials, "seed": seed}
    folder.write_config(config)
    with show_progress() as progress:
        results = run_trials(trials, seed, workers(jobs), progress)
    metrics = metrics_of(results)
    folder.write_metrics(metrics)
    write_files(folder, results, metrics)
    captions = {"sum_rule.png": "Errors of the sum rules, as in the paper's figure of section 6.1"}
    _finish(folder, "The sum rules where the truth is known", config, _sum_rule(metrics), captions)


@app.command("synthetic", epilog="Example: [bold]kbf experiment synthetic --trials 3[/bold]")
def synthetic(
    trials: Trials = 30,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Annotated[
        str, typer.Option(help="Numbers n of training pairs, separated by commas.")
    ] = "50,100,200",
    output: Output = None,
) -> None:
    """Section 6.2: filtering with the model-based and the non-parametric sum rule, two grids."""
    _limit_threads()
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments.synthetic import GRIDS, metrics_of, run_trials
    from kbf_localization.experiments.synthetic_figure import write_files
    from kbf_localization.parallel import workers

    numbers = _sizes(sizes)
    folder = ResultsFolder.create("experiment synthetic", output)
    config = {
        "command": _command(),
        "experiment": "synthetic",
        "trials": trials,
        "seed": seed,
        "sizes": numbers,
    }
    grids = {name: vars(grid) for name, grid in GRIDS.items()}
    folder.write_config(config | {"grids": grids})
    with show_progress() as progress:
        outcomes = run_trials(trials, seed, numbers, workers(jobs), progress)
    metrics = metrics_of(outcomes)
    folder.write_metrics(metrics)
    write_files(folder, outcomes, metrics, trials)
    captions = {
        "synthetic.png": "Mean squared errors over the number of training pairs (section 6.2)",
        "weights.png": "Weights on the training points at one time, positive and negative",
    }
    _finish(folder, "Filtering in a synthetic world", config, _synthetic(metrics), captions)


@app.command(
    "localization",
    epilog="Example: [bold]kbf experiment localization --trials 3 --sizes 100,400[/bold]. The "
    "paper's own data: [bold]kbf experiment localization --cold COLD[/bold]",
)
def localization(
    trials: Trials = 10,
    seed: Seed = 0,
    jobs: Jobs = -1,
    sizes: Annotated[
        str, typer.Option(help="Numbers n of training poses, separated by commas.")
    ] = "100,200,400,800",
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas.")
    ] = "kbf,fkbf,nn,nai,kmcf",
    cold: Annotated[
        Optional[Path],
        typer.Option(help="Folder with COLD's Saarbrücken seq1_cloudy1–3, unpacked or .tar."),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="Settings tried for each method.")] = 24,
    tune_at: Annotated[
        Optional[int],
        typer.Option(min=10, help="Tune once, with so many poses, instead of at each size."),
    ] = None,
    drives: Annotated[
        Optional[Path],
        typer.Option(help="Keep the rendered drives in this folder, and use them again."),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of rendered images.")] = "320x240",
    dask: Annotated[
        Optional[str], typer.Option(metavar="ADDRESS", help="Run on this Dask cluster.")
    ] = None,
    output: Output = None,
) -> None:
    """Section 6.3: the position's error against the size of the map, for all methods."""
    _limit_threads()
    import tempfile

    from kbf_localization.cli.console import console
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments import localization as experiment
    from kbf_localization.experiments.localization_drives import (
        cold_trajectories,
        real_archives,
        rendered_drives,
    )
    from kbf_localization.experiments.localization_figure import FIGURE_NAME, write_files
    from kbf_localization.filters.registry import check_methods
    from kbf_localization.parallel import workers

    numbers, names, pixels = _sizes(sizes), check_methods(methods), _image_size(size)
    folder = ResultsFolder.create("experiment localization", output)
    staff = workers(jobs, dask)
    with (
        tempfile.TemporaryDirectory(prefix="kbf-drives-") as temporary,
        show_progress() as progress,
    ):
        place = drives or Path(temporary)
        if cold is not None:
            setup = real_archives(cold, place)
        else:
            setup = rendered_drives(place, cold_trajectories(), pixels, seed, staff, progress)
        console.print(f"Data: {setup.description}", markup=False, highlight=False)
        config = {
            "command": _command(),
            "experiment": "localization",
            "data": setup.description,
            "trials": trials,
            "sizes": numbers,
            "methods": names,
            "budget": budget,
            "tune_at": tune_at,
            "seed": seed,
        }
        folder.write_config(config)
        outcome = experiment.run_trials(
            setup,
            trials=trials,
            sizes=numbers,
            methods=names,
            budget=budget,
            tune_at=tune_at,
            seed=seed,
            journals=folder.path,
            workers=staff,
            progress=progress,
        )
    metrics = experiment.metrics_of(outcome)
    folder.write_metrics(metrics)
    write_files(folder, outcome, metrics)
    captions = {FIGURE_NAME: f"Errors against the number of training poses; {setup.description}"}
    _finish(folder, "Robot localization", config, _localization(metrics), captions)


def _image_size(text: str) -> tuple[int, int]:
    from kbf_localization.errors import ParameterError

    width, cross, height = text.partition("x")
    if not (cross and width.isdigit() and height.isdigit()):
        raise ParameterError(f"--size {text}: give width and height, such as 320x240")
    return int(width), int(height)


def _localization(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table

    def cell(figure: Mapping[str, float]) -> str:
        return f"{figure['mean']:.2f} ± {figure['std']:.2f}"

    rows = [
        (
            f"n = {size}, {method}",
            cell(figures["position_rmse_m"]),
            cell(figures["position_median_m"]),
            f"{100 * figures['share_beyond_1m']['mean']:.1f} %",
            cell(figures["highest_weight_median_m"]),
        )
        for size, by_method in metrics.items()
        for method, figures in by_method.items()
    ]
    columns = ("Map and method", "RMSE [m]", "Median [m]", "Beyond 1 m", "Median, highest weight")
    return Table("Robot localization, mean ± std over choices of poses", columns, rows)


@app.command("recovery", epilog="Example: [bold]kbf experiment recovery --trials 20[/bold]")
def recovery(
    trials: Annotated[
        int, typer.Option(min=2, help="Global starts; kidnappings are half as many.")
    ] = 100,
    poses: Annotated[int, typer.Option(min=50, help="Poses of the map.")] = 1000,
    frames: Annotated[int, typer.Option(min=200, help="Frames of each simulated drive.")] = 1000,
    drives: Annotated[int, typer.Option(min=1, help="Undisturbed test drives.")] = 3,
    size: Annotated[str, typer.Option(help="Size of rendered images.")] = "320x240",
    seed: Seed = 0,
    jobs: Jobs = -1,
    output: Output = None,
) -> None:
    """Global starts, kidnappings, honesty of the covariance, and another light than the map's."""
    _limit_threads()
    import tempfile

    from kbf_localization.cli.progress import show_progress
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.experiments.recovery import run_trials
    from kbf_localization.experiments.recovery_figure import write_files
    from kbf_localization.experiments.recovery_metrics import metrics_of
    from kbf_localization.experiments.recovery_world import make_world
    from kbf_localization.parallel import workers

    pixels = _image_size(size)
    folder = ResultsFolder.create("experiment recovery", output)
    config = {"command": _command(), "experiment": "recovery", "trials": trials, "poses": poses}
    config |= {"frames": frames, "drives": drives, "size": size, "seed": seed}
    folder.write_config(config)
    staff = workers(jobs)
    with tempfile.TemporaryDirectory(prefix="kbf-drives-") as rendered, show_progress() as progress:
        world = make_world(
            Path(rendered),
            poses=poses,
            frames=frames,
            test_drives=drives,
            size=pixels,
            seed=seed,
            workers=staff,
            progress=progress,
        )
        outcome = run_trials(world, trials, seed, staff, progress)
    metrics = metrics_of(outcome)
    folder.write_metrics(metrics)
    write_files(folder, outcome)
    captions = {"recovery.png": "Errors after global starts and after kidnappings, every trial"}
    _finish(folder, "Finding itself", config, _recovery(metrics), captions)


def _recovery(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table

    rows = [
        (group.replace("_", " "), name.replace("_", " "), figure)
        for group, figures in metrics.items()
        for name, figure in figures.items()
    ]
    return Table("Finding itself in a simulated office", ("Trial", "Metric", "Value"), rows)


def _limit_threads() -> None:
    """One BLAS thread for each process: the trials run beside each other."""
    from kbf_localization.threads import limit_threads

    limit_threads(1)


def _sizes(text: str) -> list[int]:
    from kbf_localization.errors import ParameterError

    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ParameterError(f"--sizes {text}: give whole numbers, such as 50,100,200") from None
    if numbers[0] < 4:
        raise ParameterError(f"--sizes {text}: cross validation needs at least 4 training pairs")
    return numbers


def _sum_rule(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus

    rows = [(name, plus_minus(metrics[name])) for name in ("mb_ksr", "mb_ksr_estimated")]
    best = metrics["np_ksr_best"]
    rows.append((f"np_ksr_best (ε = {best['epsilon']:g})", plus_minus(best)))
    for group in ("np_ksr", "misspecified_mean", "misspecified_noise"):
        rows += [(f"{group} {key}", plus_minus(figure)) for key, figure in metrics[group].items()]
    for name, by_epsilon in metrics["combined"].items():
        rows += [(f"{name} {key}", plus_minus(figure)) for key, figure in by_epsilon.items()]
    title = f"Errors in the RKHS norm, {metrics['trials']} trials"
    return Table(title, ("Estimator", "Mean ± std"), rows)


def _synthetic(metrics: Mapping[str, Any]) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.trials import plus_minus

    rows = [
        (
            f"{grid} {setting}",
            size,
            plus_minus(figures["kbf"]),
            plus_minus(figures["fkbf"]),
            figures["fkbf"]["mean"] / figures["kbf"]["mean"],
        )
        for grid, panels in metrics.items()
        for setting, by_size in panels.items()
        for size, figures in by_size.items()
    ]
    columns = ("Grid and panel", "n", "KBF, MSE", "fKBF, MSE", "fKBF / KBF")
    return Table("Synthetic filtering", columns, rows)


def _command() -> str:
    return shlex.join(["kbf", *sys.argv[1:]])


def _finish(
    folder: ResultsFolder,
    title: str,
    config: Mapping[str, Any],
    table: Table,
    captions: Mapping[str, str],
) -> None:
    """Print the table, write the report of it with the pictures, and say where it is."""
    from kbf_localization.cli.console import console, print_table
    from kbf_localization.evaluation.report import Picture, write_simple_report

    pictures = [Picture(folder.file(name), caption) for name, caption in captions.items()]
    report = write_simple_report(folder, title, config, tables=[table], pictures=pictures)
    print_table(table.title, table.columns, table.rows)
    console.print(f"Results: {report}", markup=False, highlight=False, soft_wrap=True)
