"""kbf experiment map-check: are the predictions of `kbf map check` true?"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Annotated

from typer import Option

from kbf_localization.cli.experiments import common
from kbf_localization.cli.options import ImageSize, Jobs, Results, Seed, parse_image_size
from kbf_localization.threads import limit_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.map_prediction import Prediction


def map_check(
    buildings: common.Buildings = 4,
    poses: Annotated[int, Option(min=50, help="Poses of each map.")] = 500,
    size: ImageSize = "320x240",
    seed: Seed = 61,
    drives: common.KeptDrives = None,
    jobs: Jobs = -1,
    output: Results = None,
) -> None:
    """Cut holes into maps: does a later drive fail where 'kbf map check' says, and err as much?

    Example: `kbf experiment map-check --buildings 4`
    """
    limit_threads(1)
    from kbf_localization.evaluation.frame_pool import describe_drives
    from kbf_localization.experiments.localization_drives import rendered_drives
    from kbf_localization.experiments.map_prediction import HEADER, Office, metrics_of, predict
    from kbf_localization.experiments.trials import write_csv
    from kbf_localization.parallel import make_workers

    pixels = parse_image_size(size)
    record = common.Record("map-check", output, buildings=buildings, poses=poses, size=size)
    record.note(seed=seed)
    workers = make_workers(jobs)
    with common.rendering(drives) as (folder, progress):
        offices = []
        for number in range(seed, seed + buildings):
            setup = rendered_drives(folder, None, pixels, number, workers, progress)
            (fold,) = setup.folds
            pool = describe_drives(
                fold.training, [fold.test], seed=number, workers=workers, progress=progress
            )
            offices.append(Office(number, pool))
        found = predict(offices, poses, workers, progress)
    write_csv(record.folder, "predictions.csv", HEADER, map(astuple, found))
    title = "Predictions of kbf map check on maps with holes"
    record.finish(title, metrics_of(found), _tables(found))


def _tables(found: Sequence[Prediction]) -> list[Table]:
    from kbf_localization.evaluation.report import Table
    from kbf_localization.experiments.map_prediction import metrics_of

    summary = [
        (of, one["precision"], one["recall"], one["largest_factor"], one["offices"])
        for of, one in metrics_of(found).items()
    ]
    return [
        Table(
            "Starts of a later drive that fail, against stretches that the check names",
            ("Check of", "Precision", "Recall", "Largest factor", "Offices"),
            summary,
        ),
        Table(
            "By office",
            (
                "Office",
                "Check of",
                "Starts",
                "Named",
                "Failed",
                "Both",
                "Expected error (m)",
                "Measured (m)",
            ),
            [astuple(one) for one in found],
        ),
    ]
