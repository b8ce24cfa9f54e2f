from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.experiments import rule_ablation
from kbf_localization.experiments.localization import Fold, Setup
from kbf_localization.experiments.rule_ablation import (
    CONDITIONS,
    CROWDED_POSES,
    POSES,
    condition_map,
    experiment_result,
    run_trials,
    uneven_rows,
)
from kbf_localization.parallel import Serial
from kbf_localization.training_map import TrainingMap
from test.filters.synthetic_world import loop, pool_of_laps


@pytest.fixture(scope="module")
def pool(world):
    return pool_of_laps(world, (240, 240, 40))


def test_most_poses_of_an_uneven_map_are_in_one_place() -> None:
    poses = loop(600)
    rows = uneven_rows(poses, seed=1)
    assert CROWDED_POSES < len(rows) <= POSES
    distances = np.linalg.norm(poses[rows][:, None, :2] - poses[rows][None, :, :2], axis=-1)
    # 100 of 600 frames round 23 m are 3.8 m of path.
    assert (distances < 2.0).sum(axis=1).max() >= CROWDED_POSES


@pytest.mark.usefixtures("quick_learning")
def test_maps_are_of_one_drive_but_where_several_are_asked_for(pool) -> None:
    for condition in CONDITIONS:
        made: TrainingMap = condition_map(pool, 2, condition, seed=0)
        assert len(made.sources) == (2 if condition == "several_drives" else 1)
        assert CROWDED_POSES < len(made.poses) <= POSES


@pytest.mark.usefixtures("quick_learning")
def test_every_setting_runs_on_every_map(pool, monkeypatch) -> None:
    monkeypatch.setattr(Fold, "describe", lambda *_, landmarks: pool)
    monkeypatch.setattr(rule_ablation, "POWERS", (4,))
    monkeypatch.setattr(
        rule_ablation,
        "REGULARIZATIONS",
        {"original": (0.01,), "importance-weighted": (3.0,), "plain": (1.0,)},
    )
    named = SimpleNamespace(name="drive")
    setup = Setup("synthetic", (Fold((named, named), named),))
    trials = run_trials(setup, trials=1, seed=0, workers=Serial())
    assert len(trials) == 3 * len(CONDITIONS)
    found = experiment_result(trials)
    assert set(found.metrics) == set(CONDITIONS)
    # Forms differ, on the same maps.
    assert (
        len({trial.metrics["position_rmse_m"] for trial in trials if trial.condition == "even"})
        == 3
    )
    header, rows = found.csv["rules.csv"]
    assert all(len(row) == len(header) for row in rows)
