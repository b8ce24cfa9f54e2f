"""Data association: what an image shows at a hypothesis, or at the place of a birth.

The map's images there give a local kernel posterior, its read-out a pose, and the landmarks of the
heaviest of them a more precise pose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from kbf_localization.arrays import Array, Rows
from kbf_localization.filters.hypothesis import (
    LANDMARK_ROWS,
    Hypothesis,
    MeasuredPose,
    contradicts,
    from_fix,
    innovation,
    is_sound,
    landmark_update,
)
from kbf_localization.filters.kernel_step import Birthplace, LocalKernelBayes, LocalPosterior
from kbf_localization.landmarks.calibration import MIN_INLIERS, REACH
from kbf_localization.landmarks.landmark_map import MAX_LOG_RATIO
from kbf_localization.landmarks.pose_solver import LandmarkFix
from kbf_localization.training_map.calibration import (
    Calibration,
    LikelihoodRatioModel,
    discounted,
)
from kbf_localization.training_map.training_map import MapObservation

MIN_CONFIRMING_COVERAGE = 0.5
"""Coverage from which on the map shows a place, so that an image may fit there."""

MAX_ALIGNMENT_RATIO = 8.0
"""Bound of the log likelihood ratio between places by the alignment of their images."""


def log_ratio(fix: LandmarkFix) -> float:
    """Return the calibrated log likelihood ratio of "here" against "elsewhere", bounded."""
    return float(np.clip(fix.log_likelihood_ratio, -MAX_LOG_RATIO, MAX_LOG_RATIO))


def agreement(component: Hypothesis, fix: LandmarkFix, scales: Array) -> float:
    """Return the log density ratio ≥ 0 of a fix's pose where it was predicted against anywhere.

    A fix at a wrong place is anywhere within the map's scales (3,) of the predicted pose.
    """
    _, covariance, squared = innovation(component, fix)
    log_volume = float(np.log(2.0 * scales).sum())
    log_density = -0.5 * (float(np.linalg.slogdet(2.0 * np.pi * covariance)[1]) + squared)
    found = log_volume + log_density
    return max(found, 0.0) if np.isfinite(found) else 0.0


@dataclass(frozen=True)
class Association:
    """A hypothesis with its local posterior given an image, and the log odds of the fit there.

    `fix` is the pose that landmarks measure there, None where they do not; `agreement` how far it
    speaks for the hypothesis by being where that predicts it, a log ratio ≥ 0. `unmeasured` tells
    that landmarks of the map's images there were looked for, and measure nothing; `from_afar` that
    the fix is on landmarks of images farther than whole images look alike.
    """

    hypothesis: Hypothesis
    posterior: LocalPosterior
    log_odds: float
    fix: LandmarkFix | None = None
    agreement: float = 0.0
    unmeasured: bool = False
    from_afar: bool = False

    @property
    def fit(self) -> float:
        """Return the log odds that the image shows the place, by the words or by landmarks."""
        return self.log_odds if self.fix is None else max(self.log_odds, log_ratio(self.fix))

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
    def landmark_ratio(self) -> float:
        """Return the log-likelihood ratio of the landmarks against elsewhere, 0 without a fix.

        Few landmarks speak against a place as far as the map covers it, and as they do not agree
        with the hypothesis. A fix that contradicts it does not speak for it; one that re-anchors it
        does: of copies of a place, the gate would else choose by chance.
        """
        if self.fix is None:
            return 0.0
        ratio = self._fitting_ratio
        if ratio < 0.0:
            return self.information * ratio
        return 0.0 if contradicts(self.hypothesis, self.fix) else ratio

    @property
    def _fitting_ratio(self) -> float:
        """Return the fix's log-likelihood ratio; agreement excuses few landmarks, and no more."""
        assert self.fix is not None
        ratio = log_ratio(self.fix)
        return ratio if ratio >= 0.0 else min(ratio + self.agreement, 0.0)

    @cached_property
    def contradicted(self) -> bool:
        """Tell whether landmarks speak for another pose, which the hypothesis cannot take on."""
        return (
            self.fix is not None
            and log_ratio(self.fix) > 0.0
            and contradicts(self.hypothesis, self.fix)
        )

    def evidence(self, floor: float = 0.0) -> float:
        """Return the larger log-likelihood ratio, by the whole image or by landmarks."""
        whole = self.log_ratio(floor)
        if self.fix is None or self.contradicted:
            return whole
        return max(whole, self._fitting_ratio)

    @property
    def confirms(self) -> bool:
        """Tell whether the image fits at the hypothesis: by landmarks, or by the map's images.

        It does not where landmarks contradict, nor where the map shows nothing of the place,
        whatever the likelihood ratio.
        """
        if self.contradicted:
            return False
        if self.fix is not None and self._fitting_ratio >= 0.0:
            return True
        return self.posterior.coverage > MIN_CONFIRMING_COVERAGE and self.log_odds > 0.0

    def with_log_weight(self, log_weight: float) -> Association:
        """Return the same with another weight of the hypothesis."""
        return replace(self, hypothesis=self.hypothesis.with_log_weight(log_weight))


