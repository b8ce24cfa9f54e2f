"""The scale of the motion noise, which follows how odometry does on the drive."""

from __future__ import annotations

import numpy as np

from kbf_localization.training_map.learned import novelty

MOST_SURPRISE = 4.0
"""Of a mean square that should be one: what is farther off is an outlier, and counts no more."""

MOST_INFLATION, BROKEN_ODOMETRY = 100.0, 16.0
"""Bound of the motion noise's adaptation to the drive, ten times the odometry's usual error; and
from where on, four times that error, odometry is broken and no pose is to be relied on."""


class OdometryTrust:
    """By what the motion noise is multiplied: `inflation`, one where odometry is as it was."""

    def __init__(self, correlation: float) -> None:
        """`correlation` is the travel over which measured poses err alike."""
        self._correlation = correlation
        self.inflation = 1.0

    @property
    def broken(self) -> bool:
        return self.inflation > BROKEN_ODOMETRY

    def follow(self, innovation: float, lasting_error: float, travel: float) -> None:
        """Follow what the published hypothesis meets.

        Both mean squares are one where the odometry is as it was. Wheels that err always the same
        way do not show in the innovation, but the lasting error takes their error upon itself.
        """
        new = novelty(travel, self._correlation)
        surprise = new * (min(max(innovation, lasting_error), MOST_SURPRISE) - 1.0)
        self._scale(float(np.exp(surprise)))

    def blame(self) -> None:
        """A confirmed pose gave way, and nobody carried the robot: odometry led it astray."""
        self._scale(MOST_SURPRISE)

    def _scale(self, factor: float) -> None:
        self.inflation = float(np.clip(factor * self.inflation, 1.0, MOST_INFLATION))
