"""kbf experiment faults: what the estimate is worth when something is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Optional

from typer import Option

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import ImageSize, Jobs, Results, Seed, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from kbf_localization.evaluation.report import Table


def faults(
    buildings: Annotated[int, Option(min=2, help="Offices, of consecutive seeds.")] = 3,
    trajectories: common.MorePaths = None,
    only: Annotated[Optional[str], Option(help="Faults, with commas. Default: all.")] = None,
    kidnappings: Annotated[int, Option(min=1, help="Kidnappings over all buildings.")] = 51,
    poses: Annotated[int, Option(min=50, help="Poses of each map.")] = 400,
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
    from kbf_localization.experiments.faults_figure import FIGURE_NAME, write_files
    from kbf_localization.experiments.faults_run import check_faults, metrics_of, run_faults
    from kbf_localization.parallel import make_workers

    pixels, names = parse_image_size(size), check_faults(only)
    record = common.Record("faults", output, buildings=buildings, trajectories=trajectories)
    record.note(seed=seed, kidnappings=kidnappings, poses=poses, frames=frames, size=size)
    workers = make_workers(jobs)
    with common.rendering() as (folder, progress):
        builder = Builder(poses, pixels, workers, progress)
        places = [
            builder.invented(folder / f"office{number}", number, frames)
            for number in range(seed, seed + buildings)
        ]
        if trajectories is not None:
            places.append(builder.round_path(folder / "path", trajectories, seed))
        outcomes = list(run_faults(places, names, kidnappings, workers, progress))
    metrics = metrics_of(outcomes)
    write_files(record.folder, outcomes, metrics)
    captions = {FIGURE_NAME: "States since the fault began, means over all runs"}
    record.finish("Faults", metrics, [_table(metrics, len(places))], captions)


def _table(metrics: Mapping[str, Any], buildings: int) -> Table:
    from kbf_localization.evaluation.report import Table

    def cell(figure: Mapping[str, float | None], scale: float = 1.0) -> str:
        mean, std, worst = (figure[key] for key in ("mean", "std", "worst"))
        if mean is None or std is None or worst is None:
            return "–"
        return f"{scale * mean:.1f} ± {scale * std:.1f}, {scale * worst:.1f}"

    rows = [
        (
            fault.replace("_", " "),
            cell(figures["confident_wrong_share"], 100.0),
            cell(figures["seconds_to_lost"]),
            cell(figures["seconds_to_recover"]),
            cell(figures["false_lost"]),
            cell(figures["tracking_share"], 100.0),
        )
        for fault, figures in metrics.items()
    ]
    columns = (
        "Fault",
        "Confident and wrong [%]",
        "Until lost [s]",
        "To recover [s]",
        "False lost",
        "Tracking [%]",
    )
    title = f"Faults in {buildings} simulated buildings: mean ± std, worst run"
    return Table(title, columns, rows)
