"""The default filter: a few hypotheses, each a kernel Bayes filter, weighed by their evidence.

Beside the hypotheses stands the weight of "elsewhere, or off the map". A step predicts each by the
odometry, asks what the picture tells round each of them (`MapViews.look`: Mb-KSR, KBR, read-out),
adds the evidence to the weights, lets the picture's best matches elsewhere be born, and corrects
each pose by a Kalman step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from kbf_localization.arrays import Array
from kbf_localization.events import Event
from kbf_localization.filters.bank import Bank
from kbf_localization.filters.base import Confidence, Estimate, GaussianPrior, HypothesisEstimate
from kbf_localization.filters.candidates import Candidate, Candidates
from kbf_localization.filters.film import NOTICED, Continuity, Film
from kbf_localization.filters.hypothesis import Hypothesis, MeasuredPose, given
from kbf_localization.filters.odometry_trust import OdometryTrust
from kbf_localization.filters.published import Published
from kbf_localization.filters.smoothing import Step
from kbf_localization.geometry import wrap_angle
from kbf_localization.training_map.learned import SAME_VIEW, novelty
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap
from kbf_localization.training_map.view import ViewParameters

SHOWN = 0.5
"""Share of the resemblance from which on the map shows a place: a picture may fit there."""

WIDEST_SIGMA = 0.3
"""In d₀: a pose less certain than that does not tell the place."""

UNKNOWN_MOTION = 0.5
"""Standard deviation, in d₀ and φ₀, of a motion that the odometry does not tell."""

FARTHEST = 1e6
"""A motion of more metres or radians, or of none that is a number, is unknown."""


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
        training_map: TrainingMap,
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
        self._bank = Bank(self._learned, parts.elsewhere)
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
        self._bank.reset(prior)
        self._published = Published()
        self._odometry = OdometryTrust(self._learned.readout.correlation)
        self._begins = True
        self._carried = 0.0

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """Predict by `motion`, weigh by the picture, correct by the picture.

        `variances` (3,) are the motion's by the odometry itself; None: as the map has learned.
        """
        if motion is not None and not (np.abs(motion) < FARTHEST).all():
            motion = None
        bank = self._bank
        before = {one.number: one.log_weight for one in bank.hypotheses}
        before_leaks = bank.log_elsewhere
        travel, noise = self._predict(motion, variances)
        film = self._film.follow(motion, observation)
        fresh = 1.0 if film.first else max(self._learned.evidence.novelty(travel), film.cut)
        if film.frozen:
            fresh = 0.0
        if film.cut > 0.0:
            bank.hypotheses = [one.forgetting(film.cut) for one in bank.hypotheses]
        predicted = bank.hypotheses
        seen = [self._candidates.look(one, observation) for one in predicted]
        births = self._candidates.sought(observation, seen, film, fresh, travel)
        shown = [one for one in (*seen, *births) if one.view.share > SHOWN]
        best = max((one.fit for one in shown or (*seen, *births)), default=0.0)
        leaks = bank.weigh(seen, best, film, fresh, travel, self._carried_away(film, best))
        elsewhere = bank.log_elsewhere
        self._published.follow(seen, fresh)
        corrected = self._corrected(seen, fresh, travel)
        new = bank.born(births, corrected, best, fresh, before_leaks)
        heirs = bank.keep([*corrected, *new], self._published.number)
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
                    after={one.number: one for one in bank.hypotheses},
                    log_elsewhere=bank.log_elsewhere,
                    survival=survival,
                    leaks=leaks,
                    births={one.number: one.log_weight - elsewhere for one in new},
                    heirs=heirs,
                )
            )
        self._begins = False
        shares = {one.hypothesis.number: one.view.share for one in seen}
        published = self._published.choose(bank.hypotheses, shares)
        if self._published.gave_way and film.cut <= NOTICED:
            self._odometry.blame()
        return self._estimate(published, seen, births, film, best)

    def _predict(self, motion: Array | None, variances: Array | None) -> tuple[float, Array]:
        """Move all hypotheses; the travel in the map's scales, and the motion's variances (3,)."""
        if motion is None:
            wide = (UNKNOWN_MOTION * self._scales) ** 2
            self._bank.hypotheses = [one.widened(wide) for one in self._bank.hypotheses]
            return 1.0, wide
        distance, turned = float(np.hypot(motion[0], motion[1])), abs(float(motion[2]))
        travel = self._learned.resemblance.travel(distance, turned)
        if variances is None:
            variances = self._learned.motion_noise.variances(distance, turned)
        noise = self._odometry.inflation * variances
        lasts = self._lasts(motion, travel)
        moved = [one.moved(motion, noise, lasts) for one in self._bank.hypotheses]
        self._bank.hypotheses = moved
        return travel, noise

    def _lasts(self, motion: Array | None, travel: float) -> float:
        """The correlation of the lasting error over a motion."""
        return 1.0 if motion is None else float(np.exp(-travel / self._learned.readout.correlation))

    def _carried_away(self, film: Continuity, best: float) -> float:
        """The probability that now shows that the robot was carried away.

        A cut in the film may be the camera's, or the robot was carried away. Which of them it was
        shows as soon as a picture is recognized; until then the doubt stays.
        """
        self._carried += film.cut * (1.0 - self._carried)
        shows = self._carried * float(expit(best))
        self._carried -= shows
        return shows

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
            if hypothesis.number == self._published.number:
                self._odometry.follow(innovation, hypothesis.lasting_error, travel)
        return corrected

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
        weights = self._bank.weights_on_map(views)
        heaviest = weights.rows[np.argmax(weights.values)] if len(weights.rows) else None
        return Estimate(
            pose=published.pose.copy(),
            covariance=published.covariance.copy(),
            highest_weight_pose=published.pose if heaviest is None else self._poses[heaviest],
            weights=weights,
            evidence=self._published.evidence,
            events=tuple(events),
            whole_covariance=self._bank.covariance(
                published.pose, self._everywhere(published.pose)
            ),
            confidence=Confidence(
                probability=self._trusted(published),
                evidence=self._published.evidence,
                least_evidence=self._learned.evidence.low,
                widest_sigma_m=WIDEST_SIGMA * self._learned.resemblance.distance_m,
            ),
            hypotheses=tuple(
                HypothesisEstimate(one.pose, one.covariance, one.probability, one.number)
                for one in self._bank.hypotheses
            ),
        )

    def _trusted(self, published: Hypothesis) -> float:
        """The probability of the published pose.

        Odometry that is broken carries no pose, nor does a robot that was carried away; and where a
        confirmed pose has just given way, one picture is not enough for the next.
        """
        if self._published.gave_way or self._odometry.broken:
            return 0.0
        return (1.0 - self._carried) * self._bank.agreeing(published)

    def _everywhere(self, pose: Array) -> Array:
        """The second moment (3, 3) of the map's poses round `pose`, axis by axis."""
        spread = self._variance + (self._centre - pose[:2]) ** 2
        return np.diag((*np.maximum(spread, self._scales[0] ** 2), np.pi**2 / 3.0))


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
