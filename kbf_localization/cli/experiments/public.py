"""kbf experiment public: all methods on public data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import Jobs, ManyMethods, Results, chosen_methods
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.public import Outcome

_FOLDERS = Argument(metavar="FOLDER...", help="Folders with data sets, or drives.")
_SEEDS = Option(min=1, help="Times that odometry is simulated where there is none.")


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
    from kbf_localization.cli.console import print_line
    from kbf_localization.cli.progress import show_progress
    from kbf_localization.errors import DatasetError
    from kbf_localization.experiments.public import metrics_of, run_protocol
    from kbf_localization.experiments.public_protocols import find_protocols
    from kbf_localization.parallel import make_workers

    names = chosen_methods(methods, "kbf,fkbf,nn,nai,kmcf")
    protocols = find_protocols(folders)
    record = common.Record("public", output, folders=folders, methods=names)
    record.note(poses=poses, seeds=seeds)
    workers = make_workers(jobs)
    outcomes: list[Outcome] = []
    with show_progress() as progress:
        for protocol in protocols:
            try:
                outcome = run_protocol(
                    protocol, names, poses=poses, seeds=seeds, workers=workers, progress=progress
                )
            except DatasetError as error:
                print_line(f"Note: left out: {error}")
                continue
            outcomes.append(outcome)
            # What is done is kept, should a later set be interrupted.
            record.folder.write_metrics(metrics_of(outcomes))
    if not outcomes:
        raise DatasetError("none of the data sets could be used")
    record.finish("Public data sets", metrics_of(outcomes), [_table(one) for one in outcomes])


def _table(outcome: Outcome) -> Table:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.public import FIGURES
    from kbf_localization.experiments.trials import summary

    shown = [key for key in FIGURES if any(key in found for found in outcome.figures.values())]
    rows = [
        (method, *(summary(found[key])["mean"] if key in found else None for key in shown))
        for method, found in outcome.figures.items()
    ]
    title = (
        f"{outcome.protocol.name}: {outcome.protocol.how}, {outcome.images} images, "
        f"{100 * outcome.covered:.0f} % seen by the map, odometry {outcome.odometry}"
    )
    return Table(title, ("Method", *(FIGURES[key] for key in shown)), rows)
