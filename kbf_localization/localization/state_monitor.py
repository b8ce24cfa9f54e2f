"""Says from the evidence and the spread of the belief whether the robot knows where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import numpy as np

from kbf_localization.filters.base import Estimate
from kbf_localization.localization.types import State

BLIND = "image_like_nothing"
"""The event of an image that fits no place of the map: it says nothing about where the robot is."""


@dataclass(frozen=True)
class StateThresholds:
    """When the state changes; a map has learned its own (`calibration`).

    The evidence is followed by a fast and a slow average, as in augmented Monte Carlo
    localization; the slow one begins at `usual_evidence` and stays above half of it. "Tracking" is
    said after `confirmations` updates on end whose fast average reaches `tracking_share` of the
    slow one and whose position has a standard deviation of at most `tracking_sigma_m`. "Lost" is
    said when the fast average falls below `lost_share` of the slow one, when the pose jumps by
    more than `jump_m` from where odometry leads, when the position has been less certain than for
    tracking in `doubtful_updates` on end, when dead reckoning without usable images has grown
    uncertain, or after `blind_updates` of them on end.
    """

    usual_evidence: float = 0.4
    fast_rate: float = 0.2
    slow_rate: float = 0.01
    tracking_share: float = 0.5
    lost_share: float = 0.25
    tracking_sigma_m: float = 0.75
    jump_m: float = 1.0
    confirmations: float = 3.0
    doubtful_updates: float = 8.0
    blind_updates: float = 50.0

    @classmethod
    def of_map(cls, thresholds: Mapping[str, float]) -> StateThresholds:
        """The thresholds that a map has learned, defaults for the others."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in thresholds.items() if name in names})

    def stored_form(self) -> dict[str, float]:
        """The entries that a map keeps."""
        return asdict(self)


class StateMonitor:
    """Follows the estimates of one robot."""

    def __init__(self, thresholds: StateThresholds) -> None:
        self.thresholds = thresholds
        self.reset()

    def reset(self) -> None:
        """Back to "uninitialized"."""
        self.state = State.UNINITIALIZED
        self.evidence = float("nan")
        self._slow = self.thresholds.usual_evidence
        self._confirmed = 0
        self._blind = 0
        self._doubtful = 0

    def update(self, estimate: Estimate, sigma_m: float, jump_m: float = 0.0) -> State:
        """The state after one more estimate.

        `sigma_m` is the standard deviation of the position in its worst direction, `jump_m` its
        distance from where odometry alone would have led.
        """
        limits = self.thresholds
        self._blind = self._blind + 1 if BLIND in estimate.events else 0
        self._doubtful = self._doubtful + 1 if sigma_m > limits.tracking_sigma_m else 0
        self._follow(estimate.evidence)
        fits = self._blind == 0 and not self.evidence < limits.tracking_share * self._slow
        steady = sigma_m <= limits.tracking_sigma_m and jump_m <= limits.jump_m
        self._confirmed = self._confirmed + 1 if fits and steady else 0
        if self._confirmed >= limits.confirmations:
            self.state = State.TRACKING
        elif self.state is State.TRACKING and self._gone_wrong(jump_m):
            self.state = State.LOST
        elif self.state is State.UNINITIALIZED:
            self.state = State.LOCALIZING
        return self.state

    def _gone_wrong(self, jump_m: float) -> bool:
        limits = self.thresholds
        if self._blind:
            return self._doubtful > 0 or self._blind >= limits.blind_updates
        doubted = self._doubtful >= limits.doubtful_updates
        return doubted or jump_m > limits.jump_m or self.evidence < limits.lost_share * self._slow

    def _follow(self, evidence: float) -> None:
        if self._blind or not np.isfinite(evidence):
            return
        limits = self.thresholds
        old = self.evidence if np.isfinite(self.evidence) else evidence
        self.evidence = old + limits.fast_rate * (evidence - old)
        slow = self._slow + limits.slow_rate * (evidence - self._slow)
        self._slow = max(slow, 0.5 * limits.usual_evidence)
