"""Settings are tried on maps as users have them, and what is known is not computed again."""

import os
from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.errors import DatasetError, KbfError
from kbf_localization.evaluation.cross_validation import (
    CHOICES_OF_POSES,
    Candidate,
    Journal,
    _Trial,
    expected_seconds,
    planned_work,
    tune,
)
from kbf_localization.evaluation.frame_pool import FramePool, map_coverage
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.run import replay
from kbf_localization.filters.parameters import SEARCH_RANGES
from kbf_localization.motion.odometry_model import noise_between
from kbf_localization.vision.visual_words import PyramidDescriber, Vocabulary
from test.filters.synthetic_world import DESCRIBER, drive, localizer, loop, map_of, pool_of

FRAMES = 60


@pytest.fixture(scope="module")
def drives(world):
    return [
        drive(world, loop(FRAMES, wobble=0.02 * i), seed=i, name=f"drive {i}") for i in range(3)
    ]


@pytest.fixture(scope="module")
def pool(drives) -> FramePool:
    return pool_of(drives)


@pytest.mark.usefixtures("quick_learning")
def test_a_random_map_holds_frames_of_the_chosen_drives(pool, drives):
    chosen = pool.random_map([1], 30, seed=0)
    assert len(chosen) == 30
    assert [source.name for source in chosen.sources] == ["drive 1"]
    poses = drives[1].poses
    for row in range(30):
        at = int(np.argmin(np.abs(poses - chosen.poses[row]).sum(axis=1)))
        np.testing.assert_array_equal(chosen.poses[row], poses[at])
        np.testing.assert_array_equal(chosen.features[row], drives[1].views[at].features)
        np.testing.assert_array_equal(chosen.description(row).words, drives[1].views[at].words)
    expected = noise_between(poses[:-1], drives[1].motions, poses[1:])
    np.testing.assert_allclose(chosen.motion_variances, expected)


@pytest.mark.usefixtures("quick_learning")
def test_a_map_of_the_pool_is_the_map_that_is_built_of_those_drives(pool, drives):
    """What experiments measure is what users get: the same poses, and the same learned."""
    ours, built = pool.random_map([0, 2], 60, seed=3), map_of([drives[0], drives[2]], 60, seed=3)
    assert ours.identity == built.identity
    assert ours.calibration == built.calibration
    assert ours.sources == built.sources


@pytest.mark.usefixtures("quick_learning")
def test_a_replay_of_the_pool_follows_the_drive(pool):
    training_map = pool.random_map([0, 1], 80, seed=0)
    run = replay(pool.drive(2), localizer(training_map))
    assert np.median(position_errors(run)) < 0.3


@pytest.mark.usefixtures("quick_learning")
def test_a_pose_of_the_map_is_covered_wholly_and_a_far_one_not_at_all(pool):
    training_map = pool.random_map([0, 1], 80, seed=0)
    similarity = training_map.calibration.similarity
    np.testing.assert_allclose(map_coverage(training_map, training_map.poses), 1.0)
    far = training_map.poses + np.array([100.0, 0.0, 0.0])
    np.testing.assert_allclose(map_coverage(training_map, far), 0.0, atol=1e-12)
    lone = pool.random_map([0], 1, seed=0)
    beside = lone.poses + np.array([0.5 * lone.calibration.similarity.distance_m, 0.0, 0.0])
    expected = np.exp(-(0.5**lone.calibration.similarity.exponent))
    np.testing.assert_allclose(map_coverage(lone, beside), expected)
    assert similarity.distance_m > 0


@pytest.mark.usefixtures("quick_learning")
def test_tuning_is_not_worse_than_the_defaults_on_what_it_saw(pool):
    found = tune(pool, [0, 1], ["nn", "nai"], 40, budget=3)
    assert found["nn"].rmse_m <= found["nn"].default_rmse_m
    assert set(found["nn"].parameters) <= set(SEARCH_RANGES["nn"])
    assert found["nai"].parameters == {}


@pytest.mark.usefixtures("quick_learning")
def test_drives_through_different_places_are_not_tuned_on(drives):
    far = replace(drives[1], poses=drives[1].poses + np.array([100.0, 0.0, 0.0]))
    with pytest.raises(DatasetError, match="use drives through the same places"):
        tune(pool_of([drives[0], far]), [0, 1], ["nai"], 20, budget=1)


