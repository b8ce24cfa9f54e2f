"""What operators see of the node: its state with the reasons, health of the inputs, rates."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.geometry import position_sigma
from kbf_localization.localization import Localization, Localizer, State
from kbf_localization.ros.timeline import CameraRhythm, StampOffset
from kbf_localization.sanitize import SanitizingLogger

_UNKNOWN = np.full(4, np.nan)
_MAX_OFFSET_S = 0.3
"""Larger offsets between the stamps of images and odometry cause a warning."""
MAX_TIME_CORRECTION_S = 60.0
"""Limit of camera_time_offset."""
_MAX_MISSING_FRACTION, _MIN_MISSING_IMAGES = 0.1, 30
"""More missing images than this point at the transport."""
_LEVELS = {
    State.UNINITIALIZED: DiagnosticStatus.WARN,
    State.LOCALIZING: DiagnosticStatus.WARN,
    State.TRACKING: DiagnosticStatus.OK,
    State.DEGRADED: DiagnosticStatus.WARN,
    State.LOST: DiagnosticStatus.ERROR,
}
STATE_TEXTS = {
    State.UNINITIALIZED: "uninitialized: waits for images and odometry",
    State.LOCALIZING: "localizing: the place is not certain yet",
    State.TRACKING: "tracking",
    State.DEGRADED: "degraded: odometry alone carries the pose",
    State.LOST: "lost: the images do not fit the map where the robot should be",
}


def status(
    name: str,
    hardware_id: str,
    state: State,
    text: str,
    problems: Iterable[str],
    values: Mapping[str, object],
) -> DiagnosticStatus:
    """Make the status message: the state and its `text`, problems with the inputs, metrics."""
    level, lines = _LEVELS[state], [text, *problems]
    if len(lines) > 1 and level == DiagnosticStatus.OK:
        level = DiagnosticStatus.WARN
    return DiagnosticStatus(
        level=level,
        name=name,
        hardware_id=hardware_id,
        message="; ".join(lines),
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )


def inactive(name: str, hardware_id: str, label: str) -> DiagnosticStatus:
    """Make the status message of a node that is not active."""
    return DiagnosticStatus(
        level=DiagnosticStatus.STALE, name=name, hardware_id=hardware_id, message=label
    )


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
        self._cached: tuple[int | None, Localization | None, Array] = (None, None, _UNKNOWN)

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
        return STATE_TEXTS[state].removeprefix(f"{state.value}: ")

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
        if Event.LANDMARKS_CONTRADICT in events:
            return "landmarks measure another pose"
        if Event.UNRECOGNIZED_IMAGE in events:
            return "images are not recognized"
        return "the map shows nothing of what the camera sees"

    def sigma_m(self) -> float:
        """Return the standard deviation of the newest position in metres; NaN before a pose."""
        return float(self.newest()[3])

    def newest(self) -> Array:
        """Return x, y, heading and σ of the pose at the newest odometry (4,); NaN before a pose.

        Computed once for each odometry reading and image, for a status asks for it repeatedly.
        """
        localizer = self._localizer
        newest_ns, last = localizer.newest_odometry_ns, localizer.last
        cached_ns, cached_last, newest = self._cached
        if last is None or cached_last is not last or cached_ns != newest_ns:
            known = localizer.pose_at()
            newest = _UNKNOWN if known is None else np.append(known[0], position_sigma(known[1]))
            self._cached = newest_ns, last, newest
        return newest

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


class ImageHealth:
    """Monitors whether arriving images can be used, and their stamps; only reads the `counts`."""

    def __init__(
        self, counts: Mapping[str, int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._counts, self._clock = counts, clock
        self._offset, self._rhythm = StampOffset(), CameraRhythm()
        self._arrived = self._correction_ns = 0
        self._measured_at, self._offset_s, self._drift = -math.inf, math.nan, math.nan
        self.used()

    def arrived(self, stamp_ns: int, correction_ns: int, newest_odometry_ns: int | None) -> int:
        """Record an image's arrival while this is the newest odometry.

        `correction_ns` is added to its stamp. Returns how many images are missing before it.
        """
        self._arrived += 1
        if correction_ns != self._correction_ns:
            self._correction_ns = correction_ns
            self.time_jumped()
        if newest_odometry_ns is not None:
            offset_ns = stamp_ns + correction_ns - newest_odometry_ns
            self._offset.add(self._clock(), offset_ns * 1e-9)
        return self._rhythm.missing(stamp_ns)

    def used(self) -> None:
        """Record that an image could be used, or that the node begins to listen."""
        self._used_at, self._counts_then = self._clock(), dict(self._counts)

    def time_jumped(self) -> None:
        self._offset.clear()
        self._measured_at = -math.inf

    def metrics(self) -> dict[str, float]:
        """Return the offset of image stamps from the odometry's, and its drift."""
        self._measure()
        return {"image_offset_s": self._offset_s, "image_offset_drift_ms_per_min": self._drift}

    def _measure(self) -> None:
        """Measure at most twice a second: a status is published for every image."""
        if self._clock() - self._measured_at >= 0.5:
            self._measured_at = self._clock()
            self._offset_s = self._offset.seconds()
            self._drift = self._offset.drift_ms_per_minute()

    def diagnostics(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return a line for each kind of problem while odometry and images arrive."""
        found = {}
        self._measure()
        offset, unused = self._offset_s, self._clock() - self._used_at
        if unused > values["watchdog_timeout"]:
            why = "; ".join(self._reasons(values["camera_time_offset"])) or "none is in time"
            found["refused"] = f"no image could be used for {unused:.0f} s: {why}"
        elif abs(offset) > _MAX_OFFSET_S:
            found["offset"] = (
                f"images are {ahead(offset)} the odometry that arrives with them: a slow camera, "
                "or clocks that disagree, which 'kbf check time' tells"
            )
        missing = self._counts.get(Event.IMAGES_MISSING, 0)
        many = missing > max(_MIN_MISSING_IMAGES, _MAX_MISSING_FRACTION * self._arrived)
        if many and values["image_transport"] == "raw":
            found["missing"] = (
                f"{missing} raw images are missing beside {self._arrived} that came: give camera "
                "and node the Fast DDS profile config/fastdds_large_images.xml, or use "
                "image_transport compressed"
            )
        return found

    def _reasons(self, correction_s: float) -> list[str]:
        """Return why the images since the last usable one were refused."""
        since = Counter(dict(self._counts))
        since.subtract(self._counts_then)
        reasons = sorted((name, count) for name, count in since.items() if count > 0)
        lines = [f"{name} {count} times" for name, count in reasons if name.startswith("image_")]
        offset = self._offset_s
        if abs(offset) > _MAX_OFFSET_S:
            line = f"they are {ahead(offset)} the odometry: synchronize the clocks"
            if abs(correction_s - offset) <= MAX_TIME_CORRECTION_S:
                line += f", or set camera_time_offset to {correction_s - offset:.2f}"
            lines.append(line)
        return lines


def ahead(offset_s: float) -> str:
    return f"stamped {abs(offset_s):.2f} s {'ahead of' if offset_s > 0.0 else 'behind'}"


class TopicWatch:
    """The rate of one topic's messages, and why none arrive."""

    def __init__(
        self,
        node: Node,
        topic: str,
        qos: QoSProfile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._topic = node.resolve_topic_name(topic)
        self._qos = qos
        self._clock = clock
        self._rate = Rate(clock=clock)
        self._last = clock()
        self._arrived = False
        self._sequence: int | None = None
        self.missing = 0
        """Messages that were lost, where the middleware numbers them."""

    def arrived(self, sequence: int | None = None) -> None:
        """Record a message, with the publisher's number of it where the middleware has one."""
        self._last = self._clock()
        self._arrived = True
        self._rate.happened()
        before, self._sequence = self._sequence, sequence
        if before is None or sequence is None or sequence <= before + 1:
            return
        # Each publisher counts by itself, and a message does not name its publisher.
        if self._node.count_publishers(self._topic) == 1:
            self.missing += sequence - before - 1

    @property
    def age(self) -> float:
        """Seconds since the last message; NaN before the first."""
        return self._clock() - self._last if self._arrived else math.nan

    def hertz(self) -> float:
        """Return messages per second over the last seconds."""
        return self._rate.hertz()

    def explain(self, timeout: float) -> str | None:
        """Return why no message came for `timeout` seconds; None while messages arrive."""
        silent = self._clock() - self._last
        if silent < timeout:
            return None
        silence = f"no message on {self._topic} for {silent:.0f} s"
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        if not publishers:
            return f"{silence}: nobody publishes it; remap it, or start what publishes it"
        for publisher in publishers:
            compatibility, reason = qos_check_compatible(publisher.qos_profile, self._qos)
            if compatibility == QoSCompatibility.ERROR:
                offered = publisher.qos_profile
                return (
                    f"{silence}: the publisher {publisher.node_name} offers reliability "
                    f"{offered.reliability.name}, durability {offered.durability.name}, which is "
                    f"incompatible ({reason.strip()}); set odom_reliability or image_reliability "
                    "to best_effort"
                )
        return f"{silence}: {publishers[0].node_name} publishes it but sends nothing"


class Rate:
    """The rate of an event over the last `window` seconds."""

    def __init__(self, window: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._lock = threading.Lock()
        self._count = 0
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def happened(self) -> None:
        with self._lock:
            self._count += 1

    def hertz(self) -> float:
        """Return the rate since about `window` seconds ago; call it regularly."""
        now = self._clock()
        with self._lock:
            while len(self._marks) > 1 and now - self._marks[1][0] >= self._window:
                self._marks.popleft()
            since, count = self._marks[0]
            self._marks.append((now, self._count))
            return (self._count - count) / max(now - since, 1e-3)


class Latency:
    """Percentiles of the last `size` durations, computed at most twice a second."""

    def __init__(self, size: int = 500, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: deque[float] = deque(maxlen=size)
        self._measured_at, self._percentiles = -math.inf, (math.nan, math.nan)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def percentiles_ms(self) -> tuple[float, float]:
        """Return the 50th and the 99th percentile in milliseconds; NaN before the first."""
        if self._seconds and self._clock() - self._measured_at >= 0.5:
            self._measured_at = self._clock()
            p50, p99 = np.percentile(list(self._seconds), (50, 99)) * 1e3
            self._percentiles = float(p50), float(p99)
        return self._percentiles
