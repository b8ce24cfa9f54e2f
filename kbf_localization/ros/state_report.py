"""The state that operators see, with its reasons, and whether map→odom can be trusted."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kbf_localization.events import Event
from kbf_localization.geometry import position_sigma
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.ros.diagnostics import STATE_TEXTS, SanitizingLogger


class StateReport:
    """The localizer's state by the node's parameters `values`; logs every change with its reason.

    `odometry_age_s` returns the age of the newest odometry in seconds, NaN before the first.
    """

    def __init__(
        self,
        localizer: Localizer,
        values: Mapping[str, Any],
        log: SanitizingLogger,
        odometry_age_s: Callable[[], float],
    ) -> None:
        self._localizer = localizer
        self._values, self._log, self._odometry_age_s = values, log, odometry_age_s
        self._started_at = self._since = time.monotonic()
        self._logged = State.UNINITIALIZED
        self._lock = threading.Lock()
        self._cached_sigma: tuple[int | None, Localization | None, float] = (None, None, math.nan)

    def apply(self, values: Mapping[str, Any]) -> None:
        """Apply the live parameters."""
        self._values = values

    def restart(self) -> None:
        """Count the seconds until the pose is found from now on."""
        self._started_at = time.monotonic()

    @property
    def since_s(self) -> float:
        """Seconds for which the logged state has lasted."""
        return time.monotonic() - self._since

    @property
    def state(self) -> State:
        """The localizer's state; `DEGRADED` also while map→odom is withheld from a tracked pose."""
        state = self._localizer.state
        if state is State.TRACKING and (self.transform_veto() or self._silent_odometry()):
            return State.DEGRADED
        return state

    def _silent_odometry(self) -> str | None:
        """Return since when no odometry comes: without any the transform is not sent."""
        age_s = self._odometry_age_s()
        return (
            f"no odometry for {age_s:.0f} s" if age_s > self._values["watchdog_timeout"] else None
        )

    def log_change(self) -> None:
        """Log the state with its reason where it has changed since the last call."""
        with self._lock:
            before, state = self._logged, self.state
            if state is before:
                return
            since_s = self.since_s
            self._logged, self._since = state, time.monotonic()
        line = f"{state.value}: {self._reason(before, state, since_s)}"
        if state in (State.DEGRADED, State.LOST):
            self._log.warning(line)
        else:
            self._log.info(line)

    def _reason(self, before: State, state: State, since_s: float) -> str:
        """Return why `before`, which lasted `since_s` seconds, has become `state`."""
        if state is State.DEGRADED:
            return self._degraded_reason()
        if state is State.TRACKING:
            after_start_s = time.monotonic() - self._started_at
            reason = {
                State.DEGRADED: f"images confirm the pose again after {since_s:.1f} s",
                State.LOST: f"found again after {since_s:.1f} s",
            }.get(before, f"{after_start_s:.1f} s after start")
            return f"{reason}, ± {self.sigma_m():.2f} m{self._inliers_text()}"
        if state is State.LOCALIZING and before is not State.UNINITIALIZED:
            return f"± {self.sigma_m():.2f} m is more than max_tracking_sigma"
        return STATE_TEXTS[state]

    def _inliers_text(self) -> str:
        last = self._localizer.last
        fix = None if last is None else last.estimate.landmark_fix
        return "" if fix is None else f", {fix.inliers} inliers"

    def _degraded_reason(self) -> str:
        if self._localizer.state is State.DEGRADED:
            gap, image_gap_s = self._localizer.unconfirmed, self._localizer.dead_reckoned_s
            if gap is not None and image_gap_s is not None:
                # Every image ends a gap without images, whether it fits or not.
                why = "no usable image" if image_gap_s >= 0.5 * gap.seconds else self._misfit()
                return f"{why} for {gap.seconds:.1f} s and {gap.metres:.1f} m"
        return self.transform_veto() or self._silent_odometry() or "map→odom was withheld"

    def _misfit(self) -> str:
        """Return what is wrong with the images that arrive."""
        last = self._localizer.last
        events = () if last is None else last.estimate.events
        if Event.FROZEN_IMAGE in events:
            return "the camera repeats one image"
        if Event.UNRECOGNIZED_IMAGE in events:
            return "images are not recognized"
        return "the map shows nothing of what the camera sees"

    def sigma_m(self) -> float:
        """Return the standard deviation of the newest position in metres; NaN before a pose.

        Computed once for each odometry reading and image, for a status asks for it repeatedly.
        """
        localizer = self._localizer
        newest_ns, last = localizer.newest_odometry_ns, localizer.last
        cached_ns, cached_last, sigma_m = self._cached_sigma
        if last is None or cached_last is not last or cached_ns != newest_ns:
            known = localizer.pose_at()
            sigma_m = math.nan if known is None else position_sigma(known[1])
            self._cached_sigma = newest_ns, last, sigma_m
        return sigma_m

    @property
    def text(self) -> str:
        """The state with what an operator must know about it."""
        state = self.state
        if state is State.DEGRADED:
            return f"degraded: {self._degraded_reason()}"
        return STATE_TEXTS[state]

    def transform_veto(self) -> str | None:
        """Return why map→odom must not be sent now; None while it can be trusted."""
        localizer, values = self._localizer, self._values
        given = localizer.rests_on_given_pose
        if localizer.state not in (State.TRACKING, State.DEGRADED) and not given:
            return f"the state is {localizer.state.value}"
        sigma, seconds = self.sigma_m(), localizer.dead_reckoned_s
        if math.isnan(sigma) or seconds is None:
            return "there is no odometry"
        if sigma > values["dead_reckoning_max_sigma"] and not given:
            return (
                f"odometry alone has carried the pose to a standard deviation of {sigma:.2f} m, "
                "more than dead_reckoning_max_sigma"
            )
        if seconds > values["dead_reckoning_max_seconds"]:
            return f"no image for {seconds:.1f} s, more than dead_reckoning_max_seconds"
        return None
