"""What a listener of tf knows: tf2's buffer for one transform, by the rules of its TimeCache."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kbf_localization.geometry import wrap_angle
from kbf_localization.ros.conversions import heading, nanoseconds

STORAGE_NS = 10_000_000_000


class ExtrapolationError(LookupError):
    """The time asked for is not between the stored transforms."""


class TransformBuffer:
    """Planar transforms by stamp, newest first; one of a stamp that is there goes before it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stored: list[tuple[int, np.ndarray]] = []

    def insert(self, transform: Any) -> None:
        stamp_ns = nanoseconds(transform.header.stamp)
        moved, turned = transform.transform.translation, transform.transform.rotation
        planar = np.array([moved.x, moved.y, heading(turned.x, turned.y, turned.z, turned.w)])
        with self._lock:
            newest = self.newest_ns or stamp_ns
            if stamp_ns < newest - STORAGE_NS:
                return
            self._stored = [item for item in self._stored if item[0] >= newest - STORAGE_NS]
            older = (at for at, item in enumerate(self._stored) if item[0] <= stamp_ns)
            self._stored.insert(next(older, len(self._stored)), (stamp_ns, planar))

    def clear(self) -> None:
        with self._lock:
            self._stored = []

    @property
    def newest_ns(self) -> int | None:
        """The stamp up to which it can be looked up."""
        return self._stored[0][0] if self._stored else None

    def lookup(self, stamp_ns: int) -> np.ndarray:
        """The transform (3,) at a time, linear between its neighbours; ExtrapolationError."""
        with self._lock:
            stored = list(self._stored)
        if not stored or stamp_ns > stored[0][0] or stamp_ns < stored[-1][0]:
            raise ExtrapolationError(stamp_ns)
        at = next(index for index, item in enumerate(stored) if item[0] <= stamp_ns)
        older_ns, older = stored[at]
        if older_ns == stamp_ns:
            return older
        newer_ns, newer = stored[at - 1]
        step = newer - older
        step[2] = wrap_angle(step[2])
        return older + (stamp_ns - older_ns) / (newer_ns - older_ns) * step

    def knows(self, stamp_ns: int) -> bool:
        """Whether it can be looked up at this time."""
        try:
            self.lookup(stamp_ns)
        except ExtrapolationError:
            return False
        return True
