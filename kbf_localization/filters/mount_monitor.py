"""Monitors whether the camera still looks where it did when the map was made.

Landmarks measure the heading of the camera; the wheels drive along that of the base. A camera that
is turned on its mount by ψ makes all measured headings wrong by ψ, so that the robot seems to move
askew: its displacements, in the measured frame, are turned by −ψ against the odometry's.
"""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose, relative
from kbf_localization.landmarks.pose_solver import LandmarkFix

MIN_STEP_M = 0.15
"""Displacements are compared over at least so much: shorter ones are errors of the fixes alone."""

MAX_STEP_M = 1.0
"""Over longer gaps the odometry's own heading errs."""

MEMORY_M = 3.0
"""Path over which displacements are averaged."""

MIN_PATH_M = 1.0
"""Path from which on something is said."""

TURNED_RAD = float(np.radians(6.0))
"""Well beyond the error of a calibration, and of odometry over a metre."""

CERTAIN_SIGMAS = 3.0


class MountMonitor:
    """Compares displacements by landmarks with those by the wheels."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._last: LandmarkFix | None = None
        self._moved = np.zeros(3)
        self._along = self._across = self._variance = self._path = 0.0

    @property
    def yaw(self) -> float:
        """ψ in radians, to the left; 0 as long as nothing is known."""
        return float(-np.arctan2(self._across, self._along)) if self._path > 0.0 else 0.0

    @property
    def turned(self) -> bool:
        """Tell whether the camera is turned on its mount, beyond doubt.

        Displacements against each other's direction are those of reversed wheels.
        """
        if self._path < MIN_PATH_M or self._along <= 0.0:
            return False
        sigma = float(np.sqrt(self._variance)) / self._along
        return abs(self.yaw) > TURNED_RAD + CERTAIN_SIGMAS * sigma

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
            self._compare(self._last, fix, distance)
        self._last, self._moved = fix, np.zeros(3)

    def _compare(self, last: LandmarkFix, fix: LandmarkFix, distance: float) -> None:
        seen = relative(last.pose, fix.pose)
        kept = float(np.exp(-distance / MEMORY_M))
        along, across = self._moved[:2] @ seen[:2], self._moved[0] * seen[1]
        across -= self._moved[1] * seen[0]
        error = 0.5 * float(np.trace((last.covariance + fix.covariance)[:2, :2]))
        # The last fix's heading turns its whole displacement.
        error += distance**2 * float(last.covariance[2, 2])
        self._along = kept * self._along + float(along)
        self._across = kept * self._across + float(across)
        self._variance = kept**2 * self._variance + distance**2 * error
        self._path = kept * self._path + distance
