import numpy as np
import pytest

from kbf_localization.evaluation.cross_validation import (
    Candidate,
    Journal,
    replay_frames,
    tune,
)
from kbf_localization.evaluation.frame_pool import FramePool, pool_map
from kbf_localization.filters.parameters import SEARCH_RANGES
from kbf_localization.motion.odometry_model import estimate_noise
from test.filters.synthetic_world import World, drive, loop, similarity


def synthetic_pool(training, test):
    """A pool of synthetic drives; the training drives come first."""
    drives = [*training, *test]
    learnt = np.concatenate([one.views for one in training])
    views = np.concatenate([one.views for one in drives])
    nothing = np.full((1, 3), np.nan)
    return FramePool(
        drive_of=np.concatenate([np.full(len(one.poses), i) for i, one in enumerate(drives)]),
        poses=np.concatenate([one.poses for one in drives]),
        next_poses=np.concatenate([np.vstack((one.poses[1:], nothing)) for one in drives]),
        motions=np.concatenate([np.vstack((one.motions, nothing)) for one in drives]),
        step_motions=np.concatenate([np.vstack((nothing, one.motions)) for one in drives]),
        similarities=similarity(views, learnt).astype(np.float32),
    )


@pytest.fixture(scope="module")
def drives():
    world = World()
    return [drive(world, loop(100, wobble=0.05 * i), seed=i) for i in range(3)]


@pytest.fixture(scope="module")
def pool(drives):
    return synthetic_pool(drives[:2], drives[2:])


def test_a_pool_map_holds_the_chosen_frames(pool, drives):
    chosen = pool_map(pool, [1], 30, seed=0)
    assert len(chosen.poses) == 30
    assert (pool.drive_of[chosen.rows] == 1).all()
    np.testing.assert_allclose(
        chosen.motion_variances, estimate_noise(drives[1].poses, drives[1].motions)
    )


def test_looked_up_similarities_are_the_computed_ones(pool, drives):
    chosen = pool_map(pool, [0, 1], 25, seed=0)
    views = np.concatenate([one.views for one in drives])
    rows = np.array([3, 7])
    np.testing.assert_allclose(
        chosen.image_gram(rows),
        similarity(views[chosen.rows[rows]], views[chosen.rows[rows]]),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        chosen.observe_frame(210).similarities(rows),
        similarity(views[210], views[chosen.rows[rows]])[0],
        rtol=1e-6,
    )


def test_a_replay_follows_the_drive(pool):
    frames = pool.rows_of(2)
    said = replay_frames("kbf", pool_map(pool, [0, 1], 80, seed=0), frames, {})
    errors = np.linalg.norm(said.estimates[:, :2] - pool.poses[frames, :2], axis=1)
    assert np.median(errors) < 0.5


def test_tuning_is_not_worse_than_the_defaults_on_what_it_saw(pool):
    found = tune(pool, [0, 1], ["nn", "nai"], 40, budget=5)
    assert found["nn"].rmse_m <= found["nn"].default_rmse_m
    assert set(found["nn"].parameters) <= set(SEARCH_RANGES["nn"])
    assert found["nai"].parameters == {}


def test_an_interrupted_search_is_taken_up(pool, tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    first = tune(pool, [0, 1], ["nn"], 40, budget=4, journal=journal)
    journal.write_text(journal.read_text() + '{"key": "half a li')
    monkeypatch.setattr(
        "kbf_localization.evaluation.cross_validation.make_filter",
        lambda *_: pytest.fail("a known score was computed again"),
    )
    assert tune(pool, [0, 1], ["nn"], 40, budget=4, journal=journal) == first


def test_the_journal_tells_settings_and_rounds_apart(tmp_path):
    journal = Journal(tmp_path / "journal")
    one = Candidate("kbf", 100, 1, {"power": 8.0})
    journal.add(one, False, 1.5)
    again = Journal(tmp_path / "journal")
    assert again.score(one, False) == 1.5
    assert again.score(one, True) is None
    assert again.score(Candidate("kbf", 100, 1, {"power": 9.0}), False) is None
