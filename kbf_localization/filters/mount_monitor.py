"""Monitors whether the camera still looks where it did when the map was made.

Landmarks measure the heading of the camera; the wheels drive along that of the base. A camera that
is turned on its mount by ψ makes all measured headings wrong by ψ, so that the robot seems to move
askew: its displacements, in the measured frame, are turned by −ψ against the odometry's.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose, relative, wrap_angle
from kbf_localization.landmarks.pose_solver import LandmarkFix

MIN_STEP_M = 0.15
"""Displacements are compared over at least so much: shorter ones are errors of the fixes alone."""

MAX_STEP_M = 1.0
"""Over longer gaps the odometry's own heading errs."""

MAX_PAIRS, MIN_PAIRS = 20, 8
"""Displacements of which the median is taken, three metres, and from how many on something is said:
more than a metre."""

TURNED_RAD = float(np.radians(6.0))
"""Well beyond the error of a calibration, and of odometry over a metre."""

CERTAIN_SIGMAS, NORMAL_MAD = 3.0, 1.4826
"""Of the median; standard deviations of a normal distribution in its median absolute deviation."""


class MountMonitor:
    """Compares displacements by landmarks with those by the wheels."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: LandmarkFix | None = None
        self._moved = np.zeros(3)
        self._angles: deque[float] = deque(maxlen=MAX_PAIRS)

    @property
    def yaw(self) -> float:
        """ψ in radians, to the left; 0 as long as nothing is known."""
        return float(np.median(self._angles)) if self._angles else 0.0

    @property
    def turned(self) -> bool:
        """Tell whether the camera is turned on its mount, beyond doubt.

        The median stands against single wrong fixes. Displacements against each other's direction
        are those of reversed wheels.
        """
        if len(self._angles) < MIN_PAIRS:
            return False
        yaw = self.yaw
        deviation = NORMAL_MAD * float(np.median(np.abs(np.array(self._angles) - yaw)))
        doubt = CERTAIN_SIGMAS * deviation / np.sqrt(len(self._angles))
        return bool(TURNED_RAD + doubt < abs(yaw) < np.pi / 2.0)

    def update(self, motion: Array | None, fix: LandmarkFix | None) -> None:
        """Take the odometry's motion (3,) since the last image, and this image's fix if any."""
        if motion is None:
            self._last = None
            return
        self._moved = compose(self._moved, motion)
        distance = float(np.hypot(*self._moved[:2]))
        if distance > MAX_STEP_M:
            self._last = None
        if fix is None or (self._last is not None and distance < MIN_STEP_M):
            return
        if self._last is not None:
            seen = relative(self._last.pose, fix.pose)
            turn = np.arctan2(self._moved[1], self._moved[0]) - np.arctan2(seen[1], seen[0])
            self._angles.append(float(wrap_angle(turn)))
        self._last, self._moved = fix, np.zeros(3)
