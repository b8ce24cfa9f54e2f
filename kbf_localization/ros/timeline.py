"""Stamps of messages: stray stamps, clocks that jump or disagree, missing images."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

import numpy as np

Item = TypeVar("Item")


@dataclass(frozen=True)
class Admitted(Generic[Item]):
    """The items to use now, oldest first; `jumped_back` when time restarts with the first.

    `strays` items turned out to have wrong stamps and are dropped.
    """

    items: list[tuple[int, Item]]
    jumped_back: bool = False
    strays: int = 0


class Timeline(Generic[Item]):
    """Tell stray stamps of one topic from jumps of its clock.

    A stamp within `tolerance_ns` of the newest is used at once (whether it is late is the
    localizer's business). A stamp further off is held back: when `confirmations` of them follow
    each other in order, the clock has jumped, or the topic was silent, and all of them are used;
    when the next is normal again, those held back were stray and are dropped and counted. So a
    single message from the year 2100 does not make all later messages look old.
    """

    def __init__(self, tolerance_ns: int = 500_000_000, confirmations: int = 4) -> None:
        self.tolerance_ns, self.confirmations = tolerance_ns, confirmations
        self._newest_ns: int | None = None
        self._held: list[tuple[int, Item]] = []

    def admit(self, stamp_ns: int, item: Item) -> Admitted[Item]:
        """Return what to use, now that this item has arrived."""
        if self._newest_ns is None or abs(stamp_ns - self._newest_ns) <= self.tolerance_ns:
            strays = self._drop_held()
            self._newest_ns = max(stamp_ns, self._newest_ns or stamp_ns)
            return Admitted([(stamp_ns, item)], strays=strays)
        if self._held and stamp_ns == self._held[-1][0]:
            return Admitted([], strays=1)
        strays = 0
        if self._held and not 0 < stamp_ns - self._held[-1][0] <= 10 * self.tolerance_ns:
            strays = self._drop_held()
        self._held.append((stamp_ns, item))
        if len(self._held) < self.confirmations:
            return Admitted([], strays=strays)
        items, self._held = self._held, []
        jumped_back = items[0][0] < self._newest_ns
        self._newest_ns = items[-1][0]
        return Admitted(items, jumped_back, strays)

    def reset(self) -> int:
        """Accept any next stamp; return how many items that were held back are dropped."""
        self._newest_ns = None
        return self._drop_held()

    def _drop_held(self) -> int:
        strays = len(self._held)
        self._held.clear()
        return strays


class StampOffset:
    """The offset of one topic's stamps from another's that arrive at the same time."""

    def __init__(self, size: int = 300) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=size)

    def add(self, arrived_s: float, offset_s: float) -> None:
        """Add a message: its arrival by a monotonic clock, its stamp minus the other's newest."""
        self._points.append((arrived_s, offset_s))

    def clear(self) -> None:
        self._points.clear()

    def seconds(self) -> float:
        """Return the median offset; NaN before the first message."""
        offsets = [offset for _, offset in list(self._points)]
        return float(np.median(offsets)) if offsets else math.nan

    def drift_ms_per_minute(self) -> float:
        """Return the offset's slope by least squares; NaN before 5 s are seen."""
        points = np.array(list(self._points)).reshape(-1, 2)
        if len(points) < 10 or np.ptp(points[:, 0]) < 5.0:
            return math.nan
        return float(np.polyfit(points[:, 0] - points[0, 0], points[:, 1], 1)[0]) * 60e3


RATE_SLACK = 0.1
"""Fraction of the period by which an image may come early: cameras' stamps tremble."""


class RateLimit:
    """Chooses which images to use so that they come at a rate at most, on average."""

    def __init__(self) -> None:
        self._due_ns: int | None = None

    def admits(self, stamp_ns: int, rate_hz: float) -> bool:
        """Return whether to use the image of this stamp; every image where the rate is 0."""
        if rate_hz <= 0.0:
            self._due_ns = None
            return True
        period_ns, due_ns = round(1e9 / rate_hz), self._due_ns
        # Neither a gap nor a clock that has jumped leaves images owing.
        if due_ns is None or abs(stamp_ns - due_ns) > period_ns:
            due_ns = stamp_ns
        if stamp_ns < due_ns - round(RATE_SLACK * period_ns):
            return False
        self._due_ns = due_ns + period_ns
        return True


MAX_GAP_S = 2.0
"""A camera that is silent for longer was switched off: no image is missing."""
LONG_INTERVAL_PERIODS, RATE_CHANGE_IMAGES, RATE_CHANGE_SPREAD = 1.25, 8, 1.4
"""So many intervals in a row, all longer than so many periods and no more than so different from
each other, are a slower camera: images that are lost at random leave intervals of several lengths.
"""


class CameraRhythm:
    """Counts missing images by the rhythm of those that arrive."""

    def __init__(self, size: int = 60) -> None:
        self._intervals: deque[float] = deque(maxlen=size)
        self._long: deque[tuple[float, int]] = deque(maxlen=RATE_CHANGE_IMAGES)
        self._last_ns: int | None = None
        self._period: float | None = None
        self._seen = 0

    def missing(self, stamp_ns: int) -> int:
        """Return how many images are missing between the previous image and this one.

        Negative where those counted before were not missing: the camera has become slower.
        """
        last, self._last_ns = self._last_ns, stamp_ns
        interval = 0.0 if last is None else (stamp_ns - last) * 1e-9
        if not 0.0 < interval <= MAX_GAP_S:
            return 0
        self._intervals.append(interval)
        self._seen += 1
        if self._seen % 10 == 0 and not self._long:
            self._period = self._find_period()
        if self._period is None:
            return 0
        missing = max(round(interval / self._period) - 1, 0)
        if interval <= LONG_INTERVAL_PERIODS * self._period:
            self._long.clear()
            return missing
        self._long.append((interval, missing))
        return self._restart() if self._is_slower() else missing

    def _is_slower(self) -> bool:
        lengths = [interval for interval, _ in self._long]
        return len(lengths) == RATE_CHANGE_IMAGES and max(lengths) <= RATE_CHANGE_SPREAD * min(
            lengths
        )

    def _restart(self) -> int:
        """Take the recent intervals for the period; return the correction of the count."""
        counted = sum(missing for _, missing in list(self._long)[:-1])
        self._intervals.clear()
        self._intervals.extend(interval for interval, _ in self._long)
        self._long.clear()
        self._period = median(self._intervals)
        return -counted

    def _find_period(self) -> float:
        """Return the camera's period in seconds.

        Many intervals may span several periods. A short interval tells how many each has.
        """
        short = sorted(self._intervals)[len(self._intervals) // 10]
        return median(interval / max(round(interval / short), 1) for interval in self._intervals)
