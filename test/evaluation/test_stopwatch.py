"""The parts of a run's time."""

import time

import pytest

from kbf_localization.evaluation.stopwatch import Stopwatch


def test_a_part_within_another_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 4.5, 6.0, 7.0, 10.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    watch = Stopwatch()  # 0
    with watch.measuring("filter"):  # from 1
        with watch.measuring("waiting"):  # 3 to 4.5
            pass
        with watch.measuring("waiting"):  # 6 to 7
            pass
    assert watch.seconds == {"filter": 9.0 - 2.5, "waiting": 2.5}
