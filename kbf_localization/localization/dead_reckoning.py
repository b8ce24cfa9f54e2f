"""A pose carried on by odometry, and what that adds to its covariance."""

from __future__ import annotations

from kbf_localization.arrays import Array
from kbf_localization.filters.hypothesis import drift, pose_jacobian
from kbf_localization.geometry import compose, relative, sound_covariance
from kbf_localization.localization.odometry_buffer import OdometryReading
from kbf_localization.motion.reported_noise import sane_variances
from kbf_localization.training_map.learned import MotionNoise


class DeadReckoning:
    """Carries poses with the map's motion noise, or the odometry's own where that is sane."""

    def __init__(self, noise: MotionNoise) -> None:
        self._noise = noise

    def carried(
        self, start: Array, uncertainty: Array, then: OdometryReading, now: OdometryReading
    ) -> tuple[Array, Array]:
        """Pose and covariance after driving on from `start`, where odometry was `then`."""
        if (now.distance_m, now.turned_rad) == (then.distance_m, then.turned_rad):
            return start, uncertainty
        pose = compose(start, relative(then.pose, now.pose))
        change = pose_jacobian(start, pose)
        reported = self.reported(then, now)
        variances = self._by_the_map(then, now) if reported is None else reported
        noise = drift(start, pose, variances)
        return pose, sound_covariance(change @ uncertainty @ change.T + noise)

    def reported(self, then: OdometryReading, now: OdometryReading) -> Array | None:
        """A motion's variances (3,) by the odometry's own covariances; None where not sane."""
        if now.unreported != then.unreported:
            return None
        return sane_variances(now.variances - then.variances, self._by_the_map(then, now))

    def _by_the_map(self, then: OdometryReading, now: OdometryReading) -> Array:
        """A motion's variances (3,) by the map."""
        way = abs(now.distance_m - then.distance_m), abs(now.turned_rad - then.turned_rad)
        return self._noise.variances(*way)
