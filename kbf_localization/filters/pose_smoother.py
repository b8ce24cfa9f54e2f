"""Follows the belief's mode along the odometry, so that one image does not move the pose much."""

from __future__ import annotations

import numpy as np

from kbf_localization.filters.base import Array
from kbf_localization.geometry import compose, wrap_angle

PATIENCE = 6.0
"""Updates on end, each counted by its trust, in which the mode may be elsewhere before the pose
goes there."""

GATE_WIDTHS = 3.0
"""Kernel widths from the pose within which the mode is the same place."""


class PoseSmoother:
    """The estimate moved on by odometry, then drawn towards the mode's mean by a share `gain`.

    Images that follow each other err alike, and the map's poses are decimetres apart, while
    odometry is good to centimetres over seconds. A gain of 1 is no smoothing. `widths` (2,) are
    the kernel's in metres and on the circle of headings.
    """

    def __init__(self, gain: float, widths: Array) -> None:
        self._gain = gain
        self._gate = GATE_WIDTHS * np.asarray(widths, dtype=np.float64)
        self.reset()

    def reset(self) -> None:
        self._pose: Array | None = None
        self._age = 0
        self._elsewhere = 0.0

    def follow(self, motion: Array | None, mode: Array, trust: float = 1.0) -> Array:
        """The pose (3,) after `motion` (3,), given that the belief's mode is at `mode` (3,).

        `trust` in [0, 1] is how much this image tells.
        """
        if self._pose is None or self._gain >= 1.0 or motion is None:
            return self._start(mode)
        led_to = compose(self._pose, motion) if np.isfinite(motion).all() else self._pose
        offset = mode - led_to
        offset[2] = wrap_angle(offset[2])
        near = np.hypot(offset[0], offset[1]) <= self._gate[0] and abs(offset[2]) <= self._gate[1]
        if not near:
            self._elsewhere += trust
            if self._elsewhere >= min(PATIENCE, self._age):
                return self._start(mode)
            self._pose = led_to
            return np.array(led_to)
        self._elsewhere = 0.0
        self._age += 1
        # The first few modes are averaged: none of them is better than the others.
        share = max(trust * self._gain, 1.0 / (self._age + 1))
        drawn: Array = led_to + share * offset
        drawn[2] = wrap_angle(drawn[2])
        self._pose = drawn
        return np.array(drawn)

    def _start(self, mode: Array) -> Array:
        self._pose, self._age, self._elsewhere = np.array(mode), 0, 0.0
        return np.array(mode)
