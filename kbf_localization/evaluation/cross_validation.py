"""Cross validation over drives: maps from each drive, tested on each other drive."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.datasets.files import read_regular
from kbf_localization.errors import DatasetError
from kbf_localization.evaluation.described_drive import DescribedDrive
from kbf_localization.evaluation.frame_pool import FramePool, map_coverage
from kbf_localization.evaluation.metrics import position_errors
from kbf_localization.evaluation.run import replay
from kbf_localization.filters.parameters import random_parameters
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization.localizer import Localizer
from kbf_localization.parallel import Serial, Workers
from kbf_localization.progress import Progress, no_progress
from kbf_localization.vision.registry import identity_of

MIN_COVERAGE = 0.3
"""A test frame counts where the map covers it so well: the others tell nothing about a setting."""

FINALISTS = 4
"""One of so many settings goes from the short first round to the final round."""

FIRST_ROUND_FRAMES = 200
FINAL_FRAMES = 400
"""Frames of each of two pieces of a drive on which settings are tried."""

PROBE_FRAMES = 40
"""Frames that tell how long all of them will take."""

MAX_JOURNAL_BYTES = 100_000_000
"""Hundreds of thousands of scores, of some hundred bytes each."""

CHOICES_OF_POSES = 2
"""Random maps on which the finalists are tried, so that no lucky choice decides."""


@dataclass(frozen=True)
class Candidate:
    """A setting to try: `parameters` of `method`, on maps of `poses` poses."""

    method: str
    poses: int
    number: int
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class Tuned:
    """What tuning found for a method: the position's RMSE in metres over all folds."""

    parameters: Mapping[str, float]
    rmse_m: float
    default_rmse_m: float


