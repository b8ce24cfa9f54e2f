"""Worlds whose places look alike, made of a synthetic hall's drives."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial import cKDTree

from kbf_localization.errors import ParameterError
from kbf_localization.experiments import ambiguity
from kbf_localization.experiments.ambiguity import (
    COPIES,
    COPY_DISTANCE_M,
    VARIANTS,
    check_worlds,
    experiment_result,
    metrics_of,
    rendered_corridor,
    rendered_worlds,
    run_trials,
    starting_inside,
    with_look_alikes,
    with_tiles,
)
from kbf_localization.experiments.localization import Fold, Setup
from kbf_localization.parallel import Serial
from kbf_localization.progress import no_progress
from kbf_localization.simulator.plans import DOOR_M
from test.filters.synthetic_world import pool_of_laps


@pytest.fixture(scope="module")
def pool(world):
    return pool_of_laps(world, (240, 160, 30))


def similarity(pool, first, second):
    a, b = (pool.described[row].image.features.astype(float) for row in (first, second))
    return np.minimum(a, b).sum() / np.minimum(a, a).sum()


def test_alike_places_are_alike_on_every_drive(pool):
    mixed = with_look_alikes(pool, 4)
    # Frames 10 and 70 of a drive of 240 are at the same place of two quarters; frame 47 of a drive
    # of 160 is next to the latter.
    assert similarity(mixed, 10, 70) > 0.65 > similarity(pool, 10, 70)
    assert similarity(mixed, 10, 240 + 47) > 0.65 > similarity(pool, 10, 240 + 47)
    np.testing.assert_array_equal(
        mixed.described[10].image.features, pool.described[10].image.features
    )


@pytest.mark.parametrize("exact", [True, False])
def test_tiles_are_the_left_half_at_other_places(pool, exact):
    tiled, middle = with_tiles(pool, 2, exact=exact)
    poses, copies = tiled.frames.poses, tiled.frames.drive_of // 2
    trained = pool.frames.poses[pool.frames.drive_of < 2]
    for copy in range(COPIES):
        back = poses[copies == copy] - np.array([0.0, copy * COPY_DISTANCE_M, 0.0])
        distances, rows = cKDTree(trained).query(back)
        assert distances.max() < 1e-9
        left = np.sum(trained[:, 0] < middle)
        expected = left if exact else left / COPIES
        assert np.sum(back[:, 0] < middle) == pytest.approx(expected, abs=2)
        assert np.sum(back[:, 0] >= middle) == (0 if copy else len(trained) - left)
        first = int(np.flatnonzero(copies == copy)[0])
        assert tiled.described[first] is pool.described[int(rows[0])]


def test_the_drive_begins_with_its_longest_stretch_in_the_tile(pool):
    whole = pool.drive(2)
    middle = float(np.median(whole.truth[:, 0]))
    part = starting_inside(whole, whole.truth[:, 0] < middle)
    inside = part.truth[:, 0] < middle
    length = int(np.argmin(inside)) if not inside.all() else len(inside)
    runs = "".join("x" if flag else " " for flag in whole.truth[:, 0] < middle).split()
    assert length == max(len(run) for run in runs)


@pytest.mark.parametrize(
    ("sides", "begin"), [("LRRLLRRRLLLL", 3), ("RRRRRRRRLLLL", 8), ("LLLRRRRLLRRR", 0)]
)
def test_the_drive_leaves_the_tile_it_begins_in_if_it_can(sides, begin):
    inside = np.array([side == "L" for side in sides])

    class FakeDrive(SimpleNamespace):
        def __len__(self):
            return len(inside)

    assert starting_inside(FakeDrive(part=lambda rows: rows), inside).start == begin


def test_figures_count_what_is_confident_and_wrong():
    truth = np.zeros((4, 3))
    estimates = np.array([[0.0, 0, 0], [2, 0, 0], [2, 0, 0], [0, 0, 0]])
    states = ("tracking", "tracking", "lost", "localizing")

    class FakeRun(SimpleNamespace):
        def __len__(self):
            return 4

    run = FakeRun(truth=truth, estimates=estimates, states=states)
    assert metrics_of(run, np.array([True, True, False, False])) == {
        "last_half_beyond_1m": 0.5,
        "confident_wrong": 0.25,
        "tracking": 0.5,
        "tracking_in_tile": 1.0,
    }


@pytest.mark.usefixtures("quick_learning")
def test_every_variant_runs_in_every_world(pool, monkeypatch):
    monkeypatch.setattr(Fold, "describe", lambda *_: pool)
    monkeypatch.setattr(ambiguity, "POSES", 60)
    monkeypatch.setattr(ambiguity, "VARIANTS", dict(list(VARIANTS.items())[:2]))
    named = SimpleNamespace(name="drive")
    setup = Setup("synthetic", (Fold((named, named), named),))
    worlds = ["look_alikes_4", "tiles_near"]
    trials = run_trials([setup], worlds, seed=0, workers=Serial())
    assert [(trial.world, trial.variant) for trial in trials] == [
        (world, variant) for world in worlds for variant in ambiguity.VARIANTS
    ]
    found = experiment_result(trials)
    header, rows = found.csv["ambiguity.csv"]
    assert all(len(row) == len(header) for row in rows)


def test_corridors_and_offices_are_rendered_for_the_worlds_that_need_them(monkeypatch, tmp_path):
    monkeypatch.setattr(ambiguity, "rendered_offices", lambda *_: {4: "an office"})
    monkeypatch.setattr(ambiguity, "rendered_corridor", lambda _, size, seed, *__: (size, seed))
    how = (tmp_path, ["tiles_near", "corridor_start"], (32, 24), 4, 2, Serial(), None)
    assert list(rendered_worlds(*how)) == [
        (["tiles_near"], ["an office"]),
        (["corridor_start"], [((32, 24), 4), ((32, 24), 5)]),
    ]


@pytest.mark.usefixtures("quick_learning")
def test_a_filter_runs_in_a_rendered_corridor(monkeypatch, tmp_path):
    monkeypatch.setattr(ambiguity, "INVENTED_FRAMES", 100)
    monkeypatch.setattr(ambiguity, "POSES", 60)
    monkeypatch.setattr(ambiguity, "DEEP_M", DOOR_M)
    monkeypatch.setattr(ambiguity, "VARIANTS", dict(list(VARIANTS.items())[:1]))
    setup = rendered_corridor(tmp_path, (64, 48), 5, Serial(), no_progress)
    trials = run_trials([setup], ["corridor_start"], seed=0, workers=Serial())
    assert [trial.world for trial in trials] == ["corridor_start"]


def test_an_unknown_world_is_named():
    with pytest.raises(ParameterError, match="no world is called 'mars'"):
        check_worlds("look_alikes_4,mars")
    assert check_worlds(" tiles_near,tiles_near") == ["tiles_near"]
