"""What a check of a map predicts is held against a drive that the map does not know."""

import numpy as np
import pytest

from kbf_localization.evaluation.map_check.check import check_map
from kbf_localization.experiments.map_check import (
    HOLE_RADIUS_M,
    HOLES,
    Prediction,
    compare,
    in_holes,
    metrics_of,
)
from kbf_localization.training_map import TrainingMap, subset
from test.filters.synthetic_world import SyntheticDrive, World, drive, loop


@pytest.mark.usefixtures("quick_check")
def test_starts_fail_where_the_check_says(
    world: World, world_map: TrainingMap, world_drive: SyntheticDrive
) -> None:
    cut = subset(world_map, np.flatnonzero(world_map.poses[:, 0] >= -1.0))
    sources = [
        drive(world, loop(48, wobble=0.05 * seed, phase=0.2), seed, source.name).described
        for seed, source in enumerate(world_map.sources, start=1)
    ]
    (found,) = compare(7, {"drives": check_map(cut, sources)}, cut, world_drive.described)
    assert (found.office, found.of) == (7, "drives")
    assert found.failed >= 3
    assert found.both / found.named >= 0.8
    # A start a little before the hole fails too, and there are few starts in this small hall.
    assert found.both / found.failed >= 0.5
    assert (found.failed - found.both) / (found.starts - found.named) < 0.3
    assert found.factor < 1.5


def test_holes_are_discs_with_a_rim_between_them() -> None:
    grid = np.stack(np.meshgrid(np.arange(0, 40, 0.5), np.arange(0, 30, 0.5)), axis=-1)
    positions = grid.reshape(-1, 2)
    inside = in_holes(positions, np.arange(len(positions)), seed=3)
    area = inside.sum() * 0.25
    assert area <= HOLES * np.pi * HOLE_RADIUS_M**2 * 1.1
    # Cut by no more than two borders of the hall.
    assert area >= HOLES * np.pi * HOLE_RADIUS_M**2 * 0.2
    np.testing.assert_array_equal(inside, in_holes(positions, np.arange(len(positions)), seed=3))


def test_precision_and_recall_are_over_all_offices() -> None:
    found = [
        Prediction(1, "drives", 90, 10, 12, 9, 0.1, 0.08),
        Prediction(2, "drives", 90, 0, 8, 0, 0.05, 0.1),
        Prediction(1, "map alone", 90, 0, 0, 0, 0.1, 0.1),
    ]
    metrics = metrics_of(found)
    assert metrics["drives"]["precision"] == 9 / 10
    assert metrics["drives"]["recall"] == 9 / 20
    assert metrics["drives"]["largest_factor"] == 2.0
    assert metrics["map alone"]["precision"] is None
