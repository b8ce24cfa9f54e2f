"""How the benchmarks measure: times of calls, and cases of them against a reference."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def case(ours_ms: ArrayLike, reference_ms: ArrayLike, reference: str) -> dict[str, Any]:
    """Return what `kbf bench` reports of a case: medians, and a ratio above 1 if ours is faster."""
    ours, theirs = (float(np.median(np.asarray(times))) for times in (ours_ms, reference_ms))
    return {
        "ours_ms": ours,
        "reference_ms": theirs,
        "ratio": theirs / ours,
        "reference": reference,
    }


def milliseconds(
    function: Callable[..., object],
    *arguments: Any,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return how long a call takes."""
    start = clock()
    function(*arguments)
    return 1e3 * (clock() - start)


@contextmanager
def throttled(pid: int, fraction: float, period_s: float = 0.02) -> Iterator[None]:
    """Let a process run for this fraction of the time, as on a slower or busier computer."""
    stop = threading.Event()

    def throttle() -> None:
        while not stop.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep((1.0 - fraction) * period_s)
            os.kill(pid, signal.SIGCONT)
            time.sleep(fraction * period_s)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)