@pytest.mark.usefixtures("quick_learning")
def test_the_work_that_is_announced_is_at_least_what_is_done(pool, monkeypatch):
    """The defaults may be among the finalists already: then one trial of the last round is less."""
    done = {"maps": 0, "frames": 0}
    random_map = FramePool.random_map

    def counted_map(self, *arguments):
        done["maps"] += 1
        return random_map(self, *arguments)

    def counted_replay(piece, *arguments):
        done["frames"] += len(piece)
        return replay(piece, *arguments)

    monkeypatch.setattr(FramePool, "random_map", counted_map)
    monkeypatch.setattr("kbf_localization.evaluation.cross_validation.replay", counted_replay)
    tune(pool, [0, 1], ["nn"], 20, budget=2)
    maps, frames = planned_work(pool, [0, 1], "nn", 20, budget=2)
    last_trial = 2 * CHOICES_OF_POSES
    assert done["maps"] in (maps, maps - last_trial)
    assert done["frames"] in (frames, frames - last_trial * FRAMES)
    assert expected_seconds(pool, [0, 1], ["nn"], 20, budget=2) > 0.0


@pytest.mark.usefixtures("quick_learning")
def test_an_interrupted_search_is_taken_up(pool, tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    first = tune(pool, [0, 1], ["nai"], 40, budget=4, journal=journal)
    journal.write_text(journal.read_text() + '{"key": "half a li')
    monkeypatch.setattr(
        "kbf_localization.evaluation.cross_validation.make_filter",
        lambda *_args, **_options: pytest.fail("a known score was computed again"),
    )
    assert tune(pool, [0, 1], ["nai"], 40, budget=4, journal=journal) == first


def test_the_journal_tells_settings_and_rounds_apart(tmp_path):
    journal = Journal(tmp_path / "journal")
    candidate = Candidate("kbf", 100, 1, {"power": 8.0})
    journal.add(candidate, False, 1.5)
    again = Journal(tmp_path / "journal")
    assert again.score(candidate, False) == 1.5
    assert again.score(candidate, True) is None
    assert again.score(Candidate("kbf", 100, 1, {"power": 9.0}), False) is None


def test_the_journal_of_other_drives_or_words_or_another_seed_is_not_taken_up(
    pool, tmp_path, monkeypatch
):
    monkeypatch.setattr(_Trial, "__call__", lambda trial, candidate: 1.0)
    journal = tmp_path / "journal"

    def new_scores(searched, drives, seed):
        before = len(journal.read_text().splitlines()) if journal.exists() else 0
        tune(searched, drives, ["nai"], 30, budget=1, seed=seed, journal=journal)
        return len(journal.read_text().splitlines()) - before

    other_words = replace(
        pool,
        describer=PyramidDescriber(Vocabulary(2.0 * DESCRIBER.vocabulary.words), DESCRIBER.layout),
    )
    first, *rest = pool.frames.drives

    def with_first(drive):
        return replace(pool, frames=replace(pool.frames, drives=[drive, *rest]))

    renamed = with_first(replace(first, name="elsewhere"))
    wheels = with_first(replace(first, motions=1.1 * first.motions))
    assert new_scores(pool, [0, 1], 0) > 0
    assert new_scores(pool, [0, 1], 0) == 0
    assert new_scores(pool, [0, 1], 1) > 0
    for other in (other_words, renamed, wheels):
        assert new_scores(other, [0, 1], 0) > 0
    assert new_scores(pool, [0, 1], 0) == 0


def test_a_damaged_journal_gives_what_is_whole_in_it(tmp_path):
    path = tmp_path / "journal"
    candidate, other = (Candidate("kbf", 30, 0, {"power": power}) for power in (8.0, 9.0))
    Journal(path).add(candidate, False, 0.25)
    whole = path.read_text().strip()
    forged = [whole.replace("0.25", number) for number in ("NaN", "-3.0", "1" + "0" * 400, "[]")]
    nonsense = [b"\xff\xfe", b"[" * 100_000, b'{"key": [], "rmse_m": 1}', whole[:20].encode()]
    path.write_bytes(b"\n".join([*(line.encode() for line in forged), *nonsense]))
    journal = Journal(path)
    assert journal.score(candidate, False) is None
    journal.add(other, False, 0.5)
    assert Journal(path).score(other, False) == 0.5


def test_a_pipe_in_the_journals_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "journal")
    with pytest.raises(KbfError, match="is not a regular file"):
        Journal(tmp_path / "journal")
