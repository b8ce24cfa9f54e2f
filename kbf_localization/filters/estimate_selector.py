"""What an image says about each hypothesis, and which of them is published, with hysteresis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.filters.local_posterior import LocalPosterior
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.training_map.calibration import discounted

CONFIRMED_PROBABILITY = 0.9
"""Probability from which on a pose is confirmed, and the rest of the map rarely searched."""

LOG_LEAD, FIRST_LOG_LEAD = 3.0, 1.0
"""A confirmed pose is replaced by one that is e³ times as probable, an unconfirmed one by one that
is e times as probable: equals would alternate."""

MIN_COVERAGE_WEIGHT = 0.1
"""Weight of a place without map images beside a covered one, before the first confirmed pose."""

EVIDENCE_MEMORY = 3.0
"""Correlation lengths over which the running evidence averages: one odd view is not *lost*."""


@dataclass(frozen=True)
class Association:
    """A hypothesis with its local posterior given an image, and the log odds of the fit there.

    `fix` is the pose that landmarks measure there, None where they do not.
    """

    hypothesis: Hypothesis
    posterior: LocalPosterior
    log_odds: float
    fix: LandmarkFix | None = None

    @property
    def information(self) -> float:
        """Return the weight of the log odds: none where the map has no image to compare with."""
        return float(discounted(1.0, self.posterior.coverage))

    def log_ratio(self, floor: float = 0.0) -> float:
        """Return the log-likelihood ratio against elsewhere, relative to the log odds `floor`.

        The floor is that of an image that fits nowhere on the map: it carries no information where
        it fits best, nor where the map has no image to compare with.
        """
        return self.information * (self.log_odds - floor)

    @property
    def evidence(self) -> float:
        """Return the larger log-likelihood ratio, by the whole image or by landmarks."""
        whole = self.log_ratio()
        return whole if self.fix is None else max(whole, self.fix.log_likelihood_ratio)

    def with_log_weight(self, log_weight: float) -> Association:
        """Return the same with another weight of the hypothesis."""
        return replace(self, hypothesis=self.hypothesis.with_log_weight(log_weight))


class EstimateSelector:
    """The published hypothesis: its `number`, whether it was `confirmed`, its running `evidence`.

    `switched` says that a confirmed hypothesis has just been replaced by another.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.confirmed = False
        self.switched = False
        self.evidence = 0.0

    def update_evidence(self, associations: Sequence[Association], information: float) -> None:
        """Average the evidence of a further image, with a fraction `information` of one."""
        for association in associations:
            if association.hypothesis.number == self.number:
                self.evidence += (
                    information / EVIDENCE_MEMORY * (association.evidence - self.evidence)
                )

    def select(
        self, hypotheses: Sequence[Hypothesis], coverage: Mapping[int, float]
    ) -> Hypothesis | None:
        """Return the hypothesis to publish; `coverage` by the numbers of the old ones.

        Before the first confirmed pose, a place on the map is preferred: most robots are on theirs.
        """
        self.switched = False
        if not hypotheses:
            self.number = None
            return None

        def rank(hypothesis: Hypothesis) -> float:
            floor = 0.0 if self.confirmed else MIN_COVERAGE_WEIGHT
            covered = coverage.get(hypothesis.number, 1.0) if floor else 1.0
            return hypothesis.log_weight + float(np.log(floor + (1.0 - floor) * covered))

        best = max(hypotheses, key=rank)
        current = next((h for h in hypotheses if h.number == self.number), best)
        if rank(best) - rank(current) > (LOG_LEAD if self.confirmed else FIRST_LOG_LEAD):
            self.switched, self.confirmed = self.confirmed, False
            current = best
        if current.number != self.number:
            self.number, self.evidence = current.number, 0.0
        self.confirmed = self.confirmed or current.probability > CONFIRMED_PROBABILITY
        return current
