"""A pose carried on by odometry, and what that adds to its covariance."""

from __future__ import annotations

from dataclasses import dataclass

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import drift, pose_jacobian
from kbf_localization.geometry import compose, invert, relative, sound_covariance
from kbf_localization.localization.odometry_buffer import OdometryReading
from kbf_localization.motion.reported_noise import sane_variances
from kbf_localization.training_map.learned import MotionNoise


@dataclass(frozen=True)
class Fix:
    """A `pose` (3,) on the map with its `covariance` (3, 3), and the odometry read there."""

    pose: Array
    covariance: Array
    odometry: OdometryReading

    @property
    def map_to_odom(self) -> Array:
        """The pose (3,) of the odometry's frame on the map."""
        return compose(self.pose, invert(self.odometry.pose))


class DeadReckoning:
    """Carries poses with the map's motion noise, or the odometry's own where that is sane."""

    def __init__(self, noise: MotionNoise) -> None:
        self._noise = noise

    def carried(self, fix: Fix, now: OdometryReading) -> Fix:
        """The fix after driving on until odometry reads `now`."""
        then = fix.odometry
        if (now.distance_m, now.turned_rad) == (then.distance_m, then.turned_rad):
            return Fix(fix.pose, fix.covariance, now)
        pose = compose(fix.pose, relative(then.pose, now.pose))
        change = pose_jacobian(fix.pose, pose)
        reported = self.reported(then, now)
        variances = self._by_the_map(then, now) if reported is None else reported
        covariance = change @ fix.covariance @ change.T + drift(fix.pose, pose, variances)
        return Fix(pose, sound_covariance(covariance), now)

    def reported(self, then: OdometryReading | None, now: OdometryReading) -> Array | None:
        """A motion's variances (3,) by the odometry's own covariances; None where not sane."""
        if then is None or now.unreported != then.unreported:
            return None
        return sane_variances(now.variances - then.variances, self._by_the_map(then, now))

    def _by_the_map(self, then: OdometryReading, now: OdometryReading) -> Array:
        """A motion's variances (3,) by the map."""
        way = abs(now.distance_m - then.distance_m), abs(now.turned_rad - then.turned_rad)
        return self._noise.variances(*way)
