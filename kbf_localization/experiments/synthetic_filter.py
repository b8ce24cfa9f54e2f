"""Algorithm 1 on the synthetic model, and its fully non-parametric baseline, on small data sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

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
        self.parameters = parameters
        self.observation_kernel = isotropic_kernel(parameters.observation_std)
        self.initial, self.prediction = prediction_matrix(
            pairs, parameters.state_std, parameters.epsilon, model
        )
        # Complete to rounding, yet of low rank where the bandwidth is wide: the symmetric form is
        # then far faster than any other, and never slower on data sets of this size.
        self.factor = low_rank_factor(
            self.observation_kernel.gram(pairs.observations, pairs.observations), len(pairs.states)
        )
        self.delta = parameters.delta * self.observation_kernel.at_zero() ** 2

    def run(self, observations: Array) -> Array:
        """α_t for each of the `observations` (T, 2), as an array (T, n), each summing to one.

        The first prior is the training states, equally weighted. Where an update fails, its sum
        not being positive, the prediction stands in for it.
        """
        similarities = self.observation_kernel.gram(observations, self.pairs.observations)
        weights = np.zeros((len(observations), len(self.pairs.states)))
        prior = normalized_where_positive(self.initial, self.initial)
        for step, similarity in enumerate(similarities):
            posterior = low_rank_posterior_weights(prior, self.factor, similarity, self.delta)
            weights[step] = normalized_where_positive(posterior, prior)
            predicted = self.prediction @ weights[step]
            prior = normalized_where_positive(predicted, predicted)
        return weights

    def mean_squared_error(self, states: Array, observations: Array) -> float:
        """Mean of ‖x̂_t − x_t‖² over a test sequence."""
        weights = self.run(observations)
        estimates = pseudo_map(self.pairs.states, weights, self.parameters.state_std)
        return float(((estimates - states) ** 2).sum(axis=1).mean())


def isotropic_kernel(std: float) -> GaussianKernel:
    """Return the Gaussian kernel on the plane with covariance std² I."""
    return GaussianKernel(std**2 * np.eye(2))


def prediction_matrix(
    pairs: TrainingPairs, state_std: float, epsilon: float, model: StateSpaceModel | None
) -> tuple[Array, Array]:
    """β_1 (n,) before the first observation, and the matrix (n, n) from α_t to β_{t+1}."""
    kernel = isotropic_kernel(state_std)
    gram = kernel.gram(pairs.states, pairs.states)
    solver = RidgeSolver(gram, len(gram) * epsilon * kernel.at_zero())
    if model is not None:
        rule = ModelBasedSumRule(model.move, model.noise, kernel)
        prediction = solver.solve(rule.gram(pairs.states, pairs.states))
    else:
        onto = solver.solve(kernel.gram(pairs.states, pairs.following))
        prediction = onto @ solver.solve(gram)
    return solver.solve(gram.mean(axis=1)), prediction


def normalized_where_positive(weights: Array, otherwise: Array) -> Array:
    """Weights (…, n) summing to one, or those of `otherwise` where their sum is not positive."""
    totals = weights.sum(axis=-1, keepdims=True)
    magnitudes = np.abs(weights).sum(axis=-1, keepdims=True)
    usable = np.isfinite(totals) & (totals > 1e-12 * magnitudes) & (magnitudes > 0.0)
    return np.where(usable, weights / np.where(usable, totals, 1.0), otherwise)


def pseudo_map(points: Array, weights: Array, state_std: float, max_steps: int = 50) -> Array:
    """Pseudo-MAP estimates (T, 2) of kernel means with `weights` (T, n) on `points` (n, 2).

    The fixed point starts from the point where the kernel mean is highest, and its end counts
    where the mean is higher still.
    """
    heights = weights @ _closeness(points, points, state_std)
    start = points[heights.argmax(axis=1)]
    current = start.copy()
    moving = np.arange(len(weights))
    for _ in range(max_steps):
        pulls = weights[moving] * _closeness(current[moving], points, state_std)
        totals = pulls.sum(axis=1)
        pulled = totals > 0.0
        moving, pulls, totals = moving[pulled], pulls[pulled], totals[pulled]
        following = (pulls @ points) / totals[:, None]
        moved = np.abs(following - current[moving]).max(axis=1)
        current[moving] = following
        moving = moving[moved >= 1e-3 * state_std]
        if len(moving) == 0:
            break
    ends = (weights * _closeness(current, points, state_std)).sum(axis=1)
    return np.asarray(np.where((ends >= heights.max(axis=1))[:, None], current, start))


def _closeness(a: Array, b: Array, std: float) -> Array:
    """exp(−‖a_i − b_j‖²/(2 std²)) as an array (len a, len b)."""
    return np.asarray(np.exp(-0.5 / std**2 * cdist(a, b, "sqeuclidean")))
