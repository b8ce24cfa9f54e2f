"""Says from the evidence and the spread of the belief whether the robot knows where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kbf_localization.filters.base import Estimate
from kbf_localization.localization.types import State


@dataclass(frozen=True)
class StateThresholds:
    """When the state changes.

    `evidence` averages over about 1/`rate` updates must reach `tracking_evidence` with a standard
    deviation of the position of at most `tracking_sigma_m` in `confirmations` updates on end to
    say "tracking"; below `lost_evidence` it is "lost".
    """

    rate: float = 0.2
    tracking_evidence: float = 0.5
    lost_evidence: float = 0.3
    tracking_sigma_m: float = 0.75
    confirmations: int = 3

    @classmethod
    def of_map(cls, thresholds: Mapping[str, float]) -> StateThresholds:
        """The thresholds that a map has learned, defaults for the others."""
        default = cls()
        return cls(
            rate=thresholds.get("rate", default.rate),
            tracking_evidence=thresholds.get("tracking_evidence", default.tracking_evidence),
            lost_evidence=thresholds.get("lost_evidence", default.lost_evidence),
            tracking_sigma_m=thresholds.get("tracking_sigma_m", default.tracking_sigma_m),
        )


class StateMonitor:
    """Follows the estimates of one robot."""

    def __init__(self, thresholds: StateThresholds) -> None:
        self._thresholds = thresholds
        self.reset()

    def reset(self) -> None:
        """Back to "uninitialized"."""
        self.state = State.UNINITIALIZED
        self.evidence = float("nan")
        self._confirmed = 0

    def update(self, estimate: Estimate) -> State:
        """The state after one more estimate."""
        limits = self._thresholds
        if np.isfinite(estimate.evidence):
            old = self.evidence if np.isfinite(self.evidence) else estimate.evidence
            self.evidence = old + limits.rate * (estimate.evidence - old)
        fits = not self.evidence < limits.tracking_evidence
        spread = float(np.sqrt(np.linalg.eigvalsh(estimate.covariance[:2, :2])[-1]))
        certain = spread <= limits.tracking_sigma_m
        self._confirmed = self._confirmed + 1 if fits and certain else 0
        if self._confirmed >= limits.confirmations:
            self.state = State.TRACKING
        elif self.state is State.TRACKING and self.evidence < limits.lost_evidence:
            self.state = State.LOST
        elif self.state is State.UNINITIALIZED:
            self.state = State.LOCALIZING
        return self.state
