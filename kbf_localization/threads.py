"""How many threads the numeric libraries may take."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)


def limit_threads(count: int) -> None:
    """Give BLAS and OpenCV `count` threads each in this process and in its children.

    BLAS reads its variables when NumPy is first imported, so call this before that. A variable
    that is already set is the user's wish and stays. The filter's matrices are small: there a
    second BLAS thread costs more in hand-over than it saves.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(count))
    import cv2

    cv2.setNumThreads(count)


@contextmanager
def one_thread_of_opencv() -> Iterator[None]:
    """Give OpenCV a single thread within the block."""
    import cv2

    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
