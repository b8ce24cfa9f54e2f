"""Tracking or lost: decided from calibrated quantities alone."""

from __future__ import annotations

import math

from kbf_localization.filters.base import Confidence
from kbf_localization.localization.result import State

FIRST_PROOF, PROOF_AFTER_LOSS, DOUBT = 0.9, 0.98, 0.5
"""Probabilities: to say "tracking" at first, to say it again after "lost", and to say "lost"."""


class StateMonitor:
    """Derives the state from the confidence of the estimates."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Return to "uninitialized"."""
        self.state = State.UNINITIALIZED

    def update(
        self, confidence: Confidence | None, sigma_m: float, max_sigma_m: float = math.inf
    ) -> State:
        """Return the state after one more estimate.

        `sigma_m` is the standard deviation of the position in its worst direction. Beyond the
        map's own bound a tracked pose is lost; beyond `max_sigma_m` alone it is only not precise
        enough: "localizing". A filter without a confidence never says more than "localizing".
        """
        if confidence is None:
            self.state = State.LOCALIZING
            return self.state
        certain = sigma_m <= confidence.max_sigma_m
        fits = confidence.evidence >= confidence.min_evidence
        if self.state is State.TRACKING:
            if not (certain and fits and confidence.probability >= DOUBT):
                self.state = State.LOST
            elif sigma_m > max_sigma_m:
                self.state = State.LOCALIZING
            return self.state
        proof = PROOF_AFTER_LOSS if self.state is State.LOST else FIRST_PROOF
        precise = certain and sigma_m <= max_sigma_m
        if precise and confidence.evidence > 0.0 and confidence.probability >= proof:
            self.state = State.TRACKING
        elif self.state is State.UNINITIALIZED:
            self.state = State.LOCALIZING
        return self.state
