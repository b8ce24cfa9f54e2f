"""The training map: what it holds, and its file."""

from kbf_localization.training_map.map_file import save_map
from kbf_localization.training_map.sources import Source
from kbf_localization.training_map.training_map import TrainingMap, subset, without_thumbnails

__all__ = ["Source", "TrainingMap", "save_map", "subset", "without_thumbnails"]
