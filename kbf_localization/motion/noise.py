"""The noise of the odometry: learned from drives, reported by the robot, adapted while driving.

A robot's reported covariance is believed where it grows as the robot drives. Most robots send a
constant, or switch between two, which says nothing about a motion. The velocity's covariance is not
used: how it adds up depends on the correlation time of its errors, which no message contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.geometry import motion_jacobian, relative, wrap_angle
from kbf_localization.limits import MAX_SIGMA_M, MAX_SIGMA_RAD

OUTLIER_VARIANCES = 9.0
"""Bound of a squared error in the fit. Four times as much is a fault of the recording, not of the
wheels."""

MIN_RELATIVE_ERROR = 0.02
"""No wheel errs by less than 2 % of the path: a recording that does has its poses from odometry."""

TURNING_LEVER_M = 0.5
"""A robot's axle is at most so far from the point whose pose is reported."""

SWEEPS = 20

Triple = tuple[float, float, float]


def triple(values: ArrayLike) -> Triple:
    """Return three numbers as the models hold them."""
    first, second, third = np.asarray(values, dtype=np.float64)
    return float(first), float(second), float(third)


@dataclass(frozen=True)
class MotionNoise:
    """Q(u): variances of the odometry's error forward, left and in heading, (3,) each.

    They grow with the distance driven, `per_metre`, and with the angle turned, `per_radian`, so
    that many short steps add up to one long step. `set_aside` windows of the drives erred so much
    that they count as faults of the recording.
    """

    per_metre: Triple
    per_radian: Triple
    set_aside: int = 0

    def variances(self, distance_m: float, turned_rad: float) -> Array:
        """Return the variances (3,) of a motion."""
        return distance_m * np.array(self.per_metre) + turned_rad * np.array(self.per_radian)


def fit_motion_noise(
    drives: Iterable[tuple[Array, Array]], window_m: float, window_rad: float
) -> MotionNoise:
    """Fit Q to the errors of odometry over windows of drives: true poses and odometry (t, 3)."""
    errors, lengths = errors_over_windows(drives, window_m, window_rad)
    per_metre, per_radian, outliers = noise_growth(errors, lengths, window_m, window_rad)
    return MotionNoise(triple(per_metre), triple(per_radian), outliers)


def errors_over_windows(
    drives: Iterable[tuple[Array, Array]], window_m: float, window_rad: float
) -> tuple[Array, Array]:
    """Return the odometry's errors (w, 3) over windows of the drives, and their lengths (w, 2).

    A drive is its true poses and its odometry, (t, 3) each. A window's path has `window_m` metres,
    or `window_rad` radians, or a part of each; correlated errors, as those of wheels are, then
    count as they add up over such a window. Lengths are in metres and radians.
    """
    errors: list[Array] = []
    lengths: list[Array] = []
    for truth, odometry in drives:
        for first, last, length in _windows(odometry, window_m, window_rad):
            motion = relative(truth[first], truth[last])
            errors.append(relative(relative(odometry[first], odometry[last]), motion))
            lengths.append(length)
    return np.array(errors).reshape(-1, 3), np.array(lengths).reshape(-1, 2)


def _windows(
    odometry: Array, window_m: float, window_rad: float
) -> Iterator[tuple[int, int, Array]]:
    steps = relative(odometry[:-1], odometry[1:])
    driven = np.zeros((len(odometry), 2))
    driven[1:, 0] = np.cumsum(np.hypot(steps[:, 0], steps[:, 1]))
    driven[1:, 1] = np.cumsum(np.abs(steps[:, 2]))
    progress = driven[:, 0] / window_m + driven[:, 1] / window_rad
    first = 0
    while (last := int(np.searchsorted(progress, progress[first] + 1.0))) < len(odometry):
        # A step longer than several windows is a gap in the recording.
        if progress[last] - progress[first] < 3.0:
            yield first, last, driven[last] - driven[first]
        first = last


def noise_growth(
    errors: Array, lengths: Array, window_m: float, window_rad: float
) -> tuple[Array, Array, int]:
    """Return variances (3,) per metre and per radian that explain the errors, and the outliers.

    Forward, left and heading: in m²/m, m²/m and rad²/m, then m²/rad, m²/rad and rad²/rad. The
    windows are those of `errors_over_windows`.
    """
    per_metre, per_radian = min_growth(window_m, window_rad)
    outliers = np.zeros(len(errors), dtype=bool)
    if len(errors) < 4:
        return per_metre, per_radian, 0
    for axis in range(3):
        least = np.array([per_metre[axis], per_radian[axis]])
        squares = errors[:, axis] ** 2
        variances = np.full(len(errors), 2.2 * float(np.median(squares)) + 1e-12)
        for _ in range(SWEEPS):
            # A squared error scatters as its own variance does, so it counts by the inverse.
            bounded = np.minimum(squares, OUTLIER_VARIANCES * variances)
            growth, _ = scipy.optimize.nnls(lengths / variances[:, None], bounded / variances)
            variances = np.maximum(lengths @ growth, 1e-12)
        per_metre[axis], per_radian[axis] = np.maximum(growth, least)
        floor = 0.1 * (lengths @ least)
        outliers |= squares > 4.0 * OUTLIER_VARIANCES * np.maximum(variances, floor)
    return per_metre, per_radian, int(outliers.sum())


