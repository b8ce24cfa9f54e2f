"""Progress as a person sees it on a terminal, and as it looks in a log file."""

import io

import pytest
from rich.console import Console

from kbf_localization.cli import progress
from kbf_localization.cli.progress import show_progress


def test_a_log_file_gets_the_first_and_the_last_line_of_quick_work() -> None:
    log = io.StringIO()
    with show_progress(Console(file=log)) as report:
        for done in range(1001):
            report(done, 1000, "describing images")
    lines = log.getvalue().splitlines()
    assert lines[0] == "describing images: 0/1000"
    assert lines[-1].startswith("describing images: 1000/1000")
    assert len(lines) == 2
    assert "\x1b" not in log.getvalue()


def test_a_log_file_gets_a_line_now_and_then_of_slow_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    log = io.StringIO()
    with show_progress(Console(file=log)) as report:
        for done in range(100):
            report(done, 1000, "tuning")
    assert len(log.getvalue().splitlines()) == 10


def test_a_terminal_gets_a_bar_for_each_thing_done() -> None:
    screen = io.StringIO()
    with show_progress(Console(file=screen, force_terminal=True, width=100)) as report:
        for doing in ("rendering", "describing"):
            report(3, 3, doing)
    assert "rendering" in screen.getvalue()
    assert "describing" in screen.getvalue()
    assert "3/3" in screen.getvalue()
