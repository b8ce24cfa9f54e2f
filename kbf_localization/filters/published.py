"""Which of the hypotheses is published, and what its pictures have told since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kbf_localization.filters.candidates import CONFIRMED, Candidate
from kbf_localization.filters.hypothesis import Hypothesis

LEAD, FIRST_LEAD = 3.0, 1.0
"""A confirmed pose gives way only to one that is e³ times as probable, one that is not to one e
times as probable: equals would alternate."""

LEAST_ON_MAP = 0.1
"""What a place where the map has no picture counts, beside one that it covers, as a first guess."""

MEMORY = 3.0
"""Correlation lengths that the running evidence goes back: one odd view is no reason to be lost."""


class Published:
    """The published hypothesis: `number`, whether it was `confirmed`, and its running `evidence`.

    `gave_way` says that a confirmed one has just been given up for another.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.confirmed = False
        self.gave_way = False
        self.evidence = 0.0

    def follow(self, seen: Sequence[Candidate], fresh: float) -> None:
        """The running evidence after one more picture, of which a share is `fresh`."""
        for one in seen:
            if one.hypothesis.number == self.number:
                self.evidence += fresh / MEMORY * (one.ratio() - self.evidence)

    def choose(
        self, hypotheses: Sequence[Hypothesis], shares: Mapping[int, float]
    ) -> Hypothesis | None:
        """The hypothesis to publish; `shares` say how well the map covers the old ones.

        As long as none was confirmed, one on the map is preferred: most robots are on their map.
        """
        self.gave_way = False
        if not hypotheses:
            self.number = None
            return None

        def rank(one: Hypothesis) -> float:
            doubt = 0.0 if self.confirmed else LEAST_ON_MAP
            covered = shares.get(one.number, 1.0) if doubt else 1.0
            return one.log_weight + float(np.log(doubt + (1.0 - doubt) * covered))

        best = max(hypotheses, key=rank)
        current = next((one for one in hypotheses if one.number == self.number), best)
        if rank(best) - rank(current) > (LEAD if self.confirmed else FIRST_LEAD):
            self.gave_way, self.confirmed = self.confirmed, False
            current = best
        if current.number != self.number:
            self.number, self.evidence = current.number, 0.0
        self.confirmed = self.confirmed or current.probability > CONFIRMED
        return current
