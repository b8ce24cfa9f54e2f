"""The hypotheses and the weight of "elsewhere, or off the map": how weight goes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.base import GaussianPrior, Weights
from kbf_localization.filters.candidates import MOST, Candidate
from kbf_localization.filters.film import Continuity
from kbf_localization.filters.hypothesis import Hypothesis, given
from kbf_localization.geometry import wrap_angle
from kbf_localization.training_map.learned import Learned
from kbf_localization.training_map.view import View

LEAK_PER_TRAVEL, LEAK_OFF_THE_MAP = 1e-3, 0.02
"""Chance of being elsewhere unnoticed, for each length over which pictures change: where the map
can tell, and where it cannot, since robots seldom leave their map for long."""

ON_THE_MAP = 0.5
"""Chance that a robot that is elsewhere is at one of its picture's best matches."""

LEAST_ELSEWHERE = 1e-6
"""The filter is never surer than that of not being elsewhere."""

FORGOTTEN = 1e-5
"""Hypotheses of less probability are dropped, but the published one."""

SAME = 0.15
"""Separation, in the map's scales, within which hypotheses are one."""

INDISTINCT = 3.0
"""Squared distance, in both covariances, of hypotheses that are one: the mean of a difference in
three coordinates."""

CONSISTENT = 11.3
"""Squared distance, in both covariances, of hypotheses that agree: the 99 % quantile of a
difference in three coordinates."""

GIVEN = 0
"""The number of the hypothesis that somebody told."""

GIVEN_DOUBT = 0.05
"""Chance that a pose which somebody told is wrong."""


