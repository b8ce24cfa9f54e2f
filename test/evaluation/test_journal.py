"""The journal of a search belongs to its drives, seed and words."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kbf_localization.errors import KbfError
from kbf_localization.evaluation.cross_validation import Candidate, Journal, _Trial, tune
from kbf_localization.evaluation.frame_pool import FramePool
from kbf_localization.training_map.description import Described
from kbf_localization.training_map.frames import gather_frames
from kbf_localization.vision.pyramid_describer import PyramidDescriber
from kbf_localization.vision.vocabulary import Vocabulary
from test.filters.synthetic_world import DESCRIBER, World, drive, loop


@pytest.fixture(scope="module")
def pool() -> FramePool:
    world = World()
    drives = tuple(drive(world, loop(60, wobble=0.05 * i), i, f"drive{i}") for i in range(2))
    frames = gather_frames(drives)
    described = {
        row: Described(row, drives[frames.drive_of[row]].views[frames.index_of[row]], b"", False)
        for row in range(len(frames.poses))
    }
    return FramePool(drives, frames, described, DESCRIBER)


def test_the_journal_of_other_drives_or_words_or_another_seed_is_not_taken_up(
    pool: FramePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Trial, "__call__", lambda trial, candidate: 1.0)
    journal = tmp_path / "journal"

    def new_scores(searched: FramePool, drives: list[int], seed: int) -> int:
        before = len(journal.read_text().splitlines()) if journal.exists() else 0
        tune(searched, drives, ["nai"], 30, budget=1, seed=seed, journal=journal)
        return len(journal.read_text().splitlines()) - before

    other_words = replace(
        pool,
        describer=PyramidDescriber(Vocabulary(2.0 * DESCRIBER.vocabulary.words), DESCRIBER.layout),
    )
    first = pool.drives[0]
    renamed = replace(pool, drives=(replace(first, name="elsewhere"), pool.drives[1]))
    wheels = replace(pool, drives=(replace(first, motions=1.1 * first.motions), pool.drives[1]))
    assert new_scores(pool, [0, 1], 0) > 0
    assert new_scores(pool, [0, 1], 0) == 0
    assert new_scores(pool, [0, 1], 1) > 0
    for other in (other_words, renamed, wheels):
        assert new_scores(other, [0, 1], 0) > 0
    assert new_scores(pool, [0, 1], 0) == 0


def candidate(bandwidth: float) -> Candidate:
    return Candidate("nai", 30, 0, {"nai.bandwidth": bandwidth})


def test_a_damaged_journal_gives_what_is_whole_in_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).add(candidate(1.0), final=False, rmse_m=0.25)
    whole = path.read_text().strip()
    forged = [whole.replace("0.25", number) for number in ("NaN", "-3.0", "1" + "0" * 400, "[]")]
    nonsense = [b"\xff\xfe", b"[" * 100_000, b'{"key": [], "rmse_m": 1}', whole[:20].encode()]
    path.write_bytes(b"\n".join([*(line.encode() for line in forged), *nonsense]))
    journal = Journal(path)
    assert journal.score(candidate(1.0), final=False) is None
    journal.add(candidate(2.0), final=False, rmse_m=0.5)
    assert Journal(path).score(candidate(2.0), final=False) == 0.5


def test_a_pipe_in_the_journals_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal")
    with pytest.raises(KbfError, match="is not a regular file"):
        Journal(tmp_path / "journal")
