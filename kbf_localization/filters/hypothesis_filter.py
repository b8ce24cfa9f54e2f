"""The default filter: a few hypotheses, each a kernel Bayes filter, weighed by their evidence.

Beside the hypotheses stands the weight of "elsewhere, or off the map". A step predicts each by the
odometry, asks what the picture tells round each of them (`MapViews.look`: Mb-KSR, KBR, read-out),
adds the evidence to the weights, lets the picture's best matches elsewhere be born, and corrects
each pose by a Kalman step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from kbf_localization.arrays import Array
from kbf_localization.filters.bank import agreeing, weights_on_map, whole_covariance
from kbf_localization.filters.base import (
    Confidence,
    Estimate,
    Event,
    GaussianPrior,
    HypothesisEstimate,
    Observation,
)
from kbf_localization.filters.candidates import CONFIRMED, MOST, BankMap, Candidate, Candidates
from kbf_localization.filters.film import NOTICED, Continuity, Film
from kbf_localization.filters.hypothesis import Hypothesis, MeasuredPose, given
from kbf_localization.filters.smoothing import Step
from kbf_localization.geometry import wrap_angle
from kbf_localization.training_map.learned import SAME_VIEW, novelty
from kbf_localization.training_map.view import ViewParameters

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

LEAD, FIRST_LEAD = 3.0, 1.0
"""A confirmed pose gives way only to one that is e³ times as probable, one that is not to one e
times as probable: equals would alternate."""

SHOWN = 0.5
"""Share of the resemblance from which on the map shows a place: a picture may fit there."""

LEAST_ON_MAP = 0.1
"""What a place where the map has no picture counts, beside one that it covers, as a first guess."""

WIDEST_SIGMA = 0.3
"""In d₀: a pose less certain than that does not tell the place."""

GIVEN = 0
"""The number of the hypothesis that somebody told."""

GIVEN_DOUBT = 0.05
"""Chance that a pose which somebody told is wrong."""

MEMORY = 3.0
"""Correlation lengths that the running evidence goes back: one odd view is no reason to be lost."""

UNKNOWN_MOTION = 0.5
"""Standard deviation, in d₀ and φ₀, of a motion that the odometry does not tell."""

FARTHEST = 1e6
"""A motion of more metres or radians, or of none that is a number, is unknown."""

MOST_SURPRISE = 4.0
"""Of a mean square that should be one: what is farther off is an outlier, and counts no more."""

MOST_INFLATION, BROKEN_ODOMETRY = 100.0, 16.0
"""Bound of the motion noise's adaptation to the drive, ten times the odometry's usual error; and
from where on, four times that error, odometry is broken and no pose is to be relied on."""


@dataclass(frozen=True)
class Parts:
    """Parts of the filter that can be left out, to see what each is worth."""

    many: bool = True
    elsewhere: bool = True
    kalman: bool = True


class HypothesisFilter:
    """Filters poses on a training map; nothing in it counts images, only metres and radians."""

    def __init__(
        self,
        training_map: BankMap,
        parameters: ViewParameters = ViewParameters(),  # noqa: B008 (frozen)
        parts: Parts = Parts(),  # noqa: B008 (frozen)
    ) -> None:
        self._learned = training_map.learned
        self._scales = self._learned.resemblance.scales
        self._poses = training_map.poses
        positions = self._poses[:, :2]
        self._centre, self._variance = positions.mean(axis=0), positions.var(axis=0)
        self._candidates = Candidates(training_map, parameters, many=parts.many)
        self._film = Film(self._learned)
        self._parts = parts
        self.history: list[Step] | None = None
        """The steps made, for `smoothing.smoothed`, if a list is put here."""
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""
        self._candidates.prepare()

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""
        self._film.reset()
        self._candidates.reset()
        self._begins = True
        self._hypotheses: list[Hypothesis] = []
        self._log_elsewhere = 0.0
        self._published: int | None = None
        self._confirmed = False
        self._gave_way = False
        self._inflation = 1.0
        self._running = 0.0
        self._carried = 0.0
        if prior is not None:
            one = given(prior.pose, prior.covariance, GIVEN)
            self._hypotheses = [one.weighed(np.log1p(-GIVEN_DOUBT))]
            self._log_elsewhere = float(np.log(GIVEN_DOUBT))

    def step(
        self, motion: Array | None, observation: Observation, variances: Array | None = None
    ) -> Estimate:
        """Predict by `motion`, weigh by the picture, correct by the picture.

        `variances` (3,) are the motion's by the odometry itself; None: as the map has learned.
        """
        if motion is not None and not (np.abs(motion) < FARTHEST).all():
            motion = None
        before = {one.number: one.log_weight for one in self._hypotheses}
        travel, noise = self._predict(motion, variances)
        film = self._film.follow(motion, observation)
        fresh = 1.0 if film.first else max(self._learned.evidence.novelty(travel), film.cut)
        if film.frozen:
            fresh = 0.0
        if film.cut > 0.0:
            self._hypotheses = [one.forgetting(film.cut) for one in self._hypotheses]
        predicted = self._hypotheses
        seen = [self._candidates.look(one, observation) for one in predicted]
        births = self._candidates.sought(observation, seen, film, fresh, travel)
        shown = [one for one in (*seen, *births) if one.view.share > SHOWN]
        best = max((one.fit for one in shown or (*seen, *births)), default=0.0)
        before_leaks = self._log_elsewhere
        leaks = self._weigh(seen, best, film, fresh, travel)
        elsewhere = self._log_elsewhere
        self._follow_evidence(seen, fresh)
        corrected = self._corrected(seen, fresh, travel)
        new = self._born(births, corrected, best, fresh, before_leaks)
        self._hypotheses, heirs = self._kept([*corrected, *new])
        if self.history is not None:
            survival = {
                one.hypothesis.number: one.hypothesis.log_weight - before[one.hypothesis.number]
                for one in seen
            }
            self.history.append(
                Step(
                    begins=self._begins,
                    motion=np.zeros(3) if motion is None else motion,
                    noise=noise,
                    lasts=self._lasts(motion, travel) * (1.0 - film.cut),
                    predicted={one.number: one for one in predicted},
                    after={one.number: one for one in self._hypotheses},
                    log_elsewhere=self._log_elsewhere,
                    survival=survival,
                    leaks=leaks,
                    births={one.number: one.log_weight - elsewhere for one in new},
                    heirs=heirs,
                )
            )
        self._begins = False
        shares = {one.hypothesis.number: one.view.share for one in seen}
        published = self._choose(shares, carried=film.cut > NOTICED)
        return self._estimate(published, seen, births, film, best)

    # Prediction

    def _predict(self, motion: Array | None, variances: Array | None) -> tuple[float, Array]:
        """Move all hypotheses; the travel in the map's scales, and the motion's variances (3,)."""
        if motion is None:
            wide = (UNKNOWN_MOTION * self._scales) ** 2
            self._hypotheses = [one.widened(wide) for one in self._hypotheses]
            return 1.0, wide
        distance, turned = float(np.hypot(motion[0], motion[1])), abs(float(motion[2]))
        travel = self._learned.resemblance.travel(distance, turned)
        if variances is None:
            variances = self._learned.motion_noise.variances(distance, turned)
        noise = self._inflation * variances
        lasts = self._lasts(motion, travel)
        self._hypotheses = [one.moved(motion, noise, lasts) for one in self._hypotheses]
        return travel, noise

    def _lasts(self, motion: Array | None, travel: float) -> float:
        """The correlation of the lasting error over a motion."""
        return 1.0 if motion is None else float(np.exp(-travel / self._learned.readout.correlation))

    # Weights

    def _weigh(
        self,
        seen: list[Candidate],
        best: float,
        film: Continuity,
        fresh: float,
        travel: float,
    ) -> dict[int, float]:
        """Leak to elsewhere, then add the evidence; a picture that fits nowhere tells nothing.

        A cut in the film may be the camera's, or the robot was carried away. Which of them it was
        shows as soon as a picture is recognized; until then the doubt stays. Gives the share of
        each hypothesis's weight that leaked.
        """
        leaks = {}
        floor = min(best, 0.0)
        lasting = self._learned.evidence.lasting
        lasts = self._learned.evidence.lasts(travel) * (1.0 - film.cut)
        self._carried += film.cut * (1.0 - self._carried)
        moved = self._carried * float(expit(best))
        self._carried -= moved
        for index, one in enumerate(seen):
            weight, leak = one.hypothesis.log_weight, 0.0
            if self._parts.elsewhere:
                uncovered = (1.0 - one.view.share) ** 4
                hazard = LEAK_PER_TRAVEL + uncovered * LEAK_OFF_THE_MAP
                leak = min(hazard * travel + moved, 1.0 - 1e-9)
            leaks[one.hypothesis.number] = leak
            if leak > 0.0:
                leaked = np.log(leak) + weight
                self._log_elsewhere = float(np.logaddexp(self._log_elsewhere, leaked))
            hypothesis = one.hypothesis.weighed(weight + float(np.log1p(-leak)))
            if best < 0.0:
                # The picture fits nowhere: it only tells places apart.
                gained = fresh * one.ratio(floor)
                hypothesis = hypothesis.weighed(hypothesis.log_weight + gained)
            elif not film.frozen:
                hypothesis = hypothesis.told(one.fit, one.informs, lasts, lasting)
            seen[index] = Candidate(hypothesis, one.view, one.fit)
        return leaks

    def _born(
        self,
        births: Sequence[Candidate],
        old: Sequence[Hypothesis],
        best: float,
        fresh: float,
        before_leaks: float,
    ) -> list[Hypothesis]:
        """The best matches with a part of elsewhere's weight each.

        Weight that has just leaked, and a fresh share of what was elsewhere before, is anywhere.
        What an old hypothesis claims becomes its twin, which merging adds to it.
        """
        if not births or fresh == 0.0:
            return []
        leaked = 1.0 - float(np.exp(before_leaks - self._log_elsewhere))
        share = ON_THE_MAP / len(births) * (leaked + (1.0 - leaked) * fresh)
        weight = float(np.log(share)) + self._log_elsewhere
        known = {one.number: one for one in old}
        new = []
        for one in births:
            hypothesis = known.get(one.hypothesis.number)
            if hypothesis is None:
                lasting = self._learned.evidence.lasting
                hypothesis = one.hypothesis.told(one.fit, one.informs, 0.0, lasting)
            new.append(hypothesis.weighed(weight + one.ratio(min(best, 0.0))))
        return new

    def _follow_evidence(self, seen: Sequence[Candidate], fresh: float) -> None:
        """The running evidence of the published hypothesis."""
        ratio = next(
            (one.ratio() for one in seen if one.hypothesis.number == self._published), None
        )
        if ratio is not None:
            self._running += fresh / MEMORY * (ratio - self._running)

    # Poses

    def _corrected(
        self, seen: Sequence[Candidate], fresh: float, travel: float
    ) -> list[Hypothesis]:
        """Kalman steps; the motion noise follows the published hypothesis."""
        corrected = []
        passing = max(fresh, novelty(travel, SAME_VIEW))
        for one in seen:
            # The less the picture fits there, the less the match is trusted.
            trust = float(expit(one.ratio())) * max(one.view.share, 1e-3)
            measured = None if fresh == 0.0 else self._candidates.measured(one.view, passing, trust)
            if measured is None:
                corrected.append(one.hypothesis)
                continue
            if not self._parts.kalman:
                corrected.append(_drawn(one.hypothesis, measured))
                continue
            hypothesis, innovation = one.hypothesis.corrected(measured)
            corrected.append(hypothesis)
            if hypothesis.number == self._published:
                self._follow_odometry(innovation, hypothesis.lasting_error, travel)
        return corrected

    def _follow_odometry(self, innovation: float, lasting_error: float, travel: float) -> None:
        """The motion noise's scale follows what the published hypothesis meets.

        Both mean squares are one where the odometry is as it was. Wheels that err always the same
        way do not show in the innovation, but the lasting error takes their error upon itself.
        """
        new = novelty(travel, self._learned.readout.correlation)
        surprise = new * (min(max(innovation, lasting_error), MOST_SURPRISE) - 1.0)
        scaled = self._inflation * float(np.exp(surprise))
        self._inflation = float(np.clip(scaled, 1.0, MOST_INFLATION))

    def _kept(self, hypotheses: Sequence[Hypothesis]) -> tuple[list[Hypothesis], dict[int, int]]:
        """Near ones merged, weights normalized with elsewhere's, improbable ones dropped.

        Also gives in which hypothesis each one lives on.
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
            if one.number == self._published:
                kept[twin] = one
            kept[twin] = kept[twin].weighed(together)
        heirs = {number: kept[place].number for number, place in places.items()}
        weights = [one.log_weight for one in kept]
        if not self._parts.elsewhere and kept:
            self._log_elsewhere = -np.inf
        total = float(np.logaddexp.reduce([self._log_elsewhere, *weights]))
        self._log_elsewhere = max(self._log_elsewhere - total, float(np.log(LEAST_ELSEWHERE)))
        lasting = [
            one.weighed(one.log_weight - total)
            for rank, one in enumerate(kept)
            if one.number == self._published
            or (rank < MOST and one.log_weight - total > np.log(FORGOTTEN))
        ]
        return lasting, heirs

    def _choose(self, shares: Mapping[int, float], carried: bool) -> Hypothesis | None:
        """The hypothesis to publish; `shares` say how well the map covers the old ones.

        As long as none was confirmed, one on the map is preferred: most robots are on their map. A
        confirmed one that gives way was led astray by odometry, unless the robot was `carried`.
        """
        if not self._hypotheses:
            self._published = None
            return None

        def rank(one: Hypothesis) -> float:
            doubt = 0.0 if self._confirmed else LEAST_ON_MAP
            covered = shares.get(one.number, 1.0) if doubt else 1.0
            return one.log_weight + float(np.log(doubt + (1.0 - doubt) * covered))

        best = max(self._hypotheses, key=rank)
        current = next((one for one in self._hypotheses if one.number == self._published), best)
        self._gave_way = False
        if rank(best) - rank(current) > (LEAD if self._confirmed else FIRST_LEAD):
            if self._confirmed and not carried:
                self._inflation = min(MOST_SURPRISE * self._inflation, MOST_INFLATION)
            self._gave_way, self._confirmed = self._confirmed, False
            current = best
        if current.number != self._published:
            self._published, self._running = current.number, 0.0
        self._confirmed = self._confirmed or current.probability > CONFIRMED
        return current

    def _estimate(
        self,
        published: Hypothesis | None,
        seen: Sequence[Candidate],
        births: Sequence[Candidate],
        film: Continuity,
        best: float,
    ) -> Estimate:
        events = []
        if film.frozen:
            events.append(Event.FROZEN_IMAGE)
        elif best < 0.0:
            events.append(Event.UNRECOGNIZED_IMAGE)
        if film.cut > NOTICED:
            events.append(Event.FILM_CUT)
        if published is None:
            middle = self._poses[len(self._poses) // 2]
            published = given(middle, self._everywhere(middle), -1).weighed(-np.inf)
        # A best match that an old hypothesis claims is that hypothesis once more.
        views = {one.hypothesis.number: one.view for one in (*seen, *births)}
        weights = weights_on_map(self._hypotheses, views)
        heaviest = weights.rows[np.argmax(weights.values)] if len(weights.rows) else None
        return Estimate(
            pose=published.pose.copy(),
            covariance=published.covariance.copy(),
            highest_weight_pose=published.pose if heaviest is None else self._poses[heaviest],
            weights=weights,
            evidence=self._running,
            events=tuple(events),
            whole_covariance=whole_covariance(
                self._hypotheses,
                self._log_elsewhere,
                published.pose,
                self._everywhere(published.pose),
            ),
            confidence=Confidence(
                probability=self._trusted(published),
                evidence=self._running,
                least_evidence=self._learned.evidence.low,
                widest_sigma_m=WIDEST_SIGMA * self._learned.resemblance.distance_m,
            ),
            hypotheses=tuple(
                HypothesisEstimate(one.pose, one.covariance, one.probability, one.number)
                for one in self._hypotheses
            ),
        )

    def _trusted(self, published: Hypothesis) -> float:
        """The probability of the published pose.

        Odometry that is broken carries no pose, nor does a robot that was carried away; and where a
        confirmed pose has just given way, one picture is not enough for the next.
        """
        if self._gave_way or self._inflation > BROKEN_ODOMETRY:
            return 0.0
        return (1.0 - self._carried) * agreeing(self._hypotheses, published)

    def _everywhere(self, pose: Array) -> Array:
        """The second moment (3, 3) of the map's poses round `pose`, axis by axis."""
        spread = self._variance + (self._centre - pose[:2]) ** 2
        return np.diag((*np.maximum(spread, self._scales[0] ** 2), np.pi**2 / 3.0))

    def _same(self, a: Hypothesis, b: Hypothesis) -> bool:
        """Whether two hypotheses are one: nothing that they know tells them apart."""
        near = self._learned.resemblance.between(a.pose, b.pose) < SAME
        return near or a.distance(b) < INDISTINCT


FIXED_GAIN = 0.08
"""Share by which a picture moves the pose where the Kalman step is left out."""


def _drawn(one: Hypothesis, measured: MeasuredPose) -> Hypothesis:
    """The pose drawn towards the measured one by a fixed share."""
    offset = measured.pose - one.pose
    offset[2] = wrap_angle(offset[2])
    pose = one.pose + FIXED_GAIN * offset
    joint = one.joint.copy()
    joint[:3, :3] = np.diag(np.minimum(np.diag(joint[:3, :3]), measured.variances))
    return Hypothesis(pose, joint, one.number, one.log_weight, one.error)
