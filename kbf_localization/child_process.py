"""Child processes: nothing from the current directory is run, none outlives its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

_GRACE_S = 5.0


def python_command(statement: str) -> list[str]:
    """Return the command of a Python that runs `statement` and finds modules where this one does.

    For `-c` and `-m` Python looks into the current directory first: a numpy.py that lies there
    would be run. What forbids that, -P and PYTHONSAFEPATH, came with Python 3.11; so the path is
    put right before anything but the built-in sys is imported.
    """
    # This package is found even where it lies in the current directory itself.
    path = [*filter(None, sys.path), str(Path(__file__).resolve().parents[1])]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {statement}"]


def ignore_drawing_settings_here() -> None:
    """Let no `matplotlibrc` in the current directory make matplotlib run TeX, or draw otherwise."""
    if Path("matplotlibrc").exists():
        import matplotlib

        matplotlib.rcdefaults()


def end_with_parent() -> None:
    """Interrupt this process when its standard input ends.

    It ends with the parent, which holds the other end of that pipe.
    """
    threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()


def _interrupt_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_S)
    os._exit(1)
