"""The gate that images pass: which of them are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kbf_localization.arrays import Array, Image
from kbf_localization.events import Event
from kbf_localization.geometry import relative
from kbf_localization.localization.result import LocalizerSettings
from kbf_localization.motion.odometry_buffer import OdometryBuffer, OdometryReading
from kbf_localization.vision.describer import show_different_views

STANDING_M, STANDING_RAD = 0.005, 0.005
"""A robot that is no further and no more turned from the last used image stands still."""

VIEW_PERIOD_S = 0.28
"""Between looks at the view of a robot that stands, where its images come no more slowly: of a
camera of 30 Hz every eighth image, which takes a millisecond or two to decode."""


@dataclass(frozen=True)
class ViewCheck:
    """When the view was last looked at, and whether it had `changed` since the last used image."""

    stamp_ns: int
    changed: bool


class ImageGate:
    """Compares an image's stamp and odometry with those of the images before.

    `last_used` is the odometry at the last used image, None where it is not known. `settled` tells
    that another image from the same place would not change what is known.
    """

    def __init__(self, odometry: OdometryBuffer, settings: LocalizerSettings) -> None:
        self.settings = settings
        self.last_used: OdometryReading | None = None
        self.settled = False
        self._odometry = odometry
        self._newest_ns: int | None = None
        self._forced = True
        self._view: Image | None = None
        self._check = ViewCheck(0, False)

    def configure(self, settings: LocalizerSettings) -> None:
        """Apply other settings from now on."""
        self.settings = settings

    def force(self) -> None:
        """Use the next image even if the robot stands still."""
        self._forced = True

    def restart(self, last_used: OdometryReading | None = None) -> None:
        """Use the next image in any case, if it is later than the last image."""
        self.last_used, self.settled, self._forced = last_used, False, True

    def forget_stamps(self) -> None:
        """Take the next image whatever its stamp: time has jumped back."""
        self._newest_ns = None

    def seen(self, stamp_ns: int) -> None:
        """Record an image that is no reason for refusal."""
        self._newest_ns = stamp_ns

    def used(self, now: OdometryReading, settled: bool, view: Image | None) -> None:
        """Record that the image with this odometry was used, and whether what is known settled.

        `view` is the tiny image, None where there is none to compare with.
        """
        self.last_used, self.settled, self._forced = now, settled, False
        self._view, self._check = view, ViewCheck(now.stamp_ns, False)

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

    def needs(self, now: OdometryReading, view: Callable[[], Image | None]) -> bool:
        """Tell whether an image is due: the robot has moved enough, and waited if it stands.

        While it stands, `view` is asked for the tiny image some times a second: one that shows
        another view than the last used image is due at once, since wheels do not notice that
        somebody carries the robot away.
        """
        then, settings = self.last_used, self.settings
        if then is None or self._forced:
            return True
        if self.rests(now):
            standing_s = (now.stamp_ns - then.stamp_ns) * 1e-9
            if self._shows_another_view(now.stamp_ns, view):
                return True
            if standing_s < settings.standing_update_s:
                return False
        step = relative(then.pose, now.pose)
        moved = math.hypot(step[0], step[1]) >= settings.update_min_d
        return bool(moved or abs(step[2]) >= settings.update_min_a)

    def _shows_another_view(self, stamp_ns: int, view: Callable[[], Image | None]) -> bool:
        """Tell whether the image is looked at and shows another view than the last used image."""
        if self._view is None:
            return False
        next_ns = 2 * stamp_ns - (stamp_ns if self._newest_ns is None else self._newest_ns)
        if next_ns - self._check.stamp_ns > VIEW_PERIOD_S * 1e9:
            seen = view()
            changed = seen is not None and show_different_views(self._view, seen)
            self._check = ViewCheck(stamp_ns, changed)
        # The same image may be asked for twice, before and after it is described.
        return self._check.stamp_ns == stamp_ns and self._check.changed

    def rests(self, now: OdometryReading) -> bool:
        """Tell whether the robot stands where the last used image had nothing new to tell."""
        return self.settled and self.stood(now)

    def stood(self, now: OdometryReading) -> bool:
        """Tell whether the robot is where the last image was used."""
        if self.last_used is None:
            return False
        # Not the path length: odometry that trembles in one place adds up, and the view stays.
        x, y, turn = now.pose - self.last_used.pose
        turned = abs(math.remainder(turn, math.tau))
        return math.hypot(x, y) < STANDING_M and turned < STANDING_RAD

    def motion(self, now: OdometryReading) -> tuple[Array | None, bool]:
        """Return the motion (3,) since the last used image or None, and whether odometry jumped."""
        then = self.last_used
        if then is None:
            return None, False
        motion = relative(then.pose, now.pose)
        seconds = max((now.stamp_ns - then.stamp_ns) * 1e-9, 0.1)
        too_far = math.hypot(motion[0], motion[1]) > self.settings.max_speed * seconds
        too_much = abs(motion[2]) > self.settings.max_turn_rate * seconds
        return (None, True) if too_far or too_much else (motion, False)
