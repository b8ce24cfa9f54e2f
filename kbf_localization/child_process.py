"""Python processes of our own, which do not look for modules in the current directory."""

from __future__ import annotations

import sys


def python_command(statement: str) -> list[str]:
    """The command of a Python that runs `statement` and finds modules where this one does.

    For `-c` and `-m` Python looks into the current directory first: a numpy.py that lies there
    would be run. What forbids that, -P and PYTHONSAFEPATH, came with Python 3.11; so the path is
    put right before anything but the built-in sys is imported.
    """
    path = [entry for entry in sys.path if entry]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {statement}"]
