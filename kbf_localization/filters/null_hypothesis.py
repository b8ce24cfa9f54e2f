"""Evidence that the robot was carried elsewhere, and the weight that moves there and back.

A monitor tells how probably an image does not continue the ones before, as odometry predicts. What
leaves a component goes into a reservoir, of which a part comes back evenly over the map, where the
image gives births; the rest is the null hypothesis's.
"""

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


HAZARD_PER_TRAVEL, HAZARD_OF_DISCONTINUITY = 2e-3, 0.9
"""Probability that the robot is elsewhere unnoticed, for each travel d/d₀ + φ/φ₀, and where the
images jump."""

HAZARD_TO_MAP = 0.5
"""Fraction of the hazard that goes to the map prior; the rest goes to the null hypothesis."""

RETURN_PER_TRAVEL, FIRST_RETURN = 0.3, 0.5
"""Fraction of the null weight that comes back to the map prior, for each travel, and at first."""

OFF_MAP_PER_TRAVEL = 0.02
"""Fraction, for each travel, of what the map cannot represent of a component that leaves it."""

MAX_LOG_GAIN = 12.0
"""Bound of the log likelihood ratio between places by one image's kernel."""


@dataclass(frozen=True)
class Transfer:
    """Weights before the rule: `masses` (j,) of the components, of the map prior and the null's.

    `leaks` (j,) is the fraction that left each component, `reservoir` all that is in none.
    """

    masses: Array
    leaks: Array
    map_mass: float
    null_mass: float

    @property
    def reservoir(self) -> float:
        return self.map_mass + self.null_mass


def transfer(
    weights: Array, null: float, coverage: Array, travel: float, jump: float, first: bool = False
) -> Transfer:
    """Return the weights after `travel` since the last kernel step.

    `coverage` (j,) is κ: the rest leaves for the null hypothesis at a rate. `jump` is the
    probability of a discontinuity; `first` says that this is the first image.
    """
    hazard = min(HAZARD_PER_TRAVEL * travel + HAZARD_OF_DISCONTINUITY * jump, 0.9)
    off_map = min(OFF_MAP_PER_TRAVEL * travel, 1.0) * (1.0 - coverage)
    leaks = 1.0 - (1.0 - hazard) * (1.0 - off_map)
    returned = min(RETURN_PER_TRAVEL * travel + FIRST_RETURN * max(jump, float(first)), 0.5)
    to_map = HAZARD_TO_MAP * hazard * float(weights.sum())
    return Transfer(
        masses=weights * (1.0 - leaks),
        leaks=leaks,
        map_mass=returned * null + to_map,
        null_mass=(1.0 - returned) * null + float((weights * leaks).sum()) - to_map,
    )


def posterior_weights(
    before: Array, after: Array, masses: Array, log_ratios: Array, information: float
) -> Array:
    """Return the weights (p,) of places after an image, where the null hypothesis has likelihood 1.

    `before` and `after` (p,) are the places' parts of all weight on the map before and after the
    KBR: they share the weight among places, as far as the image carries `information` in [0, 1].
    `masses` (p,) with the calibrated `log_ratios` (p,) give the evidence for the map as a whole.
    """
    evidence = float(masses @ np.exp(log_ratios))
    held = (before > 0.0) & (after > 0.0)
    gains = np.full(len(before), -MAX_LOG_GAIN)
    if held.any():
        logs = np.log(after[held] / before[held])
        gains[held] = np.maximum(logs - logs.max(), -MAX_LOG_GAIN)
    parts = before * np.exp(information * gains)
    total = float(parts.sum())
    if not (total > 0.0 and np.isfinite(total)):
        return np.asarray(masses * np.exp(log_ratios))
    return np.asarray(evidence * parts / total)
