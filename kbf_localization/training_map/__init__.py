"""The training map: built from drives, stored in a file, asked by the filters."""

from kbf_localization.training_map.build import build_map
from kbf_localization.training_map.load import load_map
from kbf_localization.training_map.save import save_map
from kbf_localization.training_map.training_map import (
    Source,
    TrainingMap,
    subset,
    without_thumbnails,
)

__all__ = [
    "Source",
    "TrainingMap",
    "build_map",
    "load_map",
    "save_map",
    "subset",
    "without_thumbnails",
]
