"""Runs the faults in all buildings, and scores them: does it notice, and does it come back?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.errors import ParameterError
from kbf_localization.evaluation.metrics import GROSS_ERROR_M, position_errors
from kbf_localization.evaluation.run import Run, replay
from kbf_localization.experiments.faults import Building, Case, all_faults
from kbf_localization.filters.registry import make_filter
from kbf_localization.localization import Localizer
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

FIGURES = (
    "confident_wrong_share",
    "seconds_to_lost",
    "seconds_to_recover",
    "false_lost",
    "tracking_share",
)


@dataclass(frozen=True)
class Outcome:
    """One case of a fault in a building. A figure is None where it does not apply."""

    fault: str
    building: str
    case: int
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class FaultTask:
    """Runs one fault in one of the buildings; a picklable function."""

    buildings: tuple[Building, ...]
    kidnappings_each: int

    def __call__(self, item: tuple[str, int]) -> list[Outcome]:
        name, number = item
        here = self.buildings[number]
        there = self.buildings[(number + 1) % len(self.buildings)]
        cases = all_faults(self.kidnappings_each)[name](here, there)
        return [
            Outcome(name, here.name, k, score(run_case(case), case)) for k, case in enumerate(cases)
        ]


def check_faults(text: str | None) -> list[str]:
    """The faults in a list separated by commas, each once; all for None."""
    known = list(all_faults(1))
    if text is None:
        return known
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise ParameterError(f"no fault is called '{name}': choose from {', '.join(known)}")
    if not names:
        raise ParameterError(f"no fault is named: choose from {', '.join(known)}")
    return names


def run_case(case: Case) -> Run:
    """The default filter over a case, from a start with no hint of the place."""
    return replay(case.drive, Localizer(case.training_map, make_filter("kbf", case.training_map)))


def run_faults(
    buildings: Sequence[Building],
    names: Sequence[str],
    kidnappings: int,
    workers: Workers,
    progress: Progress = no_progress,
) -> Iterator[Outcome]:
    """All cases of these faults, as they are done; `kidnappings` are spread over the buildings."""
    task = FaultTask(tuple(buildings), -(-kidnappings // len(buildings)))
    items = [(name, number) for name in names for number in range(len(buildings))]
    for outcomes in tracked(workers.map(task, items), "faults", progress, len(items)):
        yield from outcomes


def score(run: Run, case: Case) -> dict[str, float | None]:
    """The figures of one run.

    Shares are over the images since the fault began. *Lost* is timed from there, or from the first
    *tracking* after it where that came later; recovery, *tracking* within a metre of the truth,
    from the fault's end, and one that never came counts as the rest of the drive. *Lost* is false
    where the pose was right and the fault was over or not yet begun, or never ends.
    """
    # Images without an estimate are not in the run: its stamps say which are.
    rows = np.searchsorted(case.drive.stamps_ns, run.stamps_ns)
    disturbed = case.disturbed[rows]
    seconds = (run.stamps_ns - run.stamps_ns[0]) * 1e-9
    tracking = np.array([state == "tracking" for state in run.states])
    lost = np.array([state == "lost" for state in run.states])
    right = position_errors(run) <= GROSS_ERROR_M
    if case.no_pose_is_right:
        right[:] = False
    begin, last = int(np.argmax(disturbed)), len(run) - 1 - int(np.argmax(disturbed[::-1]))
    since = slice(begin, None)
    ends = last + 1 < len(run)
    sure = np.flatnonzero(tracking[max(begin - 1, 0) :])
    to_lost = None
    if len(sure):
        start = max(begin, max(begin - 1, 0) + int(sure[0]))
        noted = np.flatnonzero(lost[start:])
        to_lost = float(seconds[start + noted[0]] - seconds[start]) if len(noted) else None
    to_recover = None
    if ends:
        back = np.flatnonzero((tracking & right)[last:])
        # One that is over at once, a kidnapping, is timed from its own image.
        first = last if begin == last else last + 1
        found = seconds[last + back[0]] if len(back) else seconds[-1]
        to_recover = float(max(found - seconds[first], 0.0))
    anew = lost & np.concatenate(([False], tracking[:-1]))
    counted = ~disturbed if ends else np.ones(len(run), dtype=bool)
    return {
        "confident_wrong_share": float(np.mean((tracking & ~right)[since])),
        "seconds_to_lost": to_lost,
        "seconds_to_recover": to_recover,
        "false_lost": float((anew & right & counted).sum()),
        "tracking_share": float(np.mean(tracking[since])),
    }


def metrics_of(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, float | None]]]:
    """{"<fault>": {figure: {"mean", "std", "worst"}}}, None where a figure never applied."""
    metrics: dict[str, dict[str, dict[str, float | None]]] = {}
    for fault in dict.fromkeys(one.fault for one in outcomes):
        own = [one.figures for one in outcomes if one.fault == fault]
        metrics[fault] = {name: _summary(name, [one[name] for one in own]) for name in FIGURES}
    return metrics


def _summary(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = np.array([value for value in values if value is not None])
    if len(known) == 0:
        return {"mean": None, "std": None, "worst": None}
    worst = known.min() if name == "tracking_share" else known.max()
    return {"mean": float(known.mean()), "std": float(known.std()), "worst": float(worst)}
