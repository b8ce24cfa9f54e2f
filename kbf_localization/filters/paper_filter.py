"""The kernel Bayes filter with a model of the motion: Algorithm 1 of the paper, and no more.

Each of its three parts is one method: initial prior sampling (`reset`), prediction (weight
computation 1, `_predict`) and correction by the image (weight computation 2, `_update`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.noise import GaussianNoise
from kbf_localization.embeddings.posterior_weights import block_posterior_weights
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.events import Event
from kbf_localization.filters.base import Estimate, GaussianPrior, Weights
from kbf_localization.filters.map_projection import MapProjection
from kbf_localization.filters.parameters import KernelParameters
from kbf_localization.filters.point_estimates import point_estimates
from kbf_localization.filters.pose_space import PoseSpace
from kbf_localization.geometry import embed, unembed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map.image_gram_cache import ImageGramCache
from kbf_localization.training_map.observation import MapObservation
from kbf_localization.training_map.training_map import TrainingMap

NEGLIGIBLE = 1e-7
"""Weights below this share of the largest one are dropped; `exact` drops none."""

PRIOR_SAMPLES = 300
UNKNOWN_MOTION = 0.5
"""Standard deviation, in kernel widths, of a motion that the odometry does not tell."""


@dataclass(frozen=True)
class Belief:
    """Weighted embedded points (m, 4); those of an update are poses of the map."""

    points: Array
    weights: Array


class PaperFilter:
    """Filters poses on a training map by hybrid kernel Bayesian inference.

    `exact` computes on the whole map at every step, for reference; otherwise a step computes on
    the part of the map where the belief is.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        parameters: KernelParameters = KernelParameters(),  # noqa: B008 (frozen)
        exact: bool = False,
    ) -> None:
        self.space = PoseSpace(
            training_map.poses, parameters.bandwidth, parameters.heading_bandwidth
        )
        self._parameters = parameters
        self._exact = exact
        self._power = max(1, round(parameters.power))
        kernel = self.space.kernel
        noise = np.asarray(training_map.motion_variances) * parameters.noise_inflation
        self._motion_rule = ModelBasedSumRule(_moved_points, GaussianNoise(np.diag(noise)), kernel)
        unknown = GaussianNoise(np.diag((UNKNOWN_MOTION * self.space.widths) ** 2))
        self._standstill_rule = ModelBasedSumRule(_same_points, unknown, kernel)
        ridge = parameters.regularization * kernel.at_zero()
        self._projection = MapProjection(self.space, ridge, exact)
        self._image_gram = ImageGramCache(training_map, self._power)
        self._least_sigma = 0.25 * self.space.widths[[0, 0, 2]]
        self.reset()

    def prepare(self) -> None:
        """Compute now what the first images would else wait for."""
        self._image_gram.fill()

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Initial prior sampling; no `prior` is the uniform one on the map's poses."""
        self._events: list[Event] = []
        self._belief = None if prior is None else _sampled(prior)

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        """One turn of Algorithm 1; the first has no motion and starts from the initial prior."""
        self._events = []
        prior = self._predict(motion)
        posterior = self._update(prior, observation)
        self._belief = Belief(self.space.points[posterior.rows], posterior.values)
        points = point_estimates(posterior, self.space, self._least_sigma)
        return Estimate(
            pose=points.mode_mean,
            covariance=points.covariance,
            highest_weight_pose=points.highest_weight,
            weights=posterior,
            evidence=float("nan"),
            events=tuple(self._events),
            preimage_pose=points.preimage,
        )

    def _predict(self, motion: Array | None) -> Weights:
        """Weight computation 1: β = (G_X + nεI)⁻¹ G_{X'|X} α, normalized."""
        if self._belief is None:
            count = len(self.space)
            return Weights(np.arange(count), np.full(count, 1.0 / count))
        projected = self._projection.weights(self._moved_mean(self._belief, motion))
        total = float(projected.values.sum())
        if np.isfinite(total) and total > 1e-9 * float(np.abs(projected.values).sum()):
            return Weights(projected.rows, projected.values / total)
        self._events.append(Event.PREDICTION_OFF_MAP)
        rows = np.unique(self.space.nearest(self._belief.points))
        return Weights(rows, np.full(len(rows), 1.0 / len(rows)))

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Σ_i α_i m_{X_t | x_{t-1} = X_i} (forwardkernelmeanMb)."""
        mean = KernelMean(belief.points, belief.weights, self.space.kernel)
        if motion is None or not np.isfinite(motion).all():
            return self._standstill_rule(mean)
        return self._motion_rule(mean, motion)

    def _update(self, prior: Weights, observation: MapObservation) -> Weights:
        """Weight computation 2: α = R_{X|Z}(β) k_Z(z_t), on the support of β, normalized."""
        prior = self._without_negligible(prior)
        similarities = np.nan_to_num(observation.similarities(prior.rows), posinf=0.0, neginf=0.0)
        highest = float(similarities.max(initial=0.0))
        if not highest > 0.0:
            self._events.append(Event.UNRECOGNIZED_IMAGE)
            return prior
        likeness = (similarities / highest) ** self._power
        delta = self._parameters.delta * float(np.abs(prior.values).max()) ** 2
        posterior = block_posterior_weights(
            prior.values, self._image_gram.block(prior.rows), likeness, delta
        )
        total = float(posterior.sum())
        if not (np.isfinite(total) and total > 1e-12 * float(np.abs(posterior).sum())):
            self._events.append(Event.UPDATE_NOT_POSITIVE)
            return prior
        kept = self._without_negligible(Weights(prior.rows, posterior / total))
        return Weights(kept.rows, kept.values / kept.values.sum())

    def _without_negligible(self, weights: Weights) -> Weights:
        if self._exact:
            return weights
        sizes = np.abs(weights.values)
        kept = sizes > NEGLIGIBLE * sizes.max(initial=0.0)
        return Weights(weights.rows[kept], weights.values[kept])


def _moved_points(points: Array, motion: Array) -> Array:
    """f on embedded points (n, 4)."""
    return transition(unembed(points), motion)


def _same_points(points: Array) -> Array:
    return points


def _sampled(prior: GaussianPrior) -> Belief:
    """Equally weighted samples of p(x_1), the same ones for the same prior."""
    generator = np.random.default_rng(0)
    covariance = np.asarray(prior.covariance, dtype=np.float64)
    poses = generator.multivariate_normal(prior.pose, covariance, PRIOR_SAMPLES, method="svd")
    return Belief(embed(poses), np.full(PRIOR_SAMPLES, 1.0 / PRIOR_SAMPLES))
