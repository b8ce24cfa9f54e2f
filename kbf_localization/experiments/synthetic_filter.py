"""The state-space model of section 6.2, filters on pairs drawn from it, and their cross validation.

Algorithm 1 with the model-based sum rule, and its fully non-parametric baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg.lapack import dposv
from scipy.spatial.distance import cdist

from kbf_localization.arrays import Array
from kbf_localization.embeddings import (
    Density,
    GaussianKernel,
    GaussianNoise,
    MixtureNoise,
    ModelBasedSumRule,
    RidgeSolver,
    low_rank_factor,
    low_rank_posterior_weights,
)

AMPLITUDE = 0.4  # b
WAVES = 8  # M


@dataclass(frozen=True)
class StateSpaceModel:
    """`rotation` is η (radians a step), `noise` that of the transition, `observation_std` σ_o."""

    rotation: float
    noise: Density
    observation_std: float

    def move(self, states: Array) -> Array:
        """Return f, the noise-free next states of `states` (n, 2); a state's angle drives it."""
        return curve(np.arctan2(states[:, 1], states[:, 0]) + self.rotation)

    def simulate(self, length: int, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return states (length, 2) from a random angle on, and their observations (length, 2)."""
        noise = self.noise.sample(length, generator)
        states = np.empty((length, 2))
        states[0] = curve(generator.uniform(0.0, 2.0 * np.pi, 1))[0] + noise[0]
        for step in range(1, length):
            states[step] = self.move(states[step - 1][None])[0] + noise[step]
        # A Laplace variable of scale s has the standard deviation s√2.
        blur = generator.laplace(0.0, self.observation_std / np.sqrt(2.0), (length, 2))
        return states, np.sign(states) * np.sqrt(np.abs(states)) + blur


def curve(angles: Array) -> Array:
    """Return (1 + b sin(Mθ)) (cos θ, sin θ) for angles (n,), as points (n, 2)."""
    radius = 1.0 + AMPLITUDE * np.sin(WAVES * angles)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=-1)


@dataclass(frozen=True)
class Setting:
    """One panel: the models of the training data and of the test."""

    training: StateSpaceModel
    test: StateSpaceModel


def _setting(noise: Density, observation_std: float, *rotations: float) -> Setting:
    """With η of the training and, where another follows, of the test."""
    training, test = (
        StateSpaceModel(rotation, noise, observation_std)
        for rotation in (rotations[0], rotations[-1])
    )
    return Setting(training, test)


_CORNERS = ((0.2, 0.2), (0.2, -0.2), (-0.2, 0.2), (-0.2, -0.2))
_PARTS = [GaussianNoise(0.3**2 * np.eye(2), corner) for corner in _CORNERS]


SETTINGS = {
    # Top right: Gaussian noise, σ_h = 0.2, σ_o = 0.05.
    "gaussian": _setting(GaussianNoise(0.2**2 * np.eye(2)), 0.05, 1.0),
    # Bottom left: a mixture of four Gaussians as noise, σ_o = 0.01.
    "mixture": _setting(MixtureNoise(np.full(4, 0.25), _PARTS), 0.01, 1.0),
    # Bottom right: η is 0.1 in training and 0.4 in the test; σ_h = 0.1, σ_o = 0.01.
    "changed_rotation": _setting(GaussianNoise(0.1**2 * np.eye(2)), 0.01, 0.1, 0.4),
}


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
        """Return α_t (T, n) for each of the `observations` (T, 2), each summing to one.

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
        """Return mean of ‖x̂_t − x_t‖² over a test sequence."""
        weights = self.run(observations)
        estimates = pseudo_map(self.pairs.states, weights, self.parameters.state_std)
        return float(((estimates - states) ** 2).sum(axis=1).mean())


def isotropic_kernel(std: float) -> GaussianKernel:
    """Return the Gaussian kernel on the plane with covariance std² I."""
    return GaussianKernel(std**2 * np.eye(2))


def prediction_matrix(
    pairs: TrainingPairs, state_std: float, epsilon: float, model: StateSpaceModel | None
) -> tuple[Array, Array]:
    """Return β_1 (n,) before the first observation, and the matrix (n, n) from α_t to β_{t+1}."""
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
    """Return weights (…, n) summing to one, or `otherwise` where their sum is not positive."""
    totals = weights.sum(axis=-1, keepdims=True)
    magnitudes = np.abs(weights).sum(axis=-1, keepdims=True)
    usable = np.isfinite(totals) & (totals > 1e-12 * magnitudes) & (magnitudes > 0.0)
    return np.where(usable, weights / np.where(usable, totals, 1.0), otherwise)


def pseudo_map(points: Array, weights: Array, state_std: float, max_steps: int = 50) -> Array:
    """Return pseudo-MAP estimates (T, 2) of kernel means with `weights` (T, n) on `points` (n, 2).

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
    """Return exp(−‖a_i − b_j‖²/(2 std²)) as an array (len a, len b)."""
    return np.asarray(np.exp(-0.5 / std**2 * cdist(a, b, "sqeuclidean")))


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
        """Return the settings, δ fastest, σ_X slowest."""
        return (HyperParameters(*setting) for setting in product(*vars(self).values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values of σ_X, σ_Z, ε and δ."""
        return tuple(len(values) for values in vars(self).values())


GRIDS = {
    # No bandwidth wider than the data's own scale, and δ not tiny: the rule stays local.
    "local": Grid(
        state_stds=(0.1, 0.2, 0.3, 0.4),
        observation_stds=(0.1, 0.2, 0.3, 0.4),
        epsilons=(1e-4, 1e-3, 1e-2),
        deltas=(1e-3, 1e-2, 1e-1, 1.0),
    ),
    # Wide bandwidths and tiny δ as well: the rule can become a smooth regression from z to x.
    "open": Grid(
        state_stds=(0.2, 0.4, 0.8, 1.6),
        observation_stds=(0.2, 0.4, 0.8, 1.6),
        epsilons=(1e-6, 1e-4, 1e-2),
        deltas=(1e-8, 1e-6, 1e-4, 1e-2),
    ),
}


def validation_errors(pairs: TrainingPairs, grid: Grid, model: StateSpaceModel | None) -> Array:
    """Return the errors (σ_X, σ_Z, ε, δ) of learning from one half, filtering the other.

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
    """Return α_t (k, d, T, n) of k transitions with d values of δ each, all at once.

    `initial` (k, n) and `prediction` (k, n, n) are those of the transitions. `KernelFilter.run`
    gives the same for one setting.
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
        """Return α (b, n) for `priors` β (b, n), k_Z (n,) and δ (b,)."""
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
