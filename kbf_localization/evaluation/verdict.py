"""How a run went, in one sentence for people."""

from __future__ import annotations

import numpy as np

from kbf_localization.evaluation.metric_texts import length_text, percent_text
from kbf_localization.evaluation.metrics import position_errors, seconds_to_first_fix
from kbf_localization.evaluation.run import GROSS_ERROR_M, Run

NO_TRUTH = "The drive has no true poses, so errors cannot be computed."

MIN_DEGRADED_S = 0.5
"""Time in state degraded that is worth a word."""


def stretches(run: Run) -> list[tuple[str, float, float]]:
    """Return the run's states in turn, each with the seconds at which it begins and ends."""
    states, seconds = run.states, ((run.stamps_ns - run.stamps_ns[:1]) * 1e-9).tolist()
    starts = [row for row in range(len(run)) if row == 0 or states[row] != states[row - 1]]
    ends = [*starts[1:], len(run) - 1]
    return [(states[start], seconds[start], seconds[end]) for start, end in zip(starts, ends)]


def verdict(run: Run) -> str:
    """Say when the robot found itself, how far off it stayed, how often it was lost and wrong."""
    if len(run) == 0:
        return "No image got an estimate."
    seconds = float(run.stamps_ns[-1] - run.stamps_ns[0]) * 1e-9
    errors = position_errors(run)
    known = bool(np.isfinite(errors).any())
    found_after = seconds_to_first_fix(run)
    if found_after is None:
        return _without_fix(run, errors, seconds, known)
    since = int(np.argmax(np.array(run.states) == "tracking"))
    stayed = _stayed(errors[since:], seconds - found_after)
    if run.is_smoothed:
        parts = [f"Smoothed, the path is known from {_seconds(found_after)} on: {stayed}"]
    else:
        parts = [
            f"Found itself after {_seconds(found_after)} without a hint, then {stayed}",
            _losses(run),
        ]
        if run.degraded_s >= MIN_DEGRADED_S:
            parts.append(f"carried by odometry alone for {_seconds(run.degraded_s)}")
    if known:
        parts.append(_wrong(run, errors))
    sentence = "; ".join(parts) + "."
    return sentence if known else f"{sentence} {NO_TRUTH}"


def _without_fix(run: Run, errors: np.ndarray, seconds: float, known: bool) -> str:
    """Describe a run that never tracked: a baseline without states, or a filter without a fix."""
    if run.has_state:
        return f"Never found itself in {_seconds(seconds)}." + ("" if known else f" {NO_TRUTH}")
    if not known:
        return f"Gave a pose for each of {len(run)} frames. {NO_TRUTH}"
    errors = errors[np.isfinite(errors)]
    half, most = (length_text(float(np.percentile(errors, percent))) for percent in (50, 95))
    return (
        f"Half of its poses are within {half}, 95 % within {most}; "
        f"{_frames(errors > GROSS_ERROR_M)} beyond {GROSS_ERROR_M:g} m; this method does not know "
        "when it is wrong."
    )


def _stayed(errors: np.ndarray, seconds: float) -> str:
    """Describe errors from the first fix on, by their 95th percentile where some are gross."""
    errors = errors[np.isfinite(errors)]
    if len(errors) == 0:
        return f"drove on for {_seconds(seconds)}"
    largest, median = float(errors.max()), length_text(float(np.median(errors)))
    if largest <= GROSS_ERROR_M:
        return f"stayed within {length_text(largest)} (median {median}) for {_seconds(seconds)}"
    p95 = length_text(float(np.percentile(errors, 95)))
    return (
        f"was within {p95} in 95 % of {_seconds(seconds)} (median {median}, largest "
        f"{length_text(largest)})"
    )


def _losses(run: Run) -> str:
    lost = [end - begin for state, begin, end in stretches(run) if state == "lost"]
    if not lost:
        return "never lost"
    total = _seconds(sum(lost))
    end = ", still lost at the end" if run.states[-1] == "lost" else ""
    if len(lost) == 1:
        return f"lost once, for {total}{end}"
    return f"lost {len(lost)} times, for {total} in all{end}"


def _wrong(run: Run, errors: np.ndarray) -> str:
    known = np.isfinite(errors)
    wrong = (errors > run.wrong_beyond_m) & (np.array(run.states) == "tracking")
    if not wrong.any():
        return "never confident and wrong"
    return f"{_frames(wrong[known])} confident and wrong"


def _frames(chosen: np.ndarray) -> str:
    """Return how many of the frames: "1 frame in 1000", or per cent above one in ten."""
    count, total = int(chosen.sum()), len(chosen)
    if count == 0:
        return "no frame"
    if count > 0.1 * total:
        return f"{percent_text(count / total)} of the frames"
    return f"1 frame in {round(total / count)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if 0.0 < seconds < 2.95 else f"{seconds:.0f} s"
