"""What the node counts and measures, and its state as a diagnostic message."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from kbf_localization.localization import State


class Event(str, Enum):
    """What the node itself refuses, drops or fails at; counted beside the localizer's reasons."""

    ODOMETRY_WRONG_FRAME = "odometry_wrong_frame"
    ODOMETRY_INVALID = "odometry_invalid"
    ODOMETRY_STRAY = "odometry_stray"
    IMAGE_INVALID = "image_invalid"
    IMAGE_DROPPED = "image_dropped"
    IMAGE_WITHOUT_ODOMETRY = "image_without_odometry"
    INITIAL_POSE_WRONG_FRAME = "initial_pose_wrong_frame"
    INITIAL_POSE_INVALID = "initial_pose_invalid"
    POSE_NOT_SAVED = "pose_not_saved"
    UNEXPECTED_ERROR = "unexpected_error"


_LEVELS = {
    State.UNINITIALIZED: DiagnosticStatus.WARN,
    State.LOCALIZING: DiagnosticStatus.WARN,
    State.TRACKING: DiagnosticStatus.OK,
    State.LOST: DiagnosticStatus.ERROR,
}
_MESSAGES = {
    State.UNINITIALIZED: "uninitialized: waits for images and odometry",
    State.LOCALIZING: "localizing: the place is not certain yet",
    State.TRACKING: "tracking",
    State.LOST: "lost: the images do not fit the map where the robot should be",
}


def status(
    name: str,
    hardware_id: str,
    state: State,
    complaints: tuple[str, ...],
    values: Mapping[str, object],
) -> DiagnosticStatus:
    """The state, what is wrong with the topics, and figures."""
    level = _LEVELS[state]
    if complaints and level == DiagnosticStatus.OK:
        level = DiagnosticStatus.WARN
    return DiagnosticStatus(
        level=level,
        name=name,
        hardware_id=hardware_id,
        message="; ".join((_MESSAGES[state], *complaints)),
        values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()],
    )


def inactive(name: str, hardware_id: str, label: str) -> DiagnosticStatus:
    """The status of a node that does not run."""
    return DiagnosticStatus(
        level=DiagnosticStatus.STALE, name=name, hardware_id=hardware_id, message=label
    )


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Rate:
    """How often something happens, over the last `window` seconds."""

    def __init__(self, window: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._lock = threading.Lock()
        self._count = 0
        self._marks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def happened(self) -> None:
        with self._lock:
            self._count += 1

    def hertz(self) -> float:
        """The rate since about `window` seconds ago; call it regularly."""
        now = self._clock()
        with self._lock:
            while len(self._marks) > 1 and now - self._marks[1][0] >= self._window:
                self._marks.popleft()
            since, count = self._marks[0]
            self._marks.append((now, self._count))
            return (self._count - count) / max(now - since, 1e-3)


class Latency:
    """Percentiles of the last `size` durations."""

    def __init__(self, size: int = 500) -> None:
        self._seconds: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def percentile_ms(self, percent: float) -> float:
        """Milliseconds; NaN before the first."""
        values = list(self._seconds)
        return float(np.percentile(values, percent)) * 1e3 if values else float("nan")
