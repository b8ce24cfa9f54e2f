"""The kernel Bayes filter with a model of the motion: Algorithm 1 of the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.noise import GaussianNoise
from kbf_localization.embeddings.posterior_weights import block_posterior_weights
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.filters.base import (
    Array,
    Estimate,
    GaussianPrior,
    Observation,
    PoseMap,
    Weights,
)
from kbf_localization.filters.image_gram_cache import SMALL_MAP, ImageGramCache
from kbf_localization.filters.map_projection import MapProjection
from kbf_localization.filters.parameters import FilterParameters
from kbf_localization.filters.point_estimates import point_estimates
from kbf_localization.filters.pose_smoother import PoseSmoother
from kbf_localization.filters.pose_space import PoseSpace
from kbf_localization.filters.whole_map_matching import RememberedSimilarities, WholeMapMatching
from kbf_localization.geometry import embed, unembed, wrap_angle
from kbf_localization.motion.odometry_model import transition

NEGLIGIBLE = 1e-7
"""Weights below this share of the largest one are dropped; exact mode drops none."""

ACTIVE_LIMIT = 500
"""The most map poses of one update; only a belief that is all over the map has more."""

PRIOR_SAMPLES = 300
UNKNOWN_MOTION = 0.5
"""Standard deviation, in kernel widths, of a motion that the odometry does not tell."""

LEAST_SIMILARITY = 0.2
"""An image less similar than this to all of an uncalibrated map says nothing about the place."""

LOOK_ROUND_BELOW = 0.3
"""Evidence at which a large map is looked over at once."""

EVIDENCE_RATE = 0.3
MOST_MIXING = 0.3
LEAST_EVIDENCE = 1e-3
"""The worse the last few images fit the prediction, the more weight goes to the best matches."""


@dataclass(frozen=True)
class Belief:
    """Weighted embedded points (m, 4); those of an update are poses of the map."""

    points: Array
    weights: Array


class KernelBayesFilter:
    """Filters poses on a training map by hybrid kernel Bayesian inference.

    `exact` computes on the whole map at every step, for reference; otherwise a step computes on
    the part of the map where the belief is. `pure` mixes no prior of its own into the prediction,
    as in the paper.
    """

    def __init__(
        self,
        training_map: PoseMap,
        parameters: FilterParameters = FilterParameters(),  # noqa: B008 (frozen)
        exact: bool = False,
        pure: bool = False,
    ) -> None:
        self.parameters = parameters
        self.space = PoseSpace(
            training_map.poses, parameters.bandwidth, parameters.heading_bandwidth
        )
        self._map = training_map
        self._exact = exact
        self._mixing = 0.0 if pure else parameters.mixing
        self._power = max(1, round(parameters.power))
        kernel = self.space.kernel
        variances = np.asarray(training_map.motion_variances) * parameters.noise_inflation
        self.motion_rule = ModelBasedSumRule(
            _moved_points, GaussianNoise(np.diag(variances)), kernel
        )
        unknown = GaussianNoise(np.diag((UNKNOWN_MOTION * self.space.widths) ** 2))
        self._standstill_rule = ModelBasedSumRule(_same_points, unknown, kernel)
        ridge = parameters.regularization * kernel.at_zero()
        self._projection = MapProjection(self.space, ridge, exact)
        self._image_gram = ImageGramCache(training_map, self._power)
        self._least_similarity = (
            0.0 if pure else training_map.thresholds.get("least_similarity", LEAST_SIMILARITY)
        )
        gain = 1.0 if pure else parameters.smoothing
        self._smoother = PoseSmoother(gain, self.space.widths[[0, 2]])
        self._least_sigma = np.array([0.25, 0.25, 0.25]) * self.space.widths[[0, 0, 2]]
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for; of a large map nothing is kept."""
        count = len(self.space)
        if count <= SMALL_MAP:
            self._image_gram.block(np.arange(count))
            uniform = np.full(count, 1.0 / count)
            self._projection.weights(KernelMean(self.space.points, uniform, self.space.kernel))

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Initial prior sampling; no `prior` is the uniform one on the map's poses."""
        self._events: list[str] = []
        self._belief = None if prior is None else _sampled(prior)
        self._matching = WholeMapMatching(len(self.space))
        self._smoother.reset()
        self._recent_evidence = 1.0
        self._familiarity = 1.0

    def step(self, motion: Array | None, observation: Observation) -> Estimate:
        """One turn of Algorithm 1; the first has no motion and starts from the initial prior."""
        self._events = []
        similarities = RememberedSimilarities(observation, len(self.space), self._exact)
        predicted = self._predict(motion)
        prior, evidence = self._kept_recoverable(predicted, similarities)
        posterior = self._update(prior, similarities)
        if not similarities.finite:
            self._events.append("similarity_not_finite")
        # A large map of which nothing is known yet is not worth moving point by point.
        if not (similarities.retrieves and len(posterior.rows) == len(self.space)):
            self._belief = Belief(self.space.points[posterior.rows], posterior.values)
        return self._estimate(posterior, evidence, motion)

    def _predict(self, motion: Array | None) -> Weights:
        """Weight computation 1: β = (G_X + nεI)⁻¹ G_{X'|X} α, normalized."""
        if self._belief is None:
            count = len(self.space)
            return Weights(np.arange(count), np.full(count, 1.0 / count))
        mean = self._moved_mean(self._belief, motion)
        return self._normalized(self._projection.weights(mean), self._belief)

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Σ_i α_i m_{X_t | x_{t-1} = X_i} (forwardkernelmeanMb)."""
        mean = KernelMean(belief.points, belief.weights, self.space.kernel)
        if motion is None or not np.isfinite(motion).all():
            return self._standstill_rule(mean)
        return self.motion_rule(mean, motion)

    def _kept_recoverable(
        self, predicted: Weights, similarities: RememberedSimilarities
    ) -> tuple[Weights, float]:
        """β with a little of the best matches' weight mixed in, and the evidence in [0, 1].

        The evidence is Σ_i β_i k_Z(Z_i, z_t) against the best similarity that the map offers.
        """
        everywhere = len(predicted.rows) == len(self.space)
        considered = predicted
        if everywhere and similarities.retrieves:
            rows = similarities.over_map().rows
            considered = Weights(rows, predicted.values[rows])
        fit = similarities.of(considered.rows)
        seen = float(fit.max(initial=0.0))
        best = self._matching.usual_best(seen)
        expected = self._expected(considered, fit, predicted)
        urgent = seen < self._least_similarity or expected < LOOK_ROUND_BELOW * best**self._power
        if not (everywhere or self._exact or self._matching.due(urgent)):
            return predicted, _ratio(expected, best**self._power)
        usual = self._matching.usual_best(0.0)
        matches = self._matching.look(similarities.over_map())
        evidence = _ratio(expected, matches.best**self._power)
        if matches.best < self._least_similarity:
            self._events.append("image_like_nothing")
            return predicted, evidence
        # An image that the whole map knows less well than usual tells less about the place.
        self._familiarity = _ratio(matches.best, usual) ** self._power if usual > 0.0 else 1.0
        self._recent_evidence += EVIDENCE_RATE * (evidence - self._recent_evidence)
        if self._mixing == 0.0 or self._belief is None:
            return considered, evidence
        need = self._mixing / max(self._recent_evidence, LEAST_EVIDENCE)
        share = self._familiarity * min(need, MOST_MIXING)
        rows = np.union1d(considered.rows, matches.rows)
        mixed = np.zeros(len(rows))
        mixed[np.searchsorted(rows, considered.rows)] = (1.0 - share) * considered.values
        mixed[np.searchsorted(rows, matches.rows)] += share / len(matches.rows)
        return Weights(rows, mixed), evidence

    def _update(self, prior: Weights, similarities: RememberedSimilarities) -> Weights:
        """Weight computation 2: α = R_{X|Z}(β) k_Z(z_t), on the active set, normalized."""
        if "image_like_nothing" in self._events:
            return self._without_negligible(prior)
        prior = self._active(prior, similarities)
        likeness = similarities.of(prior.rows) ** self._power
        highest = float(likeness.max(initial=0.0))
        if not highest > 0.0:
            self._events.append("image_like_nothing")
            return prior
        delta = self.parameters.delta * float(np.abs(prior.values).max()) ** 2
        posterior = block_posterior_weights(
            prior.values, self._image_gram.block(prior.rows), likeness / highest, delta
        )
        total = float(posterior.sum())
        if not (np.isfinite(total) and total > 1e-12 * float(np.abs(posterior).sum())):
            self._events.append("update_not_positive")
            return prior
        kept = self._without_negligible(Weights(prior.rows, posterior / total))
        return Weights(kept.rows, kept.values / kept.values.sum())

    def _estimate(self, posterior: Weights, evidence: float, motion: Array | None) -> Estimate:
        """Point estimates, covariance and events of this step."""
        points = point_estimates(posterior, self.space, self._least_sigma)
        pose = self._smoother.follow(motion, points.mode_mean, self._familiarity)
        apart = points.mode_mean - pose
        apart[2] = wrap_angle(apart[2])
        return Estimate(
            pose=pose,
            covariance=points.covariance + np.outer(apart, apart),
            highest_weight_pose=points.highest_weight,
            weights=posterior,
            evidence=evidence,
            events=tuple(self._events),
            preimage_pose=points.preimage,
        )

    def _active(self, prior: Weights, similarities: RememberedSimilarities) -> Weights:
        """The rows S that matter for an update; KBR is exactly zero where β is."""
        prior = self._without_negligible(prior)
        if self._exact or len(prior.rows) <= ACTIVE_LIMIT:
            return prior
        likeness = similarities.of(prior.rows) ** self._power
        promise = np.abs(prior.values) * (likeness + 1e-3 * likeness.max(initial=0.0))
        kept = np.sort(np.argpartition(-promise, ACTIVE_LIMIT)[:ACTIVE_LIMIT])
        return Weights(prior.rows[kept], prior.values[kept])

    def _without_negligible(self, weights: Weights) -> Weights:
        if self._exact:
            return weights
        sizes = np.abs(weights.values)
        kept = sizes > NEGLIGIBLE * sizes.max(initial=0.0)
        return Weights(weights.rows[kept], weights.values[kept])

    def _normalized(self, weights: Weights, belief: Belief) -> Weights:
        """Weights that sum to one; where they cannot, the robot is off the map."""
        total = float(weights.values.sum())
        if np.isfinite(total) and total > 1e-9 * float(np.abs(weights.values).sum()):
            return Weights(weights.rows, weights.values / total)
        self._events.append("prediction_off_map")
        rows = np.unique(self.space.nearest(belief.points))
        return Weights(rows, np.full(len(rows), 1.0 / len(rows)))

    def _expected(self, considered: Weights, fit: Array, predicted: Weights) -> float:
        """Σ_i β_i k_Z(Z_i, z_t); what is predicted but not considered counts as unlike."""
        positive = np.maximum(considered.values, 0.0)
        total = np.maximum(predicted.values, 0.0).sum()
        return float(positive @ fit**self._power / total)


def _moved_points(points: Array, motion: Array) -> Array:
    """f on embedded points (n, 4)."""
    return transition(unembed(points), motion)


def _same_points(points: Array) -> Array:
    return points


def _ratio(part: float, whole: float) -> float:
    return float(np.clip(part / whole, 0.0, 1.0)) if whole > 0.0 else 0.0


def _sampled(prior: GaussianPrior) -> Belief:
    """Equally weighted samples of p(x_1), the same ones for the same prior."""
    generator = np.random.default_rng(0)
    covariance = np.asarray(prior.covariance, dtype=np.float64)
    poses = generator.multivariate_normal(prior.pose, covariance, PRIOR_SAMPLES, method="svd")
    return Belief(embed(poses), np.full(PRIOR_SAMPLES, 1.0 / PRIOR_SAMPLES))