class Bank:
    """Hypotheses with log weights, and elsewhere's; together they sum to one after a step."""

    def __init__(self, learned: Learned, elsewhere: bool = True) -> None:
        """`elsewhere` says whether there is an elsewhere."""
        self._learned = learned
        self._elsewhere = elsewhere
        self.reset()

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Anywhere, or what somebody told."""
        self.hypotheses: list[Hypothesis] = []
        self.log_elsewhere = 0.0
        if prior is not None:
            one = given(prior.pose, prior.covariance, GIVEN)
            self.hypotheses = [one.weighed(np.log1p(-GIVEN_DOUBT))]
            self.log_elsewhere = float(np.log(GIVEN_DOUBT))

    def weigh(
        self,
        seen: list[Candidate],
        best: float,
        film: Continuity,
        fresh: float,
        travel: float,
        carried: float,
    ) -> dict[int, float]:
        """Leak to elsewhere, a share `carried` of all; then add the evidence, in `seen`.

        A picture that fits nowhere (`best` < 0) only tells places apart: its fit counts as none,
        neither for nor against. Gives the share of each hypothesis's weight that leaked.
        """
        leaks = {}
        floor = min(best, 0.0)
        lasting = self._learned.evidence.lasting
        lasts = self._learned.evidence.lasts(travel) * (1.0 - film.cut)
        for index, one in enumerate(seen):
            weight, leak = one.hypothesis.log_weight, 0.0
            if self._elsewhere:
                uncovered = (1.0 - one.view.share) ** 4
                hazard = LEAK_PER_TRAVEL + uncovered * LEAK_OFF_THE_MAP
                leak = min(hazard * travel + carried, 1.0 - 1e-9)
            leaks[one.hypothesis.number] = leak
            if leak > 0.0:
                leaked = np.log(leak) + weight
                self.log_elsewhere = float(np.logaddexp(self.log_elsewhere, leaked))
            hypothesis = one.hypothesis.weighed(weight + float(np.log1p(-leak)))
            if best < 0.0:
                gained = fresh * one.ratio(floor)
                hypothesis = hypothesis.weighed(hypothesis.log_weight + gained)
            if not film.frozen:
                fit = one.fit if best >= 0.0 else 0.0
                hypothesis = hypothesis.told(fit, one.informs, lasts, lasting)
            seen[index] = Candidate(hypothesis, one.view, one.fit)
        return leaks

    def born(
        self,
        births: Sequence[Candidate],
        old: Sequence[Hypothesis],
        best: float,
        fresh: float,
        before_leaks: float,
    ) -> list[Hypothesis]:
        """The best matches with a part of elsewhere's weight each, of log `before_leaks` before.

        Weight that has just leaked is at a place of which nothing was seen before: the picture
        counts wholly there. Of what was elsewhere before, only a fresh share may be at another
        place than it was, and of the picture only what is fresh counts. What an old hypothesis
        claims becomes its twin, which merging adds to it.
        """
        if not births or fresh == 0.0:
            return []
        leaked = 1.0 - float(np.exp(before_leaks - self.log_elsewhere))
        part = float(np.log(ON_THE_MAP / len(births))) + self.log_elsewhere
        known = {one.number: one for one in old}
        new = []
        for one in births:
            hypothesis = known.get(one.hypothesis.number)
            if hypothesis is None:
                lasting = self._learned.evidence.lasting
                hypothesis = one.hypothesis.told(one.fit, one.informs, 0.0, lasting)
            ratio = one.ratio(min(best, 0.0))
            told = leaked * np.exp(ratio) + (1.0 - leaked) * fresh * np.exp(fresh * ratio)
            new.append(hypothesis.weighed(part + float(np.log(told))))
        return new

    def keep(self, hypotheses: Sequence[Hypothesis], published: int | None) -> dict[int, int]:
        """Near ones merged, weights normalized with elsewhere's, improbable ones dropped.

        Gives in which hypothesis each one lives on.
        """
        kept: list[Hypothesis] = []
        places: dict[int, int] = {}
        for one in sorted(hypotheses, key=lambda h: -h.log_weight):
            twin = next((k for k, h in enumerate(kept) if self._same(h, one)), len(kept))
            places.setdefault(one.number, twin)
            if twin == len(kept):
                kept.append(one)
                continue
            together = float(np.logaddexp(kept[twin].log_weight, one.log_weight))
            if one.number == published:
                kept[twin] = one
            kept[twin] = kept[twin].weighed(together)
        heirs = {number: kept[place].number for number, place in places.items()}
        if not self._elsewhere and kept:
            self.log_elsewhere = -np.inf
        weights = [one.log_weight for one in kept]
        total = float(np.logaddexp.reduce([self.log_elsewhere, *weights]))
        self.log_elsewhere = max(self.log_elsewhere - total, float(np.log(LEAST_ELSEWHERE)))
        self.hypotheses = [
            one.weighed(one.log_weight - total)
            for rank, one in enumerate(kept)
            if one.number == published
            or (rank < MOST and one.log_weight - total > np.log(FORGOTTEN))
        ]
        return heirs

    def _same(self, a: Hypothesis, b: Hypothesis) -> bool:
        """Whether two hypotheses are one: nothing that they know tells them apart."""
        near = self._learned.resemblance.between(a.pose, b.pose) < SAME
        return near or a.distance(b) < INDISTINCT

    def agreeing(self, published: Hypothesis) -> float:
        """The probability of all hypotheses that agree with the published pose."""
        agree = (one for one in self.hypotheses if published.distance(one) < CONSISTENT)
        return min(sum(one.probability for one in agree), 1.0)

    def weights_on_map(self, views: Mapping[int, View]) -> Weights:
        """Each hypothesis's weights on the map's poses, times its probability; views by numbers."""
        parts = [
            (views[one.number].rows, one.probability * views[one.number].weights)
            for one in self.hypotheses
            if one.number in views and len(views[one.number].rows)
        ]
        if not parts:
            return Weights(np.zeros(0, dtype=np.intp), np.zeros(0))
        rows, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
        values = np.bincount(places, np.concatenate([part[1] for part in parts]), len(rows))
        return Weights(rows, values.astype(np.float64))

    def covariance(self, pose: Array, everywhere: Array) -> Array:
        """(3, 3) of all hypotheses and of elsewhere, of the spread `everywhere`, round `pose`."""
        weight = float(np.exp(self.log_elsewhere))
        total = weight * everywhere
        for one in self.hypotheses:
            offset = one.pose - pose
            offset[2] = wrap_angle(offset[2])
            total = total + one.probability * (one.covariance + np.outer(offset, offset))
            weight += one.probability
        return np.asarray(total / weight)
