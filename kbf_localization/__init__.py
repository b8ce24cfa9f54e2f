"""Localization of a mobile robot from wheel odometry and one camera, by kernel Bayes filtering.

    from kbf_localization import build_map, evaluate, load_map, localize, open_drive, save_map

`docs/python.md` shows each at work. What this module does not export is private and may change;
`kbf_localization.embeddings`, the kernel rules, is public too. Nothing is imported before it is
used.
"""

from __future__ import annotations

import os
from importlib import import_module

# As `typing` has it, which takes longer to import than all of this: until `kbf` has begun, Ctrl-C
# ends in Python's own traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kbf_localization import embeddings as embeddings
    from kbf_localization.datasets.open import open_drive as open_drive
    from kbf_localization.errors import DatasetError as DatasetError
    from kbf_localization.errors import KbfError as KbfError
    from kbf_localization.errors import MapError as MapError
    from kbf_localization.errors import ParameterError as ParameterError
    from kbf_localization.evaluation.map_check.check import check_map as check_map
    from kbf_localization.filters.base import GaussianPrior as GaussianPrior
    from kbf_localization.library import evaluate as evaluate
    from kbf_localization.library import localize as localize
    from kbf_localization.localization import Localizer as Localizer
    from kbf_localization.localization import LocalizerSettings as LocalizerSettings
    from kbf_localization.localization import State as State
    from kbf_localization.mapping import load_map as load_map
    from kbf_localization.mapping.build import build_map as build_map
    from kbf_localization.pose_graph.estimate import estimate_poses as estimate_poses
    from kbf_localization.simulator.simulated_drives import simulate as simulate
    from kbf_localization.training_map import save_map as save_map

# OpenCV reads its limits when it is loaded, so they are set before anything here loads it: the
# decoders stop at a size (in pixels) that no camera has, whatever an image's header claimed.
for _name, _limit in (("PIXELS", 50_000_000), ("WIDTH", 65_536), ("HEIGHT", 65_536)):
    os.environ.setdefault(f"OPENCV_IO_MAX_IMAGE_{_name}", str(_limit))

_HOMES = {
    "DatasetError": "errors",
    "GaussianPrior": "filters.base",
    "KbfError": "errors",
    "Localizer": "localization",
    "LocalizerSettings": "localization",
    "MapError": "errors",
    "ParameterError": "errors",
    "State": "localization",
    "build_map": "mapping.build",
    "check_map": "evaluation.map_check.check",
    "estimate_poses": "pose_graph.estimate",
    "evaluate": "library",
    "load_map": "mapping",
    "localize": "library",
    "open_drive": "datasets.open",
    "save_map": "training_map",
    "simulate": "simulator.simulated_drives",
}
"""The module in which each exported name is defined."""

__all__ = ["__version__", "embeddings", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import an exported name at its first use; `__version__` is package.xml's."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name == "embeddings":
        return import_module(f"{__name__}.embeddings")
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
