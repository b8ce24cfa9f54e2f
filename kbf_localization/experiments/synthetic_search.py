"""Two-fold cross validation of the synthetic filters over a whole grid of hyper-parameters at once.

All settings with one σ_Z share G_Z = ΓΓᵀ, those with one (σ_X, ε) the prediction. Their recursions
run side by side, so that most of the work is large matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg.lapack import dposv

from kbf_localization.arrays import Array
from kbf_localization.embeddings import low_rank_factor
from kbf_localization.experiments.synthetic_filter import (
    HyperParameters,
    TrainingPairs,
    isotropic_kernel,
    normalized_where_positive,
    prediction_matrix,
    pseudo_map,
)
from kbf_localization.experiments.synthetic_model import StateSpaceModel

VALIDATION_STEPS = 50
# So many bytes of r×r matrices are worked on at a time: they should stay in the core's own cache.
CHUNK_BYTES = 2**19


@dataclass(frozen=True)
class Grid:
    """The values of each hyper-parameter; every combination of them is a setting."""

    state_stds: tuple[float, ...]
    observation_stds: tuple[float, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def __iter__(self) -> Iterator[HyperParameters]:
        """The settings, δ fastest, σ_X slowest."""
        return (HyperParameters(*setting) for setting in product(*vars(self).values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values of σ_X, σ_Z, ε and δ."""
        return tuple(len(values) for values in vars(self).values())


def validation_errors(pairs: TrainingPairs, grid: Grid, model: StateSpaceModel | None) -> Array:
    """The errors (σ_X, σ_Z, ε, δ) of learning from one half of the sequence, filtering the other.

    A setting's error is the mean over both halves of the mean squared error of up to
    `VALIDATION_STEPS` steps.
    """
    half = len(pairs.states) // 2
    folds = (slice(0, half), slice(half, None))
    errors = np.zeros(grid.shape)
    for learn, hold in (folds, folds[::-1]):
        part = TrainingPairs(pairs.states[learn], pairs.observations[learn], pairs.following[learn])
        states = pairs.states[hold][:VALIDATION_STEPS]
        observations = pairs.observations[hold][:VALIDATION_STEPS]
        transitions = [
            prediction_matrix(part, state_std, epsilon, model)
            for state_std, epsilon in product(grid.state_stds, grid.epsilons)
        ]
        initial = np.stack([first for first, _ in transitions])
        prediction = np.stack([matrix for _, matrix in transitions])
        for column, observation_std in enumerate(grid.observation_stds):
            update = BatchedUpdate(part.observations, observation_std)
            weights = filter_side_by_side(initial, prediction, grid.deltas, update, observations)
            for row, state_std in enumerate(grid.state_stds):
                block = weights[row * len(grid.epsilons) : (row + 1) * len(grid.epsilons)]
                estimates = pseudo_map(part.states, block.reshape(-1, len(part.states)), state_std)
                squared = (estimates.reshape(*block.shape[:3], 2) - states) ** 2
                errors[row, column] += 0.5 * squared.sum(axis=-1).mean(axis=-1)
    return errors


def filter_side_by_side(
    initial: Array,
    prediction: Array,
    deltas: tuple[float, ...],
    update: BatchedUpdate,
    observations: Array,
) -> Array:
    """α_t (k, d, T, n) of k transitions, `initial` (k, n) and `prediction` (k, n, n), with d values
    of δ each; what `KernelFilter.run` gives for one setting.
    """
    count, size = initial.shape
    weights = np.empty((count, len(deltas), len(observations), size))
    prior = np.repeat(normalized_where_positive(initial, initial)[:, None], len(deltas), axis=1)
    delta = np.tile(deltas, count)
    for step, similarities in enumerate(update.kernel.gram(observations, update.observations)):
        posterior = update(prior.reshape(-1, size), similarities, delta)
        weights[:, :, step] = normalized_where_positive(posterior.reshape(prior.shape), prior)
        prior = weights[:, :, step] @ prediction.transpose(0, 2, 1)
        prior = normalized_where_positive(prior, prior)
    return weights


class BatchedUpdate:
    """Kernel Bayes' rule in its symmetric form for many priors at once; δ as in HyperParameters.

    A = ΓᵀD(β)Γ is linear in β and symmetric: for all priors it is one product of the (b, n) prior
    weights with the (n, r(r+1)/2) products Γ_ij Γ_il.
    """

    def __init__(self, observations: Array, observation_std: float) -> None:
        self.observations = observations
        self.kernel = isotropic_kernel(observation_std)
        self.factor = low_rank_factor(
            self.kernel.gram(observations, observations), len(observations)
        )
        self.rank = self.factor.shape[1]
        upper = np.triu_indices(self.rank)
        self._products = self.factor[:, upper[0]] * self.factor[:, upper[1]]
        self._unpacking = np.empty((self.rank, self.rank), dtype=np.intp)
        self._unpacking[upper] = self._unpacking.T[upper] = np.arange(len(upper[0]))

    def __call__(self, priors: Array, similarities: Array, delta: Array) -> Array:
        """α (b, n) for `priors` β (b, n), k_Z (n,) and δ (b,)."""
        packed = priors @ self._products
        right = (priors * similarities) @ self.factor
        scaled = delta * self.kernel.at_zero() ** 2
        solutions = np.empty_like(right)
        chunk = max(1, CHUNK_BYTES // (8 * self.rank**2))
        diagonal = np.arange(self.rank)
        for first in range(0, len(priors), chunk):
            rows = slice(first, first + chunk)
            inner = packed[rows][:, self._unpacking]
            systems = inner @ inner
            systems[:, diagonal, diagonal] += scaled[rows, None]
            for row, system in enumerate(systems, start=first):
                # The transpose of the symmetric matrix is in the order that LAPACK wants.
                _, solutions[row], info = dposv(system.T, right[row], lower=1, overwrite_a=1)
                if info != 0:
                    square = np.linalg.matrix_power(inner[row - first], 2)
                    square[diagonal, diagonal] += scaled[row]
                    solutions[row] = np.linalg.lstsq(square, right[row], rcond=None)[0]
        return np.asarray(priors * (solutions @ self.factor.T))
