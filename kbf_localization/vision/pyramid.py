"""Spatial pyramids (Lazebnik, Schmid and Ponce 2006): counts of words in ever smaller regions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kbf_localization.arrays import Image, Rows
from kbf_localization.vision.settings import DescriberSettings


def pyramid_histogram(words: Rows, settings: DescriberSettings) -> Image:
    """Counts (bins,) of the patches' words (patches,) in the regions of all levels.

    Level 0, the whole image, comes first; then the regions of each level, row by row. Counts are
    divided by the level's divisor and saturate at 255.
    """
    finest = settings.regions_per_side(settings.levels - 1)
    counts = np.bincount(
        words + _first_bins(settings), minlength=finest * finest * settings.words
    ).reshape(finest, finest, settings.words)
    levels = [counts]
    while len(levels) < settings.levels:
        fine = levels[-1]
        half = fine.shape[0] // 2
        levels.append(fine.reshape(half, 2, half, 2, settings.words).sum(axis=(1, 3)))
    histogram = np.empty(settings.bins, dtype=np.uint8)
    for columns, divisor, level in zip(
        settings.level_columns(), settings.level_divisors(), reversed(levels), strict=True
    ):
        rounded = (level.ravel() + divisor // 2) // divisor
        histogram[columns] = np.minimum(rounded, 255)
    return histogram


@lru_cache(maxsize=8)
def _first_bins(settings: DescriberSettings) -> Rows:
    """For each patch the first bin (patches,) of its region on the finest level."""
    side = settings.regions_per_side(settings.levels - 1)
    rows, columns = settings.grid_shape
    down = np.arange(rows) * side // rows
    right = np.arange(columns) * side // columns
    return np.asarray(((down[:, None] * side + right) * settings.words).ravel(), dtype=np.intp)
