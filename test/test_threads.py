"""Thread counts are set where nobody has set them before."""

import os
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from kbf_localization.threads import THREAD_VARIABLES, limit_threads


def test_opencv_and_blas_get_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
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


UNTIL_NUMPY = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("numpy with", os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
from kbf_localization.cli.main import main
main()
"""
"""BLAS reads the count when NumPy is imported, and never again."""


@pytest.mark.parametrize(
    "words",
    [
        "map build nowhere --output new.kbfmap",
        "map add nowhere.kbfmap nowhere --output new.kbfmap",
        "map add-landmarks nowhere.kbfmap --sources nowhere",
        "map check nowhere.kbfmap",
        "evaluate nowhere --map nowhere.kbfmap",
        "tune nowhere elsewhere --output new.yaml",
    ],
)
def test_a_command_that_computes_gives_blas_one_thread(words: str, tmp_path: Path) -> None:
    """Two that wait for each other on a busy machine take four times the processor time."""
    unset = {name: text for name, text in os.environ.items() if name not in THREAD_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", UNTIL_NUMPY, *words.split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=unset,
    )
    assert done.stdout == "numpy with 1\n", done.stderr