def landmark_ratios(associations: Sequence[Association]) -> Array:
    """Return the log-likelihood ratios (j,) of hypotheses by their landmarks.

    Those in favour are all as large as the largest. A place whose landmarks fit is the right one or
    a copy of it; how many of them fit depends on how near the map's views are.
    """
    ratios = np.array([association.landmark_ratio for association in associations])
    return np.where(ratios > 0.0, ratios.max(initial=0.0), ratios)


@dataclass(frozen=True)
class Fit:
    """The log odds of the image where it fits `best`, by the map's images alone.

    `recognized` is the probability that it shows the map, by landmarks too. `renewal` is the
    fraction of its evidence that is new; `by_landmarks` tells whether landmarks can measure its
    pose.
    """

    best: float
    recognized: float
    renewal: float
    by_landmarks: bool


def best_fit(
    everything: Sequence[Association],
    evidence: LikelihoodRatioModel,
    renewal: float,
    by_landmarks: bool,
    doubtful: bool,
) -> Fit:
    """Return how well the image fits where it fits best, among places that the map shows.

    Where the robot is in doubt, landmarks alone recognize a place; a confirmed pose, which the
    images continue, is not given up for landmarks that look alike.
    """
    shown = [
        association
        for association in everything
        if association.posterior.coverage > MIN_CONFIRMING_COVERAGE
    ]
    best = max((item.log_odds for item in shown or everything), default=0.0)
    with_landmarks = max((item.fit for item in shown or everything), default=0.0)
    recognized = evidence.recognition(with_landmarks if doubtful else best)
    return Fit(best, recognized, renewal, by_landmarks)


def is_known(component: Hypothesis, fix: LandmarkFix) -> bool:
    """Tell whether a component's position is as sure as a fix from afar, which then adds nothing.

    The error of such a fix is that of landmarks seen from where the map's images did not. The next
    image repeats it, so that the mean of several fixes is no better than one.
    """
    known, measured = component.covariance[:2, :2], fix.covariance[:2, :2]
    return bool(np.trace(known) <= np.trace(measured))


def _heaviest_rows(posterior: LocalPosterior) -> Rows:
    """Return the map's rows whose landmarks are matched."""
    return posterior.rows[np.argsort(-posterior.weights, kind="stable")[:LANDMARK_ROWS]]


