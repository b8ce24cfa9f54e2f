"""The methods that the filter is compared with: NAI, NN, fKBF and the kernel Monte Carlo filter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean, herd
from kbf_localization.embeddings.kernels import GaussianKernel
from kbf_localization.embeddings.sum_rules import NonparametricSumRule
from kbf_localization.events import Event
from kbf_localization.filters.base import Estimate, GaussianPrior, Weights, is_known
from kbf_localization.filters.paper_filter import (
    NEGLIGIBLE,
    Belief,
    PoseKernelBayesFilter,
)
from kbf_localization.filters.parameters import (
    MonteCarloParameters,
    NeighbourParameters,
    NonparametricParameters,
    ParticleParameters,
)
from kbf_localization.geometry import difference, embed, unembed
from kbf_localization.motion.odometry_model import transition
from kbf_localization.training_map.training_map import MapObservation, TrainingMap, map_spacing


class NearestImage:
    """Takes no notice of motion, nor of earlier images (section 6.3, NAI)."""

    def __init__(self, training_map: TrainingMap, spread: float = 1.0) -> None:
        """`spread` (m, and rad for the heading) is the standard deviation that it claims."""
        self._poses = training_map.poses
        self._covariance = np.diag([spread**2, spread**2, spread**2])

    def prepare(self) -> None:
        pass

    def reset(self, prior: GaussianPrior | None = None) -> None:
        pass

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        similarities = np.nan_to_num(observation.similarities(), nan=-1.0)
        best = int(np.argmax(similarities))
        pose = self._poses[best].copy()
        return Estimate(
            pose=pose,
            covariance=self._covariance.copy(),
            highest_weight_pose=pose.copy(),
            weights=Weights(np.array([best]), np.ones(1)),
            evidence=float("nan"),
        )


NEAR_WIDTHS = 3.0
"""Likelihood widths round the mode within which particles make the estimate."""

MODE_CANDIDATES = 64


class NeighbourParticleFilter:
    """Particles moved by the odometry model and weighted by the poses of the nearest images.

    With `NeighbourParameters` it is the method that the paper describes: k nearest images of equal
    weight as observation model, and a particle filter. With `ParticleParameters` similar images
    count more, a floor bounds what one image decides, and some particles are placed near the
    nearest images, so that it recovers from a wrong place.
    """

    def __init__(
        self,
        training_map: TrainingMap,
        parameters: ParticleParameters | NeighbourParameters,
        seed: int = 0,
    ) -> None:
        self.parameters = parameters
        self._poses = training_map.poses
        self._points = embed(training_map.poses)
        position = parameters.position_width * map_spacing(self._points)
        heading = parameters.heading_width
        self._widths = np.array([position, position, heading, heading])
        self._sigma = np.sqrt(
            np.asarray(training_map.motion_variances) * parameters.noise_inflation
        )
        self._neighbours = min(max(1, round(parameters.neighbours)), len(self._poses))
        self._count = max(1, round(parameters.particles))
        self._seed = seed
        self.reset()

    def prepare(self) -> None:
        pass

    def reset(self, prior: GaussianPrior | None = None) -> None:
        """Particles from `prior`, or on map poses chosen at random."""
        self._generator = np.random.default_rng(self._seed)
        if prior is None:
            chosen = self._generator.integers(0, len(self._poses), self._count)
            self._particles = self._points[chosen]
            return
        covariance = np.asarray(prior.covariance, dtype=np.float64)
        poses = self._generator.multivariate_normal(
            prior.pose, covariance, self._count, method="svd"
        )
        self._particles = embed(poses)

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        similarities = np.nan_to_num(observation.similarities(), nan=0.0, posinf=0.0, neginf=0.0)
        nearest = np.argpartition(-similarities, self._neighbours - 1)[: self._neighbours]
        image_weights = similarities[nearest] ** self.parameters.power
        events: tuple[Event, ...] = ()
        if not image_weights.sum() > 0.0:
            events, image_weights = (Event.UNRECOGNIZED_IMAGE,), np.ones(len(nearest))
        image_weights = image_weights / image_weights.sum()
        self._move(motion)
        if not events:
            self._inject(nearest)
        likelihoods = (
            self._likelihoods(nearest, image_weights) if not events else np.ones(self._count)
        )
        weights = likelihoods / likelihoods.sum()
        estimate = self._estimate(weights, int(nearest[np.argmax(image_weights)]), events)
        places = (self._generator.random() + np.arange(self._count)) / self._count
        kept = np.searchsorted(np.cumsum(weights), places).clip(0, self._count - 1)
        self._particles = self._particles[kept]
        return estimate

    def _move(self, motion: Array | None) -> None:
        if is_known(motion):
            noise = self._sigma * self._generator.standard_normal(self._particles.shape)
            moved = transition(unembed(self._particles), motion) + noise
            self._particles = embed(unembed(moved))

    def _inject(self, nearest: NDArray[np.intp]) -> None:
        """Put some particles near the poses of the nearest images."""
        chosen = self._generator.random(self._count) < self.parameters.injection
        many = int(chosen.sum())
        places = self._points[nearest[self._generator.integers(0, len(nearest), many)]]
        noise = 0.5 * self._widths * self._generator.standard_normal((many, 4))
        self._particles[chosen] = embed(unembed(places + noise))

    def _likelihoods(self, nearest: NDArray[np.intp], image_weights: Array) -> Array:
        offsets = self._particles[:, None] / self._widths - self._points[nearest] / self._widths
        gaussians = np.exp(-0.5 * (offsets**2).sum(axis=-1))
        return np.asarray(gaussians @ image_weights + self.parameters.floor + 1e-12)

    def _estimate(self, weights: Array, nearest: int, events: tuple[Event, ...]) -> Estimate:
        near = self._near_the_mode(weights)
        local = weights[near] / weights[near].sum()
        pose = unembed(local @ self._particles[near])
        spread = difference(unembed(self._particles), pose)
        floor = np.diag((0.1 * self._widths[[0, 0, 2]]) ** 2)
        return Estimate(
            pose=pose,
            covariance=(weights[:, None] * spread).T @ spread + floor,
            highest_weight_pose=self._poses[nearest].copy(),
            weights=None,
            evidence=float("nan"),
            events=events,
        )

    def _near_the_mode(self, weights: Array) -> NDArray[np.bool_]:
        """Return the particles near the particle with the most weight round it.

        The single heaviest particle will not do: a particle that was just injected at the nearest
        image's pose is always heavy.
        """
        scaled = self._particles / self._widths
        places = (np.arange(MODE_CANDIDATES) + 0.5) / MODE_CANDIDATES
        chosen = np.searchsorted(np.cumsum(weights), places).clip(0, self._count - 1)
        near = cdist(scaled[chosen], scaled, "sqeuclidean") <= NEAR_WIDTHS**2
        return np.asarray(near[int(np.argmax(near @ weights))])


MIN_SPREAD = np.array([1e-3, 1e-3, 1e-3])
"""Of the training motions, in m, m and rad: a robot that only drove straight has no turns."""


class NonparametricFilter(PoseKernelBayesFilter):
    """The kernel Bayes filter with the non-parametric sum rule in the place of the model.

    The transition is learned from the map's poses, the odometry's motions there and the poses one
    frame later, with a Gaussian kernel on the motions as control inputs.
    """

    def __init__(self, training_map: TrainingMap, parameters: NonparametricParameters) -> None:
        super().__init__(training_map, parameters)
        steps = np.hstack((training_map.motions, training_map.next_poses))
        known = np.isfinite(steps).all(axis=1)
        motions = training_map.motions[known]
        spread = np.maximum(motions.std(axis=0), MIN_SPREAD) if known.any() else MIN_SPREAD
        control_kernel = GaussianKernel(np.diag((parameters.control_bandwidth * spread) ** 2))
        self._transition_rule = NonparametricSumRule(
            self.space.points[known],
            embed(training_map.next_poses[known]),
            self.space.kernel,
            self.space.kernel,
            parameters.transition_regularization / max(int(known.sum()), 1),
            motions,
            control_kernel,
        )

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Return the predictive kernel mean by the non-parametric sum rule."""
        if not is_known(motion):
            return super()._moved_mean(belief, motion)
        mean = KernelMean(belief.points, belief.weights, self.space.kernel)
        moved = self._transition_rule(mean, motion)
        sizes = np.abs(moved.weights)
        if not float(sizes.sum()) > 0.0:
            # No training motion is like this: nothing was learned about it.
            self._events.append(Event.UNKNOWN_MOTION)
            return self._standstill_rule(mean)
        kept = sizes > NEGLIGIBLE * sizes.max()
        return KernelMean(moved.points[kept], moved.weights[kept], self.space.kernel)


