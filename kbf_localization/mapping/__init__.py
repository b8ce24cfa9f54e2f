"""Makes training maps: builds them from drives, calibrates and edits them, opens their files."""

from kbf_localization.mapping.build import build_map
from kbf_localization.mapping.calibrate import load_map

__all__ = ["build_map", "load_map"]