class Associator:
    """Associates images with hypotheses on a map with a `calibration`."""

    def __init__(self, local: LocalKernelBayes, calibration: Calibration) -> None:
        self._local = local
        self._similarity = calibration.similarity
        self._evidence = calibration.likelihood_ratio
        self._relative_pose = calibration.relative_pose

    def associate(
        self, component: Hypothesis, observation: MapObservation, by_landmarks: bool
    ) -> Association:
        """Return what the image shows round a component; landmarks are matched where asked for."""
        posterior = self._local_posterior(observation, component)
        fix = self._landmark_fix(observation, posterior, component) if by_landmarks else None
        found = self._association(component, posterior, fix)
        if fix is None:
            rows = _heaviest_rows(posterior)
            expected = by_landmarks and observation.landmarks_shown(rows) >= MIN_INLIERS
            return replace(found, unmeasured=expected)
        return replace(
            found,
            agreement=agreement(component, fix, self._similarity.scales),
            from_afar=len(posterior.rows) == 0,
        )

    def alignment_ratios(self, associations: Sequence[Association]) -> Array:
        """Return the log likelihood ratios (j,) ≤ 0 of places by how well their images align."""
        prominence = np.array([association.posterior.prominence for association in associations])
        below = self._evidence.prominence_coefficient * (prominence - prominence.max(initial=0.0))
        return np.asarray(np.maximum(below, -MAX_ALIGNMENT_RATIO))

    def births(
        self,
        places: Sequence[Birthplace],
        observation: MapObservation,
        first_number: int,
        thorough: bool,
    ) -> dict[Birthplace, Association]:
        """Return the components of the places that measure a pose, numbered from the first."""
        births: dict[Birthplace, Association] = {}
        for place in places:
            number = first_number + len(births)
            birth = self.birth(place, observation, number, thorough)
            if birth is not None:
                births[place] = birth
        return births

    def birth(
        self, place: Birthplace, observation: MapObservation, number: int, thorough: bool
    ) -> Association | None:
        """Return the component of a place with this `number`; None where no pose is measured.

        Landmarks that speak for the place are matched again round the pose that they measure; where
        nothing else is known, be `thorough` and match all of them.
        """
        posterior = self._local.measure(
            observation, place.rows, place.weights, place.pose, self._relative_pose
        )
        # A birth says that the match is right: its pose errs as right matches do.
        measured = self._measured(posterior, 1.0, 1.0)
        if measured is None:
            return None
        component = Hypothesis.from_measurement(measured, number)
        fix = self._landmark_fix(observation, posterior, component)
        if fix is None:
            return self._association(component, posterior, None)
        component = from_fix(fix, number)
        if thorough or fix.log_likelihood_ratio > 0.0:
            return self._measured_again(observation, component, fix)
        return self._association(component, posterior, fix)

    def _measured_again(
        self, observation: MapObservation, component: Hypothesis, fix: LandmarkFix
    ) -> Association:
        """Return a birth by landmarks, matched with the map images round where they put it."""
        posterior = self._local_posterior(observation, component)
        again = self._landmark_fix(observation, posterior, component)
        if again is not None and again.inliers > fix.inliers:
            component, fix = from_fix(again, component.number), again
        return self._association(component, posterior, fix)

    def correct(
        self, component: Hypothesis, association: Association, new: float, continues: bool
    ) -> tuple[Hypothesis, float] | None:
        """Return the component after what the image measures there; None where nothing does.

        A fraction `new` of the read-out is independent of the last. Where the image does not
        continue the sequence, landmarks of another place give births, but move no component there.
        With it comes how much that surprises, a mean square with expectation one.
        """
        result = None
        if association.fix is not None and not (
            association.from_afar and is_known(component, association.fix)
        ):
            result = landmark_update(component, association.fix, reanchor=continues)
        if result is not None or not new > 0.0:
            return result
        # The less the image fits there, the less its pose is trusted.
        trust = float(expit(association.log_ratio())) * max(association.posterior.coverage, 1e-3)
        measured = self._measured(association.posterior, new, trust)
        if measured is None:
            return None
        return component.update(measured)

    def _local_posterior(
        self, observation: MapObservation, component: Hypothesis
    ) -> LocalPosterior:
        """Return the local posterior round a component."""
        return self._local.posterior(
            observation, component.pose, component.covariance, self._relative_pose
        )

    def _association(
        self, component: Hypothesis, posterior: LocalPosterior, fix: LandmarkFix | None
    ) -> Association:
        return Association(component, posterior, posterior.log_odds(self._evidence), fix)

    def _landmark_fix(
        self, observation: MapObservation, posterior: LocalPosterior, component: Hypothesis
    ) -> LandmarkFix | None:
        """Return the pose by the landmarks of map images at a component, if there are any."""
        if not observation.has_landmarks:
            return None
        rows = self._landmark_rows(posterior, component.pose)
        if len(rows) == 0:
            return None
        fix = observation.landmark_fix(rows, component.pose, component.covariance)
        return fix if fix is not None and is_sound(fix) else None

    def _landmark_rows(self, posterior: LocalPosterior, pose: Array) -> Rows:
        """Return the posterior's heaviest rows; where they are few, also the nearest in reach."""
        rows = _heaviest_rows(posterior)
        if len(rows) == LANDMARK_ROWS:
            return rows
        near = self._local.nearest_rows(pose, LANDMARK_ROWS, REACH)
        return np.concatenate((rows, near[~np.isin(near, rows)]))[:LANDMARK_ROWS]

    def _measured(self, posterior: LocalPosterior, new: float, trust: float) -> MeasuredPose | None:
        """Return the pose that a local posterior measures; less trust gives larger variances."""
        if posterior.pose is None or not np.isfinite(posterior.pose).all():
            return None
        variances = self._relative_pose.variances(
            posterior.prominence, self._similarity.apparent_separation(posterior.contrast)
        )
        return MeasuredPose(
            posterior.pose, variances / max(trust, 1e-6), self._relative_pose.bias_fraction, new
        )
