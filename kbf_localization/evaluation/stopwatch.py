"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds by what was done; what is done again adds up.

    A part within another counts for itself alone, so that all parts add up to the whole.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()
        self._within_s = 0.0

    @contextmanager
    def measuring(self, doing: str) -> Iterator[None]:
        began, before = time.monotonic(), self._within_s
        self._within_s = 0.0
        try:
            yield
        finally:
            elapsed = time.monotonic() - began
            self.seconds[doing] = self.seconds.get(doing, 0.0) + elapsed - self._within_s
            self._within_s = before + elapsed

    @property
    def total(self) -> float:
        """Seconds since the watch was made, whatever they were spent on."""
        return time.monotonic() - self._began

    def summary(self) -> str:
        """Return the parts, the largest first, and what is left over."""
        parts = sorted(self.seconds.items(), key=lambda part: -part[1])
        rest = max(self.total - sum(self.seconds.values()), 0.0)
        return ", ".join(f"{doing} {seconds:.1f} s" for doing, seconds in [*parts, ("rest", rest)])
