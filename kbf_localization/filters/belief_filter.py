"""The kernel Bayes filter on a belief of Gaussian points with a null hypothesis.

At every image each component is predicted by the odometry (Mb-KSR of a Gaussian point, exact), and
the heaviest are updated by the poses that the image measures there. Once the robot has moved by
half of the map's own scale, or by a tenth while no component is confirmed, a kernel step: all
components compete in one kernel Bayes' rule, posterior weight outside their association gates
becomes new components, and of what the map cannot represent a part goes to the null hypothesis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.filters.association import (
    Association,
    Associator,
    Fit,
    best_fit,
    landmark_ratios,
)
from kbf_localization.filters.base import Estimate, GaussianPrior, is_known
from kbf_localization.filters.hypothesis import (
    MAX_MEASURED,
    MIN_DISCONTINUITY,
    MIN_MEASURED_PROBABILITY,
    Continuity,
    ContinuityMonitor,
    Hypothesis,
    Transfer,
    odometry_surprise,
    posterior_weights,
    transfer,
)
from kbf_localization.filters.kernel_belief import (
    CONFIRMED_PROBABILITY,
    KernelBelief,
    Merged,
    merge_and_prune,
)
from kbf_localization.filters.kernel_step import (
    Birthplace,
    KernelStep,
    LocalKernelBayes,
    Posterior,
    Projection,
)
from kbf_localization.filters.parameters import BeliefParameters
from kbf_localization.filters.publication import ImageAssociations, Publisher
from kbf_localization.filters.smoothing import Step
from kbf_localization.motion.noise import AdaptiveMotionNoise
from kbf_localization.training_map.calibration import VIEW_CORRELATION_LENGTH, information_fraction
from kbf_localization.training_map.training_map import MapObservation, TrainingMap

KERNEL_STEP_TRAVEL, DOUBTFUL_STEP_TRAVEL = 0.5, 0.1
"""Travel d/d₀ + φ/φ₀ between kernel steps: images so far apart are nearly independent; and as long
as no component is confirmed."""

SEARCHED_POSES = 5000
"""Map poses that are searched at each kernel step; larger maps are searched more rarely."""

MAX_FIRST_BIRTHS, MAX_BIRTHS = 16, 4
"""New components of an image where nothing is known, and of any other image."""

UNVERIFIED_BIRTH = -2.0
"""Log factor on a birth that the map's landmarks do not confirm."""

UNKNOWN_MOTION_SIGMA = 0.5
"""Standard deviation, in d₀ and φ₀, of a motion that the odometry does not report."""

MIN_WEIGHT = 1e-300
"""Keeps logarithms of weights finite."""


@dataclass(frozen=True)
class Ablation:
    """Parts of the filter that can be left out, to measure what each is worth."""

    odometry: bool = True
    """Without it components are predicted by a random walk of the same travel."""
    null_mass: bool = True
    """Without it what the map cannot represent stays with its component."""


@dataclass(frozen=True)
class Motion:
    """A motion (3,), None where it is unknown, with `variances` (3,) and its scaled `travel`.

    `bias_correlation` is that of the measurement bias before and after it.
    """

    motion: Array | None
    variances: Array
    travel: float
    bias_correlation: float


@dataclass(frozen=True)
class Reweighted:
    """Components and `births` with new weights, not yet normalized, and the null weight.

    `survival` is the log factor on each component's weight, `leaks` the fraction that left it, by
    numbers; `log_reservoir` is the log weight of all that left and of the null hypothesis before.
    `best_fit` is that of the place where the image fits best; `searched` whether the
    whole map was searched.
    """

    components: tuple[Hypothesis, ...]
    log_null: float
    best_fit: float
    searched: bool = False
    births: tuple[Association, ...] = ()
    survival: dict[int, float] = field(default_factory=dict)
    leaks: dict[int, float] = field(default_factory=dict)
    log_reservoir: float = 0.0


@dataclass(frozen=True)
class Prior:
    """Weights before the rule: of the components with what is seen there, map prior and null.

    `coverage` (j,) is κ of each, `ruled` (j,) the weights that go through the rule.
    """

    own: tuple[Association, ...]
    moved: Transfer
    coverage: Array
    ruled: Array


