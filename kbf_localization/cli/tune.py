"""Find the best hyper-parameters for your building by cross validation over drives.

Without --method it tunes kbf; it first says how long it will take. Each drive is localized
on maps of each other drive. Scores are kept beside the output in FILE.journal: the same command
resumes an interrupted search, and a finished search deletes it.

Example: `kbf tune drives/cloudy1 drives/cloudy2 --output parameters.yaml`, then
`kbf map build drives/cloudy1 drives/cloudy2 --parameters parameters.yaml --output office.kbfmap`
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from kbf_localization.atomic_write import atomic_write, check_replaceable, check_writable
from kbf_localization.cli.console import duration, print_line, print_table
from kbf_localization.cli.drives import Reading
from kbf_localization.cli.options import (
    SOURCE_HELP,
    Methods,
    ParallelOptions,
    Seed,
    Train,
    chosen_methods,
    takes_groups,
)
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import ParameterError
from kbf_localization.threads import limit_threads

app = typer.Typer(add_completion=False)
_SOURCES = Argument(metavar="SOURCE SOURCE...", help=f"{SOURCE_HELP} Two or more.")


@app.command()
@takes_groups
def tune(
    sources: Annotated[list[Path], _SOURCES],
    output: Annotated[Path, Option(metavar="FILE", help="The parameters' YAML file to write.")],
    poses: Annotated[int, Option(min=10, help="Poses of the maps that are tried.")] = 400,
    budget: Annotated[int, Option(min=1, help="Settings tried for each method.")] = 32,
    method: Methods = None,
    seed: Seed = 0,
    train: Train = None,
    *,
    parallel: ParallelOptions,
    reading: Reading,
) -> None:
    limit_threads(1)
    import yaml

    from kbf_localization.evaluation.cross_validation import expected_seconds
    from kbf_localization.evaluation.cross_validation import tune as search
    from kbf_localization.evaluation.frame_pool import describe_drives

    methods = chosen_methods(method, "kbf")
    if len(sources) < 2:
        raise ParameterError("cross validation needs at least two drives; give another SOURCE")
    if not output.parent.is_dir():
        raise ParameterError(f"{output.parent}: is not a folder; make it first")
    check_replaceable(output)
    check_writable(output.parent)
    drives = reading.open_all(sources, train)
    journal = output.with_name(output.name + ".journal")
    workers = parallel.workers()
    with show_progress() as progress:
        pool = describe_drives(drives, seed=seed, workers=workers, progress=progress)
        seconds = expected_seconds(pool, range(len(drives)), methods, poses, budget, seed)
        at_once = getattr(workers, "jobs", 1)
        print_line(
            f"Tuning {', '.join(methods)} takes about {duration(seconds / at_once)} with {at_once} "
            f"worker{'s' if at_once > 1 else ''}, less what {journal} knows"
        )
        found = search(
            pool,
            range(len(drives)),
            methods,
            poses,
            budget=budget,
            seed=seed,
            journal=journal,
            workers=workers,
            progress=progress,
        )
    parameters = {
        f"{name}.{key}": value
        for name, tuned in found.items()
        for key, value in tuned.parameters.items()
    }
    with atomic_write(output) as temporary:
        temporary.write_text(yaml.safe_dump({"parameters": parameters}), encoding="utf-8")
    journal.unlink(missing_ok=True)
    rows = [(name, tuned.rmse_m, tuned.default_rmse_m) for name, tuned in found.items()]
    columns = ("Method", "RMSE tuned [m]", "RMSE with defaults [m]")
    print_table(f"Cross validation over {len(drives)} drives, {poses} poses", columns, rows)
    print_line(f"Written to {output}")
