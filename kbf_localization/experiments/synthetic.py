"""Section 6.2 of the paper: filtering with the model-based against the non-parametric sum rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.linalg.lapack import dposv

from kbf_localization.arrays import Array
from kbf_localization.embeddings import low_rank_factor
from kbf_localization.evaluation.plots import draw_weights
from kbf_localization.evaluation.report import Table
from kbf_localization.experiments.result import ExperimentResult
from kbf_localization.experiments.synthetic_filter import (
    HyperParameters,
    KernelFilter,
    TrainingPairs,
    isotropic_kernel,
    normalized_where_positive,
    prediction_matrix,
    pseudo_map,
)
from kbf_localization.experiments.synthetic_model import SETTINGS, Setting, StateSpaceModel, curve
from kbf_localization.experiments.trials import (
    draw_curve,
    draw_sizes,
    finish_panel,
    nested_summaries,
    plus_minus,
    trials_text,
)
from kbf_localization.parallel import Workers
from kbf_localization.progress import Progress, no_progress, tracked

METHODS = ("kbf", "fkbf")
TEST_STEPS = 100


@dataclass(frozen=True)
class Task:
    """One trial of one panel with n training pairs."""

    setting: str
    size: int
    trial: int
    seed: int

    def generator(self) -> np.random.Generator:
        """Random numbers that depend on nothing but what the task is."""
        key = (list(SETTINGS).index(self.setting), self.size, self.trial)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))


@dataclass(frozen=True)
class Outcome:
    """The error of one method with the parameters that cross validation chose from one grid."""

    task: Task
    grid: str
    method: str
    mean_squared_error: float
    parameters: HyperParameters


def draw(task: Task) -> tuple[Setting, TrainingPairs, Array, Array]:
    """Return the panel's models, training pairs, and the states and observations of the test."""
    setting = SETTINGS[task.setting]
    generator = task.generator()
    states, observations = setting.training.simulate(task.size + 1, generator)
    pairs = TrainingPairs(states[:-1], observations[:-1], states[1:])
    return setting, pairs, *setting.test.simulate(TEST_STEPS, generator)


def run_task(task: Task) -> list[Outcome]:
    """Tune both methods over both grids and test them; the model's η is the one of its phase."""
    setting, pairs, states, observations = draw(task)
    outcomes = []
    for (name, grid), method in product(GRIDS.items(), METHODS):
        in_training = setting.training if method == "kbf" else None
        in_test = setting.test if method == "kbf" else None
        best = list(grid)[int(validation_errors(pairs, grid, in_training).argmin())]
        error = KernelFilter(pairs, best, in_test).mean_squared_error(states, observations)
        outcomes.append(Outcome(task, name, method, error, best))
    return outcomes


def run_trials(
    trials: int,
    seed: int,
    sizes: Sequence[int],
    workers: Workers,
    progress: Progress = no_progress,
) -> list[Outcome]:
    """All panels; the same seed gives the same numbers, however many workers and trials."""
    # The longest first, so that no worker is left alone with one at the end.
    tasks = [
        Task(setting, size, trial, seed)
        for size in sorted(sizes, reverse=True)
        for trial in range(trials)
        for setting in SETTINGS
    ]
    done = tracked(workers.map(run_task, tasks), "synthetic filtering", progress, len(tasks))
    return [outcome for some in done for outcome in some]


def metrics_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return what `metrics.json` holds: MSE by grid, panel, n and method."""
    return nested_summaries(
        ((one.grid, one.task.setting, str(one.task.size), one.method), one.mean_squared_error)
        for one in sorted(outcomes, key=lambda one: one.task.size)
    )


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
    """Return the errors (σ_X, σ_Z.

    Ε, δ) of learning from one half of the sequence, filtering the other.
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


TITLES = {
    "gaussian": "Gaussian noise",
    "mixture": "mixture noise",
    "changed_rotation": "η changed after training",
}
METHOD_LABELS = {"kbf": "model-based (KBF)", "fkbf": "non-parametric (fKBF)"}


def findings(outcomes: Sequence[Outcome], trials: int) -> ExperimentResult:
    """Return the table, a row of `errors.csv` for each outcome.

    MSE over n, and weights at one time.
    """
    metrics = metrics_of(outcomes)
    rows = [
        (
            f"{grid} {setting}",
            size,
            plus_minus(figures["kbf"]),
            plus_minus(figures["fkbf"]),
            figures["fkbf"]["mean"] / figures["kbf"]["mean"],
        )
        for grid, panels in metrics.items()
        for setting, by_size in panels.items()
        for size, figures in by_size.items()
    ]
    columns = ("Grid and panel", "n", "KBF, MSE", "fKBF, MSE", "fKBF / KBF")
    header = ("grid", "setting", "n", "trial", "method", "mse", *HyperParameters.__annotations__)
    errors = (
        (
            one.grid,
            one.task.setting,
            one.task.size,
            one.task.trial,
            one.method,
            one.mean_squared_error,
            *vars(one.parameters).values(),
        )
        for one in outcomes
    )
    return ExperimentResult(
        "Filtering in a synthetic world",
        metrics,
        tables=[Table("Synthetic filtering", columns, rows)],
        csv={"errors.csv": (header, errors)},
        plots={
            "synthetic.png": (
                _draw_errors(metrics, trials),
                "Mean squared errors over the number of training pairs (section 6.2)",
            ),
            "weights.png": (
                _draw_weights(outcomes),
                "Weights on the training points at one time, positive and negative",
            ),
        },
    )


def _draw_errors(metrics: Mapping[str, Any], trials: int) -> Figure:
    """Return a row of three panels for each search grid."""
    figure = Figure(figsize=(11.0, 3.4 * len(metrics)), layout="constrained")
    grid_of_axes = figure.subplots(len(metrics), len(TITLES), squeeze=False)
    for row, (grid, panels) in zip(grid_of_axes, metrics.items()):
        for axes, (setting, by_size) in zip(row, panels.items()):
            for index, (method, label) in enumerate(METHOD_LABELS.items()):
                figures = {size: figures[method] for size, figures in by_size.items()}
                draw_curve(axes, label, figures, index)
            draw_sizes(axes, by_size, "training pairs n")
            axes.set_title(f"{TITLES[setting]}, {grid} grid", fontsize=10)
            finish_panel(axes, "MSE")
    figure.suptitle(f"Synthetic filtering, mean ± standard deviation of {trials_text(trials)}")
    return figure


def _draw_weights(outcomes: Sequence[Outcome], step: int = 30) -> Figure:
    """Return the model-based filter's weights α_t on its training states, at one time of one trial.

    It is the first panel's first trial, local grid, largest n.
    """
    shown = max(
        (
            one
            for one in outcomes
            if (one.task.setting, one.task.trial) == ("gaussian", 0)
            and (one.grid, one.method) == ("local", "kbf")
        ),
        key=lambda one: one.task.size,
    )
    setting, pairs, states, observations = draw(shown.task)
    weights = KernelFilter(pairs, shown.parameters, setting.test).run(observations[: step + 1])
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.subplots()
    axes.plot(*curve(np.linspace(0.0, 2.0 * np.pi, 400)).T, color="0.6", lw=1.0, label="curve")
    axes.plot(*pairs.states.T, ".", color="0.75", markersize=3, label="training states")
    draw_weights(axes, pairs.states, weights[step])
    axes.plot(*states[step], "*", color="black", markersize=13, label="true state")
    axes.plot(*observations[step], "x", color="black", markersize=9, mew=2, label="observation")
    axes.set(xlabel="u", ylabel="v", aspect="equal")
    axes.set_title("Weights of the model-based filter on its training states")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure
