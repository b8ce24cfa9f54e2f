"""Whether a picture continues the one before: the film is a map of one picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose
from kbf_localization.training_map.learned import Learned
from kbf_localization.training_map.observation import MapObservation

CUT_PRIOR = 1e-3
"""Chance that a picture does not continue the one before: a robot is carried away but rarely."""

NOTICED = 0.1
"""Probability from which on a cut is acted on: a few hundred examples never make it certain."""

REFERENCE_REACH = 0.3
"""In d₀ and φ₀: a new reference picture is taken before the old one is out of sight."""


@dataclass(frozen=True)
class Continuity:
    """`cut` is the probability that the picture does not continue the film.

    `first` says that there was no picture before, `frozen` that the camera repeats one picture.
    """

    cut: float
    first: bool = False
    frozen: bool = False


class Film:
    """Compares each picture with the last one and with a reference picture, by the odometry since.

    The last picture tells a sudden change best, the older reference one that comes by and by.
    """

    def __init__(self, learned: Learned) -> None:
        self._resemblance = learned.resemblance
        self._evidence = learned.film
        self.reset()

    def reset(self) -> None:
        self._reference: MapObservation | None = None
        self._last: MapObservation | None = None
        self._since = np.zeros(3)

    def follow(self, motion: Array | None, picture: MapObservation) -> Continuity:
        """How the picture continues the film after `motion` (3,), None for an unknown one."""
        last, self._last = self._last, picture
        if self._reference is None or last is None:
            self._take(picture)
            return Continuity(0.0, first=True)
        if motion is not None:
            self._since = compose(self._since, motion)
        separation = float(self._resemblance.separation(self._since))
        if picture.same_as(last) or picture.same_as(self._reference):
            # The reference stays: a camera that comes alive again is compared with it.
            return Continuity(0.0, frozen=True)
        cut = self._cut(picture, self._reference, separation)
        if motion is not None and last is not self._reference:
            cut = max(cut, self._cut(picture, last, float(self._resemblance.separation(motion))))
        if separation > REFERENCE_REACH or cut > NOTICED:
            self._take(picture)
        return Continuity(cut)

    def _cut(self, picture: MapObservation, earlier: MapObservation, separation: float) -> float:
        """The probability that the picture was not taken so far from the earlier one."""
        share = float(self._resemblance.share(separation))
        ratio = float(self._evidence.ratio(*picture.compared_with(earlier), share))
        return float(expit(logit(CUT_PRIOR) - ratio))

    def _take(self, picture: MapObservation) -> None:
        self._reference, self._since = picture, np.zeros(3)
