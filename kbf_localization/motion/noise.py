"""How the odometry's error grows, estimated robustly from drives whose poses are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import scipy

from kbf_localization.arrays import Array
from kbf_localization.geometry import relative

OUTLIER = 9.0
"""Squared errors beyond so many variances are taken for faults of the record, not of the wheels."""

BEST_ODOMETRY = 0.02
"""No wheel is better than 2 % of the way: a record that says so has its poses from odometry."""

SWEEPS = 20


def errors_over_windows(
    drives: Iterable[tuple[Array, Array]], window_m: float, window_rad: float
) -> tuple[Array, Array]:
    """Errors (w, 3) of the odometry over windows of the drives, and their ways (w, 2) in m and rad.

    A drive is its true poses and its odometry, (t, 3) each. A window goes on until its way reaches
    `window_m` metres, or `window_rad` radians, or a part of each; errors that last along the way,
    as those of wheels do, then count as they add up over such a window.
    """
    errors: list[Array] = []
    ways: list[Array] = []
    for truth, odometry in drives:
        for first, last, way in _windows(odometry, window_m, window_rad):
            moved = relative(truth[first], truth[last])
            errors.append(relative(relative(odometry[first], odometry[last]), moved))
            ways.append(way)
    return np.array(errors).reshape(-1, 3), np.array(ways).reshape(-1, 2)


def _windows(
    odometry: Array, window_m: float, window_rad: float
) -> Iterator[tuple[int, int, Array]]:
    steps = relative(odometry[:-1], odometry[1:])
    ways = np.zeros((len(odometry), 2))
    ways[1:, 0] = np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))
    ways[1:, 1] = np.cumsum(np.abs(steps[:, 2]))
    progress = ways[:, 0] / window_m + ways[:, 1] / window_rad
    first = 0
    while (last := int(np.searchsorted(progress, progress[first] + 1.0))) < len(odometry):
        # One step that is longer than several windows is a gap in the record.
        if progress[last] - progress[first] < 3.0:
            yield first, last, ways[last] - ways[first]
        first = last


def noise_growth(errors: Array, ways: Array, window_m: float) -> tuple[Array, Array, int]:
    """Variances (3,) per metre and per radian that explain the errors; how many were set aside."""
    least = BEST_ODOMETRY**2 * window_m
    per_metre, per_radian = np.full(3, least), np.full(3, least)
    aside = np.zeros(len(errors), dtype=bool)
    if len(errors) < 4:
        return per_metre, per_radian, 0
    for axis in range(3):
        squares = errors[:, axis] ** 2
        variances = np.full(len(errors), 2.2 * float(np.median(squares)) + 1e-12)
        for _ in range(SWEEPS):
            # A squared error scatters as its own variance does, so it counts by the inverse.
            bounded = np.minimum(squares, OUTLIER * variances)
            growth, _ = scipy.optimize.nnls(ways / variances[:, None], bounded / variances)
            variances = np.maximum(ways @ growth, 1e-12)
        per_metre[axis] = max(float(growth[0]), least)
        per_radian[axis] = max(float(growth[1]), least * (0.1 if axis < 2 else 1.0))
        aside |= squares > 4.0 * OUTLIER * np.maximum(variances, least * 0.1)
    return per_metre, per_radian, int(aside.sum())
