"""How the benchmarks measure: times of calls, and cases of them against a reference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cv2
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
def one_thread_of_opencv() -> Iterator[None]:
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
