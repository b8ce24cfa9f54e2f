"""Progress for people: bars on a terminal, sparse lines in a log file; both on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from kbf_localization.cli.console import error_console
from kbf_localization.progress import Progress
from kbf_localization.sanitize import shown

SECONDS_BETWEEN_LINES = 10.0


class _Bars:
    """One bar for each thing that is done, as `doing` changes."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, done: int, total: int, doing: str) -> None:
        if doing not in self._tasks:
            self._tasks[doing] = self._bars.add_task(shown(doing), total=total)
        self._bars.update(self._tasks[doing], completed=done, total=total)


class _Lines:
    """A line at the start and the end of each thing, and now and then a line between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._doing = ""
        self._started = self._printed = time.monotonic()

    def __call__(self, done: int, total: int, doing: str) -> None:
        now = time.monotonic()
        if doing != self._doing:
            self._doing, self._started = doing, now
        elif done < total and now - self._printed < SECONDS_BETWEEN_LINES:
            return
        self._printed = now
        elapsed = f" ({now - self._started:.1f} s)" if done else ""
        self._console.print(f"{doing}: {done}/{total}{elapsed}", markup=False, highlight=False)


@contextmanager
def show_progress(console: Console = error_console) -> Iterator[Progress]:
    """Yield a `Progress` that prints what it receives while the context is open."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console) as bars:
        yield _Bars(bars)
