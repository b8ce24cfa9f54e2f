"""Thread counts are set where nobody has set them before."""

import cv2
import pytest

from kbf_localization.threads import THREAD_VARIABLES, limit_threads


def test_opencv_and_blas_get_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    before = cv2.getNumThreads()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    unset = [name for name in THREAD_VARIABLES if name != "OPENBLAS_NUM_THREADS"]
    for name in unset:
        monkeypatch.delenv(name, raising=False)
    try:
        limit_threads(1)
        assert cv2.getNumThreads() == 1
        assert {os.environ[name] for name in unset} == {"1"}
        assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
    finally:
        cv2.setNumThreads(before)
        for name in unset:
            os.environ.pop(name, None)


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="count"):
        limit_threads(0)