@dataclass(frozen=True)
class _Trial:
    """The score of a candidate over all folds, as a picklable function."""

    pool: FramePool
    drives: tuple[int, ...]
    final: bool

    def __call__(self, candidate: Candidate) -> float:
        squared = np.concatenate(list(self._squared_errors(candidate)))
        if not len(squared):
            raise DatasetError(
                "these drives cannot be tuned on: where one of them drove, maps of the others have "
                f"no poses (with {candidate.poses} poses); use drives through the same places"
            )
        return float(np.sqrt(squared.mean()))

    def _squared_errors(self, candidate: Candidate) -> Iterator[Array]:
        """Run a whole localizer on a map built with the candidate: what is tuned is what runs."""
        stored = {f"{candidate.method}.{key}": value for key, value in candidate.parameters.items()}
        for trained, tested in permutations(self.drives, 2):
            for choice in range(CHOICES_OF_POSES if self.final else 1):
                training_map = self.pool.random_map(
                    [trained], candidate.poses, 1000 * candidate.poses + choice, stored
                )
                for piece in self.pieces(tested):
                    pose_filter = make_filter(candidate.method, training_map, seed=choice)
                    run = replay(piece, Localizer(training_map, pose_filter), candidate.method)
                    assert run.truth is not None
                    counted = map_coverage(training_map, run.truth) > MIN_COVERAGE
                    yield (position_errors(run) ** 2)[counted]

    def pieces(self, number: int) -> Iterator[DescribedDrive]:
        """Yield two pieces of the drive, or all of it where it is short."""
        drive = self.pool.drive(number)
        length = FINAL_FRAMES if self.final else FIRST_ROUND_FRAMES
        if len(drive) <= 2 * length:
            yield drive
            return
        for start in (len(drive) // 6, 4 * len(drive) // 6):
            yield drive.part(slice(start, start + length))


def tune(
    pool: FramePool,
    drives: Sequence[int],
    methods: Sequence[str],
    poses: int,
    *,
    budget: int = 24,
    seed: int = 0,
    journal: Path | None = None,
    workers: Workers | None = None,
    progress: Progress = no_progress,
) -> dict[str, Tuned]:
    """Return the best of `budget` random settings of each method, its defaults among them.

    All are tried on short pieces of the drives, the best quarter on longer pieces. What is known
    from `journal` is not computed again.
    """
    known = Journal(journal, _fingerprint(pool, drives, seed))
    short, long = (_Trial(pool, tuple(drives), final) for final in (False, True))
    found = {}
    for method in methods:
        candidates = _candidates(method, poses, budget, seed)
        doing = f"tuning {method} at {poses} poses"
        first = _scores(short, candidates, known, workers, progress, doing)
        ranking = sorted(candidates, key=lambda candidate: first[candidate.number])
        finalists = ranking[: max(1, len(candidates) // FINALISTS)]
        if candidates[0] not in finalists:
            finalists.append(candidates[0])
        final = _scores(long, finalists, known, workers, progress, f"{doing}, finalists")
        best = min(finalists, key=lambda candidate: final[candidate.number])
        found[method] = Tuned(best.parameters, final[best.number], final[0])
    return found


def expected_seconds(
    pool: FramePool,
    drives: Sequence[int],
    methods: Sequence[str],
    poses: int,
    budget: int,
    seed: int = 0,
) -> float:
    """Return how long `tune` will take on one core, by one map and the first frames of a drive."""
    seconds = 0.0
    for method in methods:
        began = time.perf_counter()
        training_map = pool.random_map([drives[0]], poses, seed)
        localizer = Localizer(training_map, make_filter(method, training_map, seed=seed))
        made = time.perf_counter()
        piece = pool.drive(drives[1]).part(slice(0, PROBE_FRAMES))
        replay(piece, localizer, method)
        frame_s = (time.perf_counter() - made) / max(len(piece), 1)
        maps, frames = planned_work(pool, drives, method, poses, budget, seed)
        seconds += maps * (made - began) + frames * frame_s
    return seconds


def planned_work(
    pool: FramePool, drives: Sequence[int], method: str, poses: int, budget: int, seed: int = 0
) -> tuple[int, int]:
    """Return the maps that `tune` will make for a method, and the frames that it will replay."""
    settings = len(_candidates(method, poses, budget, seed))
    maps = frames = 0
    # The defaults go to the final round too, whatever their rank.
    finalists = min(settings, max(1, settings // FINALISTS) + 1)
    for final, trials in ((False, settings), (True, finalists)):
        trial = _Trial(pool, tuple(drives), final)
        folds = trials * (len(drives) - 1) * (CHOICES_OF_POSES if final else 1)
        maps += folds * len(drives)
        frames += folds * sum(len(piece) for drive in drives for piece in trial.pieces(drive))
    return maps, frames


def _fingerprint(pool: FramePool, drives: Sequence[int], seed: int) -> str:
    """Identify drives, seed and words: scores of others are not taken for these."""
    described_by = identity_of(pool.describer)
    digest = hashlib.blake2b(repr((seed, described_by)).encode(), digest_size=16)
    if pool.describer.pyramid is not None:
        digest.update(np.ascontiguousarray(pool.describer.pyramid.vocabulary.words).tobytes())
    for number in drives:
        drive = pool.frames.drives[number]
        digest.update(repr((drive.name, drive.condition, len(drive))).encode())
        for array in (
            pool.frames.poses[pool.rows_of(number)],
            drive.stamps_ns,
            drive.odometry.stamps_ns,
            drive.odometry.poses,
        ):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _candidates(method: str, poses: int, budget: int, seed: int) -> list[Candidate]:
    generator = np.random.default_rng((seed, poses))
    drawn = [random_parameters(method, generator) for _ in range(budget - 1)]
    # A method without parameters has nothing to try but its defaults.
    settings = [{}, *filter(None, drawn)]
    return [
        Candidate(method, poses, number, parameters) for number, parameters in enumerate(settings)
    ]


def _scores(
    trial: _Trial,
    candidates: Sequence[Candidate],
    known: Journal,
    workers: Workers | None,
    progress: Progress,
    doing: str,
) -> dict[int, float]:
    """Return the RMSE of each candidate by its number."""
    scores: dict[int, float] = {}
    for candidate in candidates:
        if (score := known.score(candidate, trial.final)) is not None:
            scores[candidate.number] = score
    left = [candidate for candidate in candidates if candidate.number not in scores]
    progress(len(scores), len(candidates), doing)
    for candidate, rmse in zip(left, (workers or Serial()).map(trial, left), strict=True):
        known.add(candidate, trial.final, rmse)
        scores[candidate.number] = rmse
        progress(len(scores), len(candidates), doing)
    return scores


class Journal:
    """The scores computed so far, one JSON line each, so that tuning can be taken up again.

    `context` names what they were computed on; those of another context are left alone.
    """

    def __init__(self, path: Path | None, context: str = "") -> None:
        self._path, self._context = path, context
        self._scores: dict[str, float] = {}
        if path is not None and path.exists():
            for line in read_regular(path, MAX_JOURNAL_BYTES).splitlines():
                try:
                    entry = json.loads(line)
                    key, score = entry["key"], float(entry["rmse_m"])
                except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
                    # The line that was being written when tuning was interrupted.
                    continue
                if isinstance(key, str) and score >= 0.0:
                    self._scores[key] = score

    def score(self, candidate: Candidate, final: bool) -> float | None:
        return self._scores.get(self._key(candidate, final))

    def add(self, candidate: Candidate, final: bool, rmse_m: float) -> None:
        key = self._key(candidate, final)
        self._scores[key] = rmse_m
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                # On a new line, even after a line that was interrupted.
                file.write("\n" + json.dumps({"key": key, "rmse_m": rmse_m}) + "\n")

    def _key(self, candidate: Candidate, final: bool) -> str:
        values = {name: round(value, 9) for name, value in sorted(candidate.parameters.items())}
        return json.dumps([self._context, candidate.method, candidate.poses, final, values])
