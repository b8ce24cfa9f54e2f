"""Monitors whether an image continues the one before, as the odometry predicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from kbf_localization.arrays import Array
from kbf_localization.geometry import compose
from kbf_localization.training_map.calibration import Calibration
from kbf_localization.training_map.observation import MapObservation

PRIOR_DISCONTINUITY = 1e-3
"""Probability that an image does not continue the one before: robots are rarely carried away."""

MIN_DISCONTINUITY = 0.1
"""Probability from which on the filter reacts: a few hundred examples never give certainty."""

REFERENCE_DISTANCE = 0.3
"""In d₀ and φ₀: a new reference image is taken before the old one is out of sight."""


@dataclass(frozen=True)
class Continuity:
    """`discontinuity` is the probability that the image does not continue the sequence.

    `first` says that there was no image before, `frozen` that the camera repeats one image.
    """

    discontinuity: float
    first: bool = False
    frozen: bool = False


class ContinuityMonitor:
    """Compares each image with the last one and with a reference image, given the odometry since.

    The last image shows a sudden change best, the older reference a gradual one.
    """

    def __init__(self, calibration: Calibration) -> None:
        self._similarity = calibration.similarity
        self._model = calibration.continuity
        self.reset()

    def reset(self) -> None:
        self._reference: MapObservation | None = None
        self._last: MapObservation | None = None
        self._since_reference = np.zeros(3)

    def update(self, motion: Array | None, observation: MapObservation) -> Continuity:
        """Return the continuity after `motion` (3,), None for an unknown one."""
        last, self._last = self._last, observation
        if self._reference is None or last is None:
            self._take_reference(observation)
            return Continuity(0.0, first=True)
        if motion is not None:
            self._since_reference = compose(self._since_reference, motion)
        separation = float(self._similarity.separation(self._since_reference))
        if observation.same_as(last) or observation.same_as(self._reference):
            # The reference stays: a camera that recovers is compared with it.
            return Continuity(0.0, frozen=True)
        discontinuity = self._probability(observation, self._reference, separation)
        if motion is not None and last is not self._reference:
            separation_of_last = float(self._similarity.separation(motion))
            discontinuity = max(
                discontinuity, self._probability(observation, last, separation_of_last)
            )
        if separation > REFERENCE_DISTANCE or discontinuity > MIN_DISCONTINUITY:
            self._take_reference(observation)
        return Continuity(discontinuity)

    def _probability(
        self, observation: MapObservation, earlier: MapObservation, separation: float
    ) -> float:
        """Return the probability that the image was not taken so far from the earlier one."""
        coverage = float(self._similarity.relative_similarity(separation))
        log_ratio = float(self._model.log_ratio(*observation.compared_with(earlier), coverage))
        return float(expit(logit(PRIOR_DISCONTINUITY) - log_ratio))

    def _take_reference(self, observation: MapObservation) -> None:
        self._reference, self._since_reference = observation, np.zeros(3)
