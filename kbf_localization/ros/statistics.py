"""Rates and latencies over the last while."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np


class Rate:
    """How often something happens, over the last `window` seconds."""

    def __init__(self, window: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._lock = threading.Lock()
        self._count = 0
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def happened(self) -> None:
        with self._lock:
            self._count += 1

    def hertz(self) -> float:
        """The rate since about `window` seconds ago; call it regularly."""
        now = self._clock()
        with self._lock:
            while len(self._marks) > 1 and now - self._marks[1][0] >= self._window:
                self._marks.popleft()
            since, count = self._marks[0]
            self._marks.append((now, self._count))
            return (self._count - count) / max(now - since, 1e-3)


class Latency:
    """Percentiles of the last `size` durations."""

    def __init__(self, size: int = 500) -> None:
        self._seconds: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def percentile_ms(self, percent: float) -> float:
        """Milliseconds; NaN before the first."""
        values = list(self._seconds)
        return float(np.percentile(values, percent)) * 1e3 if values else float("nan")
