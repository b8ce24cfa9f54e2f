"""Localization of a mobile robot from wheel odometry and one camera, by kernel Bayes filtering."""

from __future__ import annotations

import os

# OpenCV reads its limits when it is loaded, so they are set before anything here loads it: the
# decoders stop at a size (in pixels) that no camera has, whatever an image's header claimed.
for _name, _limit in (("PIXELS", 50_000_000), ("WIDTH", 65_536), ("HEIGHT", 65_536)):
    os.environ.setdefault(f"OPENCV_IO_MAX_IMAGE_{_name}", str(_limit))


def __getattr__(name: str) -> str:
    """`__version__`, which package.xml says, looked up only when it is asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
