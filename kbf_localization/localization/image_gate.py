"""Decides which images are used, and gives the motion since the last used one."""

from __future__ import annotations

import math

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.geometry import relative
from kbf_localization.localization.result import LocalizerSettings
from kbf_localization.motion.odometry_buffer import OdometryBuffer, OdometryReading

STANDING_M, STANDING_RAD = 0.005, 0.005
"""A robot that is no further and no more turned from the last used image stands still."""


class ImageGate:
    """Compares an image's stamp and odometry with those of the images before.

    `last_used` is the odometry at the last used image, None where it is not known.
    """

    def __init__(self, odometry: OdometryBuffer, settings: LocalizerSettings) -> None:
        self.settings = settings
        self.last_used: OdometryReading | None = None
        self._odometry = odometry
        self._newest_ns: int | None = None
        self._forced = True

    def force(self) -> None:
        """Use the next image even if the robot stands still."""
        self._forced = True

    def restart(self, last_used: OdometryReading | None = None) -> None:
        """Use the next image in any case, if it is later than the last one."""
        self.last_used, self._forced = last_used, True

    def forget_stamps(self) -> None:
        """Take the next image whatever its stamp: time has jumped back."""
        self._newest_ns = None

    def seen(self, stamp_ns: int) -> None:
        """Record an image that is no reason for refusal."""
        self._newest_ns = stamp_ns

    def used(self, now: OdometryReading) -> None:
        """Record that the image with this odometry was used."""
        self.last_used, self._forced = now, False

    def refusal(self, stamp_ns: int) -> Event | None:
        """Return the reason why an image of this stamp cannot be used; None where it can."""
        if self._newest_ns is not None and stamp_ns <= self._newest_ns:
            return Event.IMAGE_LATE
        oldest_ns, newest_ns = self._odometry.oldest_ns, self._odometry.newest_ns
        if oldest_ns is None or newest_ns is None:
            return Event.IMAGE_WITHOUT_ODOMETRY
        if stamp_ns < oldest_ns:
            return Event.IMAGE_BEFORE_ODOMETRY
        if stamp_ns - newest_ns > self.settings.max_odometry_age_s * 1e9:
            return Event.IMAGE_WITHOUT_ODOMETRY
        return None

    def needs(self, now: OdometryReading, tracking: bool) -> bool:
        """Tell whether the robot has moved, or stood for long enough, since the last used image."""
        then, settings = self.last_used, self.settings
        if then is None or self._forced:
            return True
        standing_s = (now.stamp_ns - then.stamp_ns) * 1e-9
        if tracking and self.stood(now) and standing_s < settings.standing_update_s:
            return False
        step = relative(then.pose, now.pose)
        moved = math.hypot(step[0], step[1]) >= settings.update_min_d
        return bool(moved or abs(step[2]) >= settings.update_min_a)

    def stood(self, now: OdometryReading) -> bool:
        """Tell whether the robot is where the last image was used."""
        if self.last_used is None:
            return False
        # Not the path length: odometry that trembles in one place adds up, and the view stays.
        x, y, turn = now.pose - self.last_used.pose
        turned = abs(math.remainder(turn, math.tau))
        return math.hypot(x, y) < STANDING_M and turned < STANDING_RAD

    def motion(self, now: OdometryReading) -> tuple[Array | None, bool]:
        """Return the motion (3,) since the last used image, None where it is not known.

        And whether that is because odometry jumped.
        """
        then = self.last_used
        if then is None:
            return None, False
        motion = relative(then.pose, now.pose)
        seconds = max((now.stamp_ns - then.stamp_ns) * 1e-9, 0.1)
        too_far = math.hypot(motion[0], motion[1]) > self.settings.max_speed * seconds
        too_much = abs(motion[2]) > self.settings.max_turn_rate * seconds
        return (None, True) if too_far or too_much else (motion, False)
