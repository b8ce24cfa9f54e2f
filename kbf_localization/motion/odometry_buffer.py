"""The latest odometry: poses at the images' stamps, and dead reckoning with covariance."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.geometry import (
    blend,
    compose,
    invert,
    motion_jacobian,
    process_noise,
    relative,
    sound_covariance,
    wrap_angle,
)
from kbf_localization.limits import MAX_COORDINATE_M
from kbf_localization.motion.noise import (
    MotionNoise,
    added_variances,
    is_covariance,
    sane_variances,
)


@dataclass(frozen=True)
class OdometryReading:
    """Odometry at one time: `pose` (3,), and how far the robot has gone and turned so far.

    `variances` (3,) forward, left and in heading are what the odometry's own `covariance` (3, 3)
    has added so far; `unreported` is the number of steps for which it has none.
    """

    stamp_ns: int
    pose: Array
    distance_m: float
    turned_rad: float
    variances: Array
    unreported: float
    covariance: Array | None = None


MAX_READINGS = 100_000
"""However near each other their stamps are: 60 s of odometry at 1 kHz are 60,000."""


class OdometryBuffer:
    """Odometry readings in time order; appending and looking up may happen in two threads."""

    def __init__(self, history_s: float = 60.0) -> None:
        self._history_ns = int(history_s * 1e9)
        self._lock = threading.Lock()
        self._stamps: list[int] = []
        self._readings: list[OdometryReading] = []

    def append(
        self, stamp_ns: int, pose: ArrayLike, covariance: ArrayLike | None = None
    ) -> Event | None:
        """Take a reading, with its covariance (3, 3) if there is one; or say why it is refused."""
        pose = np.array(pose, dtype=np.float64)
        if pose.shape != (3,) or not all(map(math.isfinite, pose)):
            return Event.ODOMETRY_NOT_FINITE
        if max(map(abs, pose)) > MAX_COORDINATE_M:
            return Event.ODOMETRY_TOO_FAR
        with self._lock:
            if self._stamps and stamp_ns <= self._stamps[-1]:
                return Event.ODOMETRY_LATE
            last = self._readings[-1] if self._readings else None
            self._stamps.append(stamp_ns)
            self._readings.append(_reading(last, stamp_ns, pose, covariance))
            self._forget(stamp_ns - self._history_ns)
        return None

    def clear(self) -> None:
        with self._lock:
            self._stamps.clear()
            self._readings.clear()

    @property
    def newest(self) -> OdometryReading | None:
        """Return the last reading."""
        with self._lock:
            return self._readings[-1] if self._readings else None

    @property
    def newest_ns(self) -> int | None:
        """Return the stamp of the last reading."""
        newest = self.newest
        return None if newest is None else newest.stamp_ns

    @property
    def oldest_ns(self) -> int | None:
        """Return the stamp of the first reading that is still kept."""
        with self._lock:
            return self._stamps[0] if self._stamps else None

    def at(self, stamp_ns: int) -> OdometryReading | None:
        """Return odometry at a time, linear between its neighbours; the newest for a later time.

        None where all readings are later, or there are none.
        """
        with self._lock:
            if not self._stamps or stamp_ns < self._stamps[0]:
                return None
            right = bisect_left(self._stamps, stamp_ns)
            if right == len(self._stamps):
                return self._readings[-1]
            after = self._readings[right]
            if after.stamp_ns == stamp_ns:
                return after
            before = self._readings[right - 1]
        fraction = (stamp_ns - before.stamp_ns) / (after.stamp_ns - before.stamp_ns)
        return OdometryReading(
            stamp_ns,
            blend(before.pose, after.pose, fraction),
            before.distance_m + fraction * (after.distance_m - before.distance_m),
            before.turned_rad + fraction * (after.turned_rad - before.turned_rad),
            before.variances + fraction * (after.variances - before.variances),
            before.unreported + fraction * (after.unreported - before.unreported),
        )

    def _forget(self, before_ns: int) -> None:
        """Drop old readings, many at a time so that appending stays cheap."""
        keep_from = bisect_left(self._stamps, before_ns)
        if len(self._stamps) > MAX_READINGS:
            keep_from = max(keep_from, len(self._stamps) // 2 + 1)
        if keep_from > 1000 and keep_from > len(self._stamps) // 2:
            del self._stamps[:keep_from]
            del self._readings[:keep_from]


def _reading(
    last: OdometryReading | None, stamp_ns: int, pose: Array, covariance: ArrayLike | None
) -> OdometryReading:
    """Return the reading that follows `last`."""
    reported = None if covariance is None else np.array(covariance, dtype=np.float64)
    before = None if last is None else last.covariance
    repeated = reported is not None and before is not None and np.array_equal(reported, before)
    if reported is not None and not repeated and not is_covariance(reported):
        reported = None
    if last is None:
        return OdometryReading(stamp_ns, pose, 0.0, 0.0, np.zeros(3), 0.0, reported)
    step, added = pose - last.pose, None
    if repeated:
        # A covariance that stays the same while the robot moves is invented.
        added = None if step.any() else np.zeros(3)
    elif reported is not None and before is not None:
        added = added_variances(last.pose, before, pose, reported)
    return OdometryReading(
        stamp_ns,
        pose,
        last.distance_m + math.hypot(step[0], step[1]),
        last.turned_rad + abs(float(wrap_angle(step[2]))),
        last.variances if added is None else last.variances + added,
        last.unreported + (added is None),
        reported,
    )


@dataclass(frozen=True)
class Fix:
    """A `pose` (3,) on the map with its `covariance` (3, 3), and the odometry read there."""

    pose: Array
    covariance: Array
    odometry: OdometryReading

    @property
    def map_to_odom(self) -> Array:
        """Return the pose (3,) of the odometry's frame on the map."""
        return compose(self.pose, invert(self.odometry.pose))


class DeadReckoning:
    """Propagates poses with the reported motion noise where that is sane, else the calibrated."""

    def __init__(self, noise: MotionNoise) -> None:
        self._noise = noise

    def propagate(self, fix: Fix, now: OdometryReading) -> Fix:
        """Return the fix propagated to the odometry reading `now`."""
        then = fix.odometry
        if (now.distance_m, now.turned_rad) == (then.distance_m, then.turned_rad):
            return Fix(fix.pose, fix.covariance, now)
        pose = compose(fix.pose, relative(then.pose, now.pose))
        change = motion_jacobian(fix.pose, pose)
        reported = self.reported(then, now)
        variances = self._calibrated(then, now) if reported is None else reported
        covariance = change @ fix.covariance @ change.T + process_noise(fix.pose, pose, variances)
        return Fix(pose, sound_covariance(covariance), now)

    def reported(self, then: OdometryReading | None, now: OdometryReading) -> Array | None:
        """Return a motion's variances (3,) as the odometry reports them; None where not sane."""
        if then is None or now.unreported != then.unreported:
            return None
        return sane_variances(now.variances - then.variances, self._calibrated(then, now))

    def _calibrated(self, then: OdometryReading, now: OdometryReading) -> Array:
        """Return a motion's variances (3,) by the calibrated noise."""
        path = abs(now.distance_m - then.distance_m), abs(now.turned_rad - then.turned_rad)
        return self._noise.variances(*path)