class BeliefFilter:
    """Filters poses on a training map; nothing in it counts images, only metres and radians."""

    def __init__(
        self,
        training_map: TrainingMap,
        parameters: BeliefParameters = BeliefParameters(),  # noqa: B008 (frozen)
        ablation: Ablation = Ablation(),  # noqa: B008 (frozen)
    ) -> None:
        self._calibration = training_map.calibration
        self._similarity = self._calibration.similarity
        self._poses = training_map.poses
        self._local = LocalKernelBayes(training_map, self._similarity, parameters)
        self._kernel = KernelStep(self._local)
        self._associator = Associator(self._local, self._calibration)
        self._continuity = ContinuityMonitor(self._calibration)
        self._ablation = ablation
        self._publisher = Publisher(self._calibration, self._poses)
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""
        self._local.prepare()

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Forget everything; start from `prior`, or from anywhere on the map when None."""
        self._belief = KernelBelief.from_prior(prior)
        self._continuity.reset()
        self._publisher.reset()
        self._noise = AdaptiveMotionNoise()

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """Predict, measure, reweight, update, give birth, merge and prune."""
        before, moved = self._belief, self._motion(motion, variances)
        continuity = self._continuity.update(moved.motion, observation)
        # Mb-KSR, section 4.1: a Gaussian point under the odometry model stays Gaussian, exact.
        predicted = self._predict(before, moved, continuity)
        due = self._kernel_step_is_due(predicted, continuity)
        seen = self._measure(predicted, observation, continuity, everything=due)
        if due:
            weighted = self._kernel_step(predicted, seen, observation, continuity)
        else:
            weighted = _unchanged(predicted, seen)
        updated = self._update(weighted, seen, moved.travel, continuity)
        births = [birth.hypothesis for birth in weighted.births]
        merged = merge_and_prune(
            [*updated, *births], weighted.log_null, self._similarity, self._publisher.number
        )
        self._belief = predicted.followed_by(
            merged, len(births), kernel_step=due, searched=weighted.searched
        )
        record = self._record(before, moved, continuity, predicted, weighted, merged)
        return self._publish(seen, weighted, moved, continuity, record)

    def _motion(self, motion: Array | None, variances: Array | None) -> Motion:
        """Return the motion with its noise and travel; a wide random step where it is unknown."""
        scales = self._similarity.scales
        if not is_known(motion):
            return Motion(None, (UNKNOWN_MOTION_SIGMA * scales) ** 2, 1.0, 1.0)
        distance, turned = float(np.hypot(motion[0], motion[1])), abs(float(motion[2]))
        travel = self._similarity.scaled_distance(distance, turned)
        if not self._ablation.odometry:
            return Motion(None, np.array([distance, distance, turned]) ** 2, travel, 1.0)
        if variances is None:
            variances = self._calibration.motion_noise.variances(distance, turned)
        correlation = float(np.exp(-travel / self._calibration.relative_pose.correlation_length))
        return Motion(motion, self._noise.inflation * variances, travel, correlation)

    def _predict(self, belief: KernelBelief, moved: Motion, continuity: Continuity) -> KernelBelief:
        """Return the belief after the motion; a discontinuity also renews the measurement bias."""

        def predict(component: Hypothesis) -> Hypothesis:
            if moved.motion is None:
                component = component.inflate(moved.variances)
            else:
                component = component.predict(moved.motion, moved.variances, moved.bias_correlation)
            return (
                component.decorrelate(continuity.discontinuity)
                if continuity.discontinuity > 0.0
                else component
            )

        return KernelBelief(
            tuple(predict(component) for component in belief.components),
            belief.log_null,
            belief.travel + moved.travel,
            belief.unsearched + moved.travel,
            belief.next_number,
        )

    def _kernel_step_is_due(self, belief: KernelBelief, continuity: Continuity) -> bool:
        if continuity.frozen:
            return False
        confirmed = belief.max_probability > CONFIRMED_PROBABILITY
        needed = KERNEL_STEP_TRAVEL if confirmed else DOUBTFUL_STEP_TRAVEL
        return continuity.jumps or belief.travel >= needed

    def _measure(
        self,
        belief: KernelBelief,
        observation: MapObservation,
        continuity: Continuity,
        everything: bool,
    ) -> tuple[Association, ...]:
        """Return what the image says round the heaviest and the published, or `everything`.

        Where weights are compared, landmarks measure every place that matters: copies of a place
        that are not looked at would lose to those that are.
        """
        if continuity.frozen:
            return ()
        found = []
        ranked = sorted(belief.components, key=lambda component: -component.log_weight)
        for rank, item in enumerate(ranked):
            likely = item.probability > MIN_MEASURED_PROBABILITY
            heavy = likely and (everything or rank < MAX_MEASURED)
            if not (everything or heavy or item.number == self._publisher.number):
                continue
            found.append(self._associator.associate(item, observation, by_landmarks=heavy))
        return tuple(found)

    def _kernel_step(
        self,
        belief: KernelBelief,
        seen: Sequence[Association],
        observation: MapObservation,
        continuity: Continuity,
    ) -> Reweighted:
        """Return the weights after sum rule and Bayes' rule on the map's poses, and the births."""
        search = self._search_is_due(belief, seen, continuity)
        # Algorithm 1, weight computation 1 (Mb-KSR, section 4.1): β on the active rows.
        projection = self._kernel.project(belief.components, observation, search)
        prior = self._prior(belief, seen, projection, continuity)
        # Algorithm 1, weight computation 2 (KBR, section 3.6): α = R_{X|Z}(β) k_Z(z).
        posterior = self._kernel.bayes(
            projection,
            belief.components,
            prior.ruled,
            prior.moved.map_mass,
            observation,
            _max_births(search, continuity.jumps),
        )
        births = self._associator.births(
            posterior.births, observation, belief.next_number, thorough=continuity.jumps
        )
        fit = best_fit(
            [*prior.own, *births.values()],
            self._calibration.likelihood_ratio,
            self._renewal(belief.travel, continuity),
            observation.has_landmarks,
            continuity.jumps or belief.max_probability < CONFIRMED_PROBABILITY,
        )
        birth_mass = fit.recognized * prior.moved.map_mass if births else 0.0
        weights = self._weights(prior, posterior, births, fit, birth_mass)
        weighted = [
            item.with_log_weight(float(np.log(max(weight, MIN_WEIGHT))))
            for item, weight in zip((*prior.own, *births.values()), weights, strict=True)
        ]
        count, reservoir = len(prior.own), prior.moved.reservoir
        return Reweighted(
            components=tuple(item.hypothesis for item in weighted[:count]),
            log_null=float(np.log(max(reservoir - birth_mass, MIN_WEIGHT))),
            best_fit=fit.best,
            searched=search,
            births=tuple(weighted[count:]),
            survival={
                new.hypothesis.number: new.hypothesis.log_weight - old.log_weight
                for old, new in zip(belief.components, weighted, strict=False)
            },
            leaks={
                component.number: float(leak)
                for component, leak in zip(belief.components, prior.moved.leaks, strict=True)
            },
            log_reservoir=float(np.log(max(reservoir, MIN_WEIGHT))),
        )

    def _prior(
        self,
        belief: KernelBelief,
        seen: Sequence[Association],
        projection: Projection,
        continuity: Continuity,
    ) -> Prior:
        """Return the weights before the rule: 1 − κ and the hazard leave for the null weight."""
        by_number = {association.hypothesis.number: association for association in seen}
        own = tuple(by_number[component.number] for component in belief.components)
        coverage = projection.coverage if self._ablation.null_mass else np.ones(len(own))
        moved = transfer(
            belief.weights,
            belief.null_probability,
            coverage,
            belief.travel,
            continuity.discontinuity,
            continuity.first,
        )
        # A component that landmarks measure keeps its weight, times their likelihood ratio.
        ruled = coverage * moved.masses * [item.fix is None for item in own]
        return Prior(own, moved, coverage, ruled)

    def _weights(
        self,
        prior: Prior,
        posterior: Posterior,
        births: Mapping[Birthplace, Association],
        fit: Fit,
        birth_mass: float,
    ) -> Array:
        """Return the weights (j + b,) of components and births after the image.

        α decides between places, the calibrated likelihood ratio between the map and the null
        hypothesis; what the map cannot represent of a component keeps its weight.
        """
        count, everything = len(prior.own), [*prior.own, *births.values()]
        measured = np.array([association.fix is not None for association in everything], dtype=bool)
        parts = np.array([place.posterior for place in births])
        new = birth_mass * parts / max(parts.sum(), MIN_WEIGHT)
        before = np.array([*posterior.before, *(place.prior for place in births)])
        after = np.array([*posterior.after, *parts]) * np.exp(
            self._associator.alignment_ratios(everything)
        )
        weights = posterior_weights(
            np.where(measured, 0.0, before),
            after,
            np.where(measured, 0.0, [*prior.ruled, *new]),
            fit.renewal
            * np.array([association.log_ratio(min(fit.best, 0.0)) for association in everything]),
            fit.renewal * fit.recognized,
        )
        weights[:count] += (1.0 - prior.coverage) * prior.moved.masses
        if fit.by_landmarks:
            weights[count:] *= np.exp(UNVERIFIED_BIRTH)
        # Where landmarks measure the pose, they alone decide on the place.
        by_landmarks = np.array(
            [
                *(prior.moved.masses * np.exp(fit.renewal * landmark_ratios(prior.own))),
                *(new * np.exp([birth.landmark_ratio for birth in births.values()])),
            ]
        )
        return np.where(measured, by_landmarks, weights)

    def _search_is_due(
        self, belief: KernelBelief, seen: Sequence[Association], continuity: Continuity
    ) -> bool:
        """Return whether the best matches over the whole map are asked for: always in doubt.

        Landmarks that measure a confirmed pose leave nothing to search for. Without them a large
        map is searched more rarely while all is well, so that a step costs no more.
        """
        best = max((association.fit for association in seen), default=-1.0)
        if continuity.jumps or belief.max_probability < CONFIRMED_PROBABILITY or best < 0.0:
            return True
        if any(association.landmark_ratio > 0.0 for association in seen):
            return False
        return belief.unsearched >= KERNEL_STEP_TRAVEL * len(self._poses) / SEARCHED_POSES

    def _renewal(self, travel: float, continuity: Continuity) -> float:
        """Return the fraction of an image's evidence that is new after `travel`."""
        if continuity.jumps:
            return 1.0
        return self._calibration.likelihood_ratio.information_fraction(travel)

    def _update(
        self,
        weighted: Reweighted,
        seen: Sequence[Association],
        travel: float,
        continuity: Continuity,
    ) -> list[Hypothesis]:
        """Kalman steps by landmarks or read-out; the motion noise follows the published."""
        new = 1.0 if continuity.jumps else information_fraction(travel, VIEW_CORRELATION_LENGTH)
        updated = {item.number: item for item in weighted.components}
        for association in seen:
            number = association.hypothesis.number
            continues = not continuity.jumps
            result = self._associator.correct(updated[number], association, new, continues)
            if result is None:
                continue
            predicted, (updated[number], surprise) = updated[number], result
            if number != self._publisher.number:
                continue
            if association.fix is not None and updated[number].since_landmarks_m == 0.0:
                self._noise.update(*odometry_surprise(predicted, association.fix))
            else:
                correlation = self._calibration.relative_pose.correlation_length
                self._noise.update(surprise, information_fraction(travel, correlation))
        return list(updated.values())

    def _publish(
        self,
        seen: Sequence[Association],
        weighted: Reweighted,
        moved: Motion,
        continuity: Continuity,
        record: Step,
    ) -> Estimate:
        """Return the estimate; inflate the motion noise where a confirmed pose was wrong."""
        associations = ImageAssociations(
            tuple(seen), weighted.births, weighted.best_fit, continuity
        )
        renewal = self._renewal(moved.travel, continuity)
        self._publisher.update(self._belief, associations, moved.motion, moved.travel, renewal)
        if self._publisher.switched and continuity.discontinuity <= MIN_DISCONTINUITY:
            self._noise.inflate()
        return self._publisher.estimate(self._belief, associations, self._noise.broken, record)

    def _record(
        self,
        before: KernelBelief,
        moved: Motion,
        continuity: Continuity,
        predicted: KernelBelief,
        weighted: Reweighted,
        merged: Merged,
    ) -> Step:
        """Return what the smoother needs to know about this step."""
        numbers = [component.number for component in before.components]
        return Step(
            begins=continuity.first,
            motion=np.zeros(3) if moved.motion is None else moved.motion,
            noise=moved.variances,
            bias_correlation=moved.bias_correlation * (1.0 - continuity.discontinuity),
            predicted={component.number: component for component in predicted.components},
            after={component.number: component for component in merged.components},
            log_elsewhere=merged.log_null,
            survival=dict.fromkeys(numbers, 0.0) | weighted.survival,
            leaks=dict.fromkeys(numbers, 0.0) | weighted.leaks,
            births={
                birth.hypothesis.number: birth.hypothesis.log_weight - weighted.log_reservoir
                for birth in weighted.births
            },
            merged_into=merged.merged_into,
            null_survival=weighted.log_null - weighted.log_reservoir if weighted.births else 0.0,
        )


def _max_births(search: bool, nothing_known: bool) -> int:
    if not search:
        return 0
    return MAX_FIRST_BIRTHS if nothing_known else MAX_BIRTHS


def _unchanged(belief: KernelBelief, seen: Sequence[Association]) -> Reweighted:
    """Return the weights as they are: between kernel steps images only measure poses."""
    best = max((association.log_odds for association in seen), default=0.0)
    return Reweighted(belief.components, belief.log_null, best)