def min_growth(window_m: float, window_rad: float) -> tuple[Array, Array]:
    """Return variances (3,) per metre and per radian of the best odometry over a window.

    Over `window_m` metres the position errs by MIN_RELATIVE_ERROR of them. An error to the left is
    a heading error times the distance, so that the heading errs by as many radians however long
    the window is. Over `window_rad` radians the heading errs by that fraction of them, and the
    position by that times the lever.
    """
    squared = MIN_RELATIVE_ERROR**2
    moved, turned = squared * window_m, squared * window_rad
    lever = turned * TURNING_LEVER_M**2
    return np.array([moved, moved, squared / window_m]), np.array([lever, lever, turned])


MIN_REPORTED, MAX_REPORTED = 0.25, 100.0
"""Of the calibrated variances: reported variances never count for less, since they leave out
correlated errors; larger variances are jumps of an invented covariance."""

_MAX_VARIANCES = np.square((MAX_SIGMA_M, MAX_SIGMA_M, MAX_SIGMA_RAD))


def is_covariance(matrix: Array) -> bool:
    """Tell whether a matrix may be a covariance (3, 3) of (x, y, heading).

    It is finite and symmetric, its variances are not negative, not all zero and within the limits.
    """
    # Most robots send zeros, some hundred times a second.
    if matrix.shape != (3, 3) or not matrix.any() or not np.isfinite(matrix).all():
        return False
    variances = matrix.diagonal()
    if not ((variances >= 0.0) & (variances <= _MAX_VARIANCES)).all() or not variances.any():
        return False
    return bool(np.abs(matrix - matrix.T).max() <= 1e-6 * variances.max())


def added_variances(start: Array, before: Array, end: Array, after: Array) -> Array | None:
    """Return the variances (3,) forward, left and in heading of a motion between two readings.

    The readings are poses (3,) `start` and `end` with covariances (3, 3) `before` and `after`.
    Where P' = J P Jᵀ + G Q Gᵀ, with J the motion's Jacobian and G the rotation to the robot's axes,
    the result is the diagonal of Q; None where no covariance Q explains them.
    """
    jacobian = motion_jacobian(start, end)
    added = after - jacobian @ before @ jacobian.T
    # Positive semi-definite, but for rounding.
    if not np.linalg.eigvalsh(added)[0] >= -1e-9 * np.abs(after).max():
        return None
    heading = start[2] + 0.5 * float(wrap_angle(end[2] - start[2]))
    cos, sin = np.cos(heading), np.sin(heading)
    forward, left = np.array([cos, sin]), np.array([-sin, cos])
    plane = added[:2, :2]
    return np.array([forward @ plane @ forward, left @ plane @ left, added[2, 2]])


def sane_variances(reported: Array, calibrated: Array) -> Array | None:
    """Return the reported variances (3,), bounded below by the calibrated; None if not sane.

    Sane means that none exceeds `MAX_REPORTED` times the calibrated one and not all are too small.
    """
    low, high = MIN_REPORTED * calibrated, MAX_REPORTED * calibrated
    if (reported > high).any() or not (reported > low).any():
        return None
    return np.maximum(reported, low)


MAX_SURPRISE = 3.5
"""Bound of a mean square whose expectation is one: larger values are outliers, and a single one
breaks no odometry, for exp(MAX_SURPRISE − 1) is below BROKEN_INFLATION."""

SWITCH_INFLATION = 4.0
"""Inflation, twice the error, where a confirmed pose was wrong."""

MAX_INFLATION, BROKEN_INFLATION = 100.0, 16.0
"""Bound of the adaptation, ten times the calibrated error; and the inflation, four times that
error, from which on odometry is broken and carries no pose."""


class AdaptiveMotionNoise:
    """Scales the motion noise by `inflation`, which is 1 with errors as on the mapping drives."""

    def __init__(self) -> None:
        self.inflation = 1.0

    @property
    def broken(self) -> bool:
        return self.inflation > BROKEN_INFLATION

    def update(self, surprise: float, information: float) -> None:
        """Adapt to how much the published hypothesis's last measurement surprises.

        `surprise` is a mean square with expectation one, `information` the fraction of an
        independent observation since the last update.
        """
        bounded = min(surprise, MAX_SURPRISE)
        self._scale(float(np.exp(information * (bounded - 1.0))))

    def inflate(self) -> None:
        """Inflate at once: a confirmed pose was wrong, and the robot was not carried away."""
        self._scale(SWITCH_INFLATION)

    def _scale(self, factor: float) -> None:
        self.inflation = float(np.clip(factor * self.inflation, 1.0, MAX_INFLATION))
