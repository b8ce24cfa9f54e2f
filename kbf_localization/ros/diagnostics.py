"""The node's diagnostics: status messages, health of the inputs, rates, latencies, the log."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rclpy.impl.rcutils_logger import RcutilsLogger
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

from kbf_localization.events import Event
from kbf_localization.localization import State
from kbf_localization.ros.rclpy_internals import hide_from_log_calls
from kbf_localization.ros.timeline import CameraRhythm, StampOffset
from kbf_localization.sanitize import shown_in_line

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


class ImageHealth:
    """Monitors whether arriving images can be used, and their stamps."""

    def __init__(self, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._counts, self._clock = counts, clock
        self._offset, self._rhythm = StampOffset(), CameraRhythm()
        self._arrived = self._correction_ns = 0
        self._measured_at, self._offset_s, self._drift = -math.inf, math.nan, math.nan
        self.used()

    def arrived(self, stamp_ns: int, correction_ns: int, newest_odometry_ns: int | None) -> None:
        """Record an image's arrival while this is the newest odometry.

        `correction_ns` is added to its stamp.
        """
        self._arrived += 1
        self._counts[Event.IMAGES_MISSING] += self._rhythm.missing(stamp_ns)
        if correction_ns != self._correction_ns:
            self._correction_ns = correction_ns
            self.time_jumped()
        if newest_odometry_ns is not None:
            offset_ns = stamp_ns + correction_ns - newest_odometry_ns
            self._offset.add(self._clock(), offset_ns * 1e-9)

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
        missing = self._counts[Event.IMAGES_MISSING]
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


MAX_LINE_LENGTH = 2000
"""Characters of a line in the log: a frame's name may be as long as a message."""


class SanitizingLogger(RcutilsLogger):
    """Log as rclpy does, with control characters escaped.

    Names and errors come from files and from the network.
    """

    def log(self, message: object, *arguments: Any, **keywords: Any) -> bool:
        text = str(message)
        if len(text) > MAX_LINE_LENGTH:
            text = f"{text[:MAX_LINE_LENGTH]}... ({len(text)} characters)"
        return bool(super().log(shown_in_line(text), *arguments, **keywords))


# rclpy identifies calls by their place, which is not in this file: nothing else logs here.
hide_from_log_calls(__file__)
