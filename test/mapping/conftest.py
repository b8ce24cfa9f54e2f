"""The small drive and the maps of `test/training_map`."""

from test.training_map.conftest import map_path, number_map, wall_drive, wall_map

__all__ = ["map_path", "number_map", "wall_drive", "wall_map"]