class KernelMonteCarloFilter(PoseKernelBayesFilter):
    """The kernel Monte Carlo filter of Kanagawa, Nishiyama, Gretton and Fukumizu.

    It needs samples of the motion model alone, no conjugate pair of noise and kernel.
    """

    def __init__(
        self, training_map: TrainingMap, parameters: MonteCarloParameters, seed: int = 0
    ) -> None:
        self._seed = seed
        self._sample_count = max(1, round(parameters.samples))
        self._sigma = np.sqrt(
            np.asarray(training_map.motion_variances) * parameters.noise_inflation
        )
        super().__init__(training_map, parameters)

    def reset(self, prior: GaussianPrior | None = None) -> None:
        super().reset(prior)
        self._generator = np.random.default_rng(self._seed)

    def step(
        self, motion: Array | None, observation: MapObservation, variances: Array | None = None
    ) -> Estimate:
        estimate = super().step(motion, observation, variances)
        mean = KernelMean(self._belief.points, self._belief.weights, self.space.kernel)
        herded = herd(mean, self._sample_count)
        self._belief = Belief(herded, np.full(len(herded), 1.0 / len(herded)))
        return estimate

    def _moved_mean(self, belief: Belief, motion: Array | None) -> KernelMean:
        """Return samples of the motion model, one from each point of the belief."""
        if not is_known(motion):
            return super()._moved_mean(belief, motion)
        noise = self._sigma * self._generator.standard_normal(belief.points.shape)
        moved = transition(unembed(belief.points), motion) + noise
        return KernelMean(moved, belief.weights, self.space.kernel)
