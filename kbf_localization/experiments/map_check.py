"""What a check of a map predicts, against a later drive on maps with holes.

Holes are cut into maps of two drives through simulated offices: the drives went there, but the map
has none of their images. What the check predicts is compared with what a third drive, which the map
does not know, meets on the map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from kbf_localization.arrays import Array, Flags, Rows
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import FramePool, map_coverage
from kbf_localization.evaluation.map_check.check import MapCheck, check_map
from kbf_localization.evaluation.map_check.held_out import MIN_COVERAGE, fix_from
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.report import Table
from kbf_localization.evaluation.run import replay
from kbf_localization.experiments.localization import Setup
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked
from kbf_localization.training_map import TrainingMap

HOLES, HOLE_RADIUS_M = 2, 3.0
EVERY, IMAGES = 10, 40
"""The later drive is restarted at every tenth image, and has 40 images to find its pose."""


@dataclass(frozen=True)
class Prediction:
    """What a check `of` a map expected in an office, and what the later drive met.

    Of so many `starts`, `named` are those most of whose images were taken on stretches that the
    check names, looking where it says that the map has no image; `failed` found no pose or a
    wrong one; `both` are both. `expected_m` is the check's median error, `measured_m` the drive's,
    where the map has images.
    """

    office: int
    of: str
    starts: int
    named: int
    failed: int
    both: int
    expected_m: float
    measured_m: float

    @property
    def factor(self) -> float:
        """How far the expected error is off, as a ratio of at least 1."""
        ratio = self.expected_m / self.measured_m
        return max(ratio, 1.0 / ratio)


def predict(
    setups: Mapping[int, Setup], poses: int, workers: Workers, progress: Progress = no_progress
) -> list[Prediction]:
    """Return two predictions for each office, by its seed: with the map's drives, and without.

    Each has a fold of the map's two drives and a later drive.
    """
    offices = [
        (seed, fold.describe(seed, workers, progress))
        for seed, setup in setups.items()
        for fold in setup.folds
    ]
    found = workers.map(partial(_predictions, poses), offices)
    done = tracked(found, "checking maps with holes", progress, len(offices))
    return [prediction for some in done for prediction in some]


def _predictions(poses: int, office: tuple[int, FramePool]) -> list[Prediction]:
    seed, pool = office
    cut = in_holes(pool.frames.poses[:, :2], pool.rows_of(0), seed)
    kept = np.flatnonzero((pool.frames.drive_of < 2) & ~cut)
    cut_map = pool.map_of(kept, poses, "coverage", seed)
    training_map = replace(
        cut_map, trajectories=tuple(pool.frames.trajectory(drive) for drive in (0, 1))
    )
    sources = {"drives": [pool.drive(0), pool.drive(1)], "map alone": []}
    checks = {of: check_map(training_map, drives) for of, drives in sources.items()}
    return compare(seed, checks, training_map, pool.drive(2))


def in_holes(positions: Array, path: Rows, seed: int) -> Flags:
    """Return which positions (t, 2) lie in discs round places drawn from the rows `path` of them.

    Between two holes there is a rim of images as wide as a hole's radius.
    """
    centres: list[Array] = []
    for row in np.random.default_rng(seed).permutation(path):
        if all(np.hypot(*(positions[row] - centre)) > 3.0 * HOLE_RADIUS_M for centre in centres):
            centres.append(positions[row])
        if len(centres) == HOLES:
            break
    distances = [np.hypot(*(positions - centre).T) for centre in centres]
    return np.asarray(np.min(distances, axis=0) < HOLE_RADIUS_M)


def compare(
    office: int, checks: Mapping[str, MapCheck], training_map: TrainingMap, later: DescribedDrive
) -> list[Prediction]:
    """Return what checks of a map predict, against a drive that the map does not know."""
    assert later.truth is not None
    localizer = Localizer(training_map)
    run = replay(later, localizer)
    assert run.truth is not None
    covered = map_coverage(training_map, run.truth) >= MIN_COVERAGE
    measured_m = float(np.median(position_errors(run)[covered]))
    starts = np.arange(0, len(later) - IMAGES + 1, EVERY)
    failed = np.array(
        [not fix_from(later, localizer, int(start), IMAGES).right for start in starts]
    )
    found = []
    for of, check in checks.items():
        blind = check.sees_nothing(later.truth)
        named = np.array([blind[start : start + IMAGES].mean() > 0.5 for start in starts])
        assert check.median_m is not None
        found.append(
            Prediction(
                office=office,
                of=of,
                starts=len(starts),
                named=int(named.sum()),
                failed=int(failed.sum()),
                both=int((named & failed).sum()),
                expected_m=check.median_m,
                measured_m=measured_m,
            )
        )
    return found


def metrics_of(predictions: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    """Return for each kind of check precision and recall over all offices, and the worst factor."""
    metrics = {}
    for of in dict.fromkeys(prediction.of for prediction in predictions):
        own = [prediction for prediction in predictions if prediction.of == of]
        both, named, failed = (
            sum(getattr(prediction, name) for prediction in own)
            for name in ("both", "named", "failed")
        )
        metrics[of] = {
            "precision": both / named if named else None,
            "recall": both / failed if failed else None,
            "largest_factor": max(prediction.factor for prediction in own),
            "offices": len(own),
        }
    return metrics


def experiment_result(predictions: Sequence[Prediction]) -> ExperimentResult:
    """Return precision and recall of the checks, and what was found in each office."""
    metrics = metrics_of(predictions)
    summary = Table(
        "Starts of a later drive that fail, against stretches that the check names",
        ("Check of", "Precision", "Recall", "Largest factor", "Offices"),
        [(of, *values.values()) for of, values in metrics.items()],
    )
    rows = [astuple(prediction) for prediction in predictions]
    columns = (
        *("Office", "Check of", "Starts", "Named", "Failed", "Both"),
        *("Expected error (m)", "Measured (m)"),
    )
    return ExperimentResult(
        "Predictions of kbf map check on maps with holes",
        metrics,
        tables=[summary, Table("By office", columns, rows)],
        csv={"predictions.csv": ([item.name for item in fields(Prediction)], rows)},
    )
