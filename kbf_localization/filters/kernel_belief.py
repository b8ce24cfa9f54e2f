"""The belief: a kernel mean whose points are Gaussians, and the weight of the null hypothesis.

m = Σ_j w_j ∫ k_X(·, x) N(x; μ_j, P_j) dx, with the rest w₀ on "elsewhere, or off the map".
A belief never changes; what happens to it gives another belief. A single component is published,
with hysteresis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.association import Association
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.filters.hypothesis import Hypothesis
from kbf_localization.geometry import difference
from kbf_localization.training_map.calibration import SimilarityModel

MAX_COMPONENTS = 24
"""Components that are kept beside the published: enough for eight look-alikes of a place, and what
they leave behind."""

MIN_PROBABILITY = 1e-5
"""Components below it are pruned, except the published component."""

MIN_NULL_PROBABILITY = 1e-6
"""The filter is never more certain than that of being on the map."""

MERGE_SEPARATION = 0.15
"""In d₀ and φ₀: nearer components are merged."""

MERGE_MAHALANOBIS = 3.0
"""Squared, in the sum of both covariances: the mean for two draws of one pose."""

AGREEMENT_MAHALANOBIS = 11.3
"""Squared: the 99 % quantile of χ² with three degrees of freedom."""

PRIOR_DOUBT = 0.05
"""Probability that a given pose is wrong."""

PRIOR_NUMBER = 0
"""The number of the component of a given pose; others count from 1."""


@dataclass(frozen=True)
class KernelBelief:
    """Gaussian `components` with log weights, and that of the null hypothesis, `log_null`.

    `travel` d/d₀ + φ/φ₀ was made since the last kernel step, `unsearched` since the whole map was
    last searched. `next_number` is the next component's.
    """

    components: tuple[Hypothesis, ...] = ()
    log_null: float = 0.0
    travel: float = 0.0
    unsearched: float = 0.0
    next_number: int = 1

    @classmethod
    def from_prior(cls, prior: GaussianPrior | None) -> KernelBelief:
        """Return the belief of a given pose; of nothing but the null hypothesis for None."""
        if prior is None:
            return cls()
        component = Hypothesis.from_prior(prior.pose, prior.covariance, PRIOR_NUMBER)
        weighted = component.with_log_weight(float(np.log1p(-PRIOR_DOUBT)))
        return cls((weighted,), float(np.log(PRIOR_DOUBT)))

    @property
    def null_probability(self) -> float:
        return float(np.exp(min(self.log_null, 0.0)))

    @property
    def weights(self) -> Array:
        """w_j (j,) of the components."""
        return np.exp([component.log_weight for component in self.components])

    @property
    def max_probability(self) -> float:
        """Return the probability of the most probable component; 0 without any."""
        return max((component.probability for component in self.components), default=0.0)

    def followed_by(
        self, merged: Merged, births: int, *, kernel_step: bool, searched: bool
    ) -> KernelBelief:
        """Return the belief after an image that gave so many births."""
        return KernelBelief(
            merged.components,
            merged.log_null,
            0.0 if kernel_step else self.travel,
            0.0 if searched else self.unsearched,
            self.next_number + births,
        )

    def agreement(self, component: Hypothesis) -> float:
        """Return the probability of all components that agree with the published."""
        agreeing = (
            item for item in self.components if component.mahalanobis(item) < AGREEMENT_MAHALANOBIS
        )
        return min(sum(item.probability for item in agreeing), 1.0)

    def covariance(self, pose: Array, null_covariance: Array) -> Array:
        """Return the second moment (3, 3) of the whole belief round `pose` (3,).

        `null_covariance` (3, 3) is that of the null hypothesis round the same pose.
        """
        moment = self.null_probability * null_covariance
        weight = self.null_probability
        for component in self.components:
            offset = difference(component.pose, pose)
            moment = moment + component.probability * (
                component.covariance + np.outer(offset, offset)
            )
            weight += component.probability
        return np.asarray(moment / weight)


@dataclass(frozen=True)
class Merged:
    """Components after merging and pruning, normalized with the null weight.

    `merged_into` has the number of the component into which each was merged, pruned or not; its own
    where it was not merged.
    """

    components: tuple[Hypothesis, ...]
    log_null: float
    merged_into: Mapping[int, int]


def merge_and_prune(
    components: Sequence[Hypothesis],
    log_null: float,
    similarity: SimilarityModel,
    published: int | None,
) -> Merged:
    """Merge indistinct components, normalize with the null weight, prune improbable components.

    Of merged components the heaviest stays, or the published. The published component is
    never pruned: it carries the pose where the map has no images.
    """
    kept: list[Hypothesis] = []
    slot_of: dict[int, int] = {}
    for item in sorted(components, key=lambda component: -component.log_weight):
        slot = next(
            (k for k, other in enumerate(kept) if _indistinct(item, other, similarity)), len(kept)
        )
        slot_of.setdefault(item.number, slot)
        if slot == len(kept):
            kept.append(item)
            continue
        total = float(np.logaddexp(kept[slot].log_weight, item.log_weight))
        stays = item if item.number == published else kept[slot]
        kept[slot] = stays.with_log_weight(total)
    merged_into = {number: kept[slot].number for number, slot in slot_of.items()}
    total = float(np.logaddexp.reduce([log_null, *(item.log_weight for item in kept)]))
    pruned = tuple(
        item.with_log_weight(item.log_weight - total)
        for rank, item in enumerate(kept)
        if item.number == published
        or (rank < MAX_COMPONENTS and item.log_weight - total > np.log(MIN_PROBABILITY))
    )
    return Merged(pruned, max(log_null - total, float(np.log(MIN_NULL_PROBABILITY))), merged_into)


def _indistinct(a: Hypothesis, b: Hypothesis, similarity: SimilarityModel) -> bool:
    """Return whether nothing that two components know tells them apart."""
    near = similarity.separation_between(a.pose, b.pose) < MERGE_SEPARATION
    return near or a.mahalanobis(b) < MERGE_MAHALANOBIS


CONFIRMED_PROBABILITY = 0.9
"""Probability from which on a pose is confirmed, and the rest of the map rarely searched."""

LOG_LEAD, FIRST_LOG_LEAD = 3.0, 1.0
"""A confirmed pose is replaced by a pose that is e³ times as probable, an unconfirmed pose by
another that is e times as probable: equals would alternate."""

MIN_COVERAGE_WEIGHT = 0.1
"""Weight of a place without map images beside a covered place, while no pose is confirmed; not of
the published, which odometry has led there."""

EVIDENCE_MEMORY = 3.0
"""Correlation lengths over which the running evidence averages: a single odd view is not *lost*."""


class EstimateSelector:
    """The published hypothesis: its `number`, whether it was `confirmed`, its running `evidence`.

    `changed` says that the hypothesis has just been chosen, `switched` that it replaces a confirmed
    hypothesis.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.confirmed = False
        self.changed = self.switched = False
        self.evidence = 0.0

    def update_evidence(
        self, associations: Sequence[Association], information: float, floor: float = 0.0
    ) -> None:
        """Average the evidence of a further image, with a fraction `information` of one.

        `floor` is that of `Association.log_ratio`: bare walls are no reason to call a pose lost.
        """
        for association in associations:
            if association.hypothesis.number == self.number:
                found = association.evidence(floor)
                self.evidence += information / EVIDENCE_MEMORY * (found - self.evidence)

    def select(
        self,
        hypotheses: Sequence[Hypothesis],
        coverage: Mapping[int, float],
        evidence: Mapping[int, float],
    ) -> Hypothesis | None:
        """Return the hypothesis to publish; `coverage` by the numbers of the old hypotheses.

        `evidence` is that of the last image, by numbers: another hypothesis starts with it.
        While no pose is confirmed, a place on the map is preferred: most robots are on theirs.
        """
        self.changed = self.switched = False
        if not hypotheses:
            self.number = None
            return None

        def rank(hypothesis: Hypothesis) -> float:
            if self.confirmed or hypothesis.number == self.number:
                return hypothesis.log_weight
            covered = coverage.get(hypothesis.number, 1.0)
            weight = MIN_COVERAGE_WEIGHT + (1.0 - MIN_COVERAGE_WEIGHT) * covered
            return hypothesis.log_weight + float(np.log(weight))

        best = max(hypotheses, key=rank)
        current = next((h for h in hypotheses if h.number == self.number), best)
        if rank(best) - rank(current) > (LOG_LEAD if self.confirmed else FIRST_LOG_LEAD):
            self.switched, self.confirmed = self.confirmed, False
            current = best
        self.changed = current.number != self.number
        if self.changed:
            self.number, self.evidence = current.number, evidence.get(current.number, 0.0)
        self.confirmed = self.confirmed or current.probability > CONFIRMED_PROBABILITY
        return current
