"""Algorithm 1 on the synthetic model, and its fully non-parametric rival, on small data sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings import (
    GaussianKernel,
    ModelBasedSumRule,
    RidgeSolver,
    low_rank_factor,
    low_rank_posterior_weights,
)
from kbf_localization.experiments.synthetic_model import StateSpaceModel


@dataclass(frozen=True)
class HyperParameters:
    """Bandwidths σ_X and σ_Z, and ε and δ for kernels whose value at zero is one.

    The density-normalized kernels of the paper have k(x, x) = 1/(2πσ²): its ε is `epsilon` times
    k_X(x, x), its δ is `delta` times k_Z(z, z)². So a value means the same at every bandwidth.
    """

    state_std: float
    observation_std: float
    epsilon: float
    delta: float


@dataclass(frozen=True)
class TrainingPairs:
    """States X_i, their observations Z_i and the states X'_i one step later, each (n, 2)."""

    states: Array
    observations: Array
    following: Array


class KernelFilter:
    """A filter whose prediction is a matrix on the weights, since the transition never changes.

    With `model` the prediction is the model-based sum rule (the paper's filter); without it the
    non-parametric one, learnt from the pairs (X_i, X'_i).
    """

    def __init__(
        self, pairs: TrainingPairs, parameters: HyperParameters, model: StateSpaceModel | None
    ) -> None:
        self.pairs = pairs
        self.state_kernel = GaussianKernel(parameters.state_std**2 * np.eye(2))
        self.observation_kernel = GaussianKernel(parameters.observation_std**2 * np.eye(2))
        count = len(pairs.states)
        gram = self.state_kernel.gram(pairs.states, pairs.states)
        solver = RidgeSolver(gram, count * parameters.epsilon * self.state_kernel.at_zero())
        if model is not None:
            rule = ModelBasedSumRule(model.move, model.noise, self.state_kernel)
            self.prediction = solver.solve(rule.gram(pairs.states, pairs.states))
        else:
            onto = solver.solve(self.state_kernel.gram(pairs.states, pairs.following))
            self.prediction = onto @ solver.solve(gram)
        self.initial = solver.solve(gram.mean(axis=1))
        # Complete to rounding, yet of low rank where the bandwidth is wide: the symmetric form is
        # then far faster than any other, and never slower on data sets of this size.
        self.factor = low_rank_factor(
            self.observation_kernel.gram(pairs.observations, pairs.observations), count
        )
        self.delta = parameters.delta * self.observation_kernel.at_zero() ** 2

    def run(self, observations: Array) -> Array:
        """α_t for each of the `observations` (T, 2), as an array (T, n), each summing to one.

        The first prior is the training states, equally weighted. Where an update fails, its sum
        not being positive, the prediction stands in for it.
        """
        similarities = self.observation_kernel.gram(observations, self.pairs.observations)
        weights = np.zeros((len(observations), len(self.pairs.states)))
        prior = _normalized(self.initial)
        for step, likeness in enumerate(similarities):
            posterior = low_rank_posterior_weights(prior, self.factor, likeness, self.delta)
            total = posterior.sum()
            usable = np.isfinite(total) and total > 1e-12 * np.abs(posterior).sum() > 0.0
            weights[step] = posterior / total if usable else prior
            prior = _normalized(self.prediction @ weights[step])
        return weights

    def point_estimates(self, weights: Array, max_steps: int = 50) -> Array:
        """Pseudo-MAP estimates (T, 2) for weights (T, n), all at once.

        The fixed point starts from the training state where the kernel mean is highest, and the
        end counts where it is higher still.
        """
        points, kernel = self.pairs.states, self.state_kernel
        heights = weights @ kernel.gram(points, points)
        start = points[heights.argmax(axis=1)]
        tolerance = 1e-3 * float(np.sqrt(kernel.covariance[0, 0]))
        current = start
        for _ in range(max_steps):
            pulls = weights * kernel.gram(current, points)
            totals = pulls.sum(axis=1, keepdims=True)
            safe = totals > 0.0
            following = np.where(safe, (pulls @ points) / np.where(safe, totals, 1.0), current)
            moved = float(np.abs(following - current).max())
            current = following
            if moved < tolerance:
                break
        ends = (weights * kernel.gram(current, points)).sum(axis=1)
        return np.asarray(np.where((ends >= heights.max(axis=1))[:, None], current, start))

    def mean_squared_error(self, states: Array, observations: Array) -> float:
        """Mean of ‖x̂_t − x_t‖² over a test sequence."""
        estimates = self.point_estimates(self.run(observations))
        return float(((estimates - states) ** 2).sum(axis=1).mean())


def _normalized(weights: Array) -> Array:
    """Weights summing to one; left as they are where the sum is not positive."""
    total = weights.sum()
    usable = total > 1e-12 * np.abs(weights).sum()
    return np.asarray(weights / total) if usable else weights
