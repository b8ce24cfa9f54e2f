"""Dead reckoning: a pose propagated by odometry, with its covariance."""

from __future__ import annotations

from dataclasses import dataclass

from kbf_localization.arrays import Array
from kbf_localization.geometry import (
    compose,
    invert,
    motion_jacobian,
    process_noise,
    relative,
    sound_covariance,
)
from kbf_localization.motion.noise import MotionNoise, sane_variances
from kbf_localization.motion.odometry_buffer import OdometryReading


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

    def carried(self, fix: Fix, now: OdometryReading) -> Fix:
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
