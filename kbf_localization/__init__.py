"""Localization of a mobile robot from wheel odometry and one camera, by kernel Bayes filtering."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, which package.xml says, looked up only when it is asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
