"""The kernel Bayes' rule: a prior kernel mean of x and an observation z in, the posterior out.

`KernelBayesRule` holds the examples; `KernelBayesFilter` repeats it between predictions. Both rest
on the weights of the rule: three forms, each with several computations. All take the prior weights
β (n,), the observations' Gram matrix G_Z (n, n), the similarities k_Z(z) (n,) of the observation
and a regularization, and give α (n,), not normalized:

- "original": α = D(β)G_Z ((D(β)G_Z)² + δI)⁻¹ D(β)k_Z (equation kernelBayesrule of the paper), β of
  any sign;
- "importance-weighted": α = √D (√D G_Z √D + λI)⁻¹ √D k_Z with D = D(max(β, 0)) (Xu, Chen, Doucet
  and Gretton 2022). The density ratio of that paper at X_i (KuLSIF) is n β_i, so both forms take
  the same β; α is the kernel ridge regression of the states on the observations, weighted by β;
- "plain": α = max(β, 0) k_Z, the importance-weighted form as λ → ∞: the similarity is taken for the
  likelihood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve
from scipy.linalg.lapack import dposv, zgesv

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import DensityKernel, Kernel
from kbf_localization.embeddings.linear_solver import relative_solver
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule, SumRule
from kbf_localization.embeddings.validation import (
    as_points,
    as_positive,
    as_square,
    as_vector,
    normalized,
)

Form = Literal["original", "importance-weighted", "plain"]
"""Of the kernel Bayes' rule."""

FORMS: tuple[Form, ...] = get_args(Form)

Computation = Literal["reference", "restricted", "low_rank"]
"""By the printed formula, on the support of β alone, or with a low-rank factor of G_Z."""

COMPUTATIONS: tuple[Computation, ...] = get_args(Computation)
SUPPORT_THRESHOLD = 1e-6


def check_form(form: str) -> Form:
    """Return `form`, or raise ValueError where no form of the rule has that name."""
    for known in FORMS:
        if form == known:
            return known
    raise ValueError(f"form: must be one of {', '.join(FORMS)}, got {form!r}")


def support(prior_weights: Array, threshold: float = SUPPORT_THRESHOLD) -> Rows:
    """Return S, the rows where |β_i| > `threshold`·max|β|; α is zero, or as small, elsewhere."""
    magnitudes = np.abs(prior_weights)
    return np.flatnonzero(magnitudes > threshold * magnitudes.max(initial=0.0))


def block_posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    regularization: float,
    form: Form = "original",
) -> Array:
    """Return α on a block: β, G_Z and k_Z of the rows S alone, all that the rule needs of them.

    `regularization` is δ or λ; the plain form has none.
    """
    if form == "plain":
        return np.maximum(prior_weights, 0.0) * similarities
    if form == "importance-weighted":
        return _importance_weighted(prior_weights, gram, similarities, regularization)
    return _original(prior_weights, gram, similarities, regularization)


def relative_posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    regularization: float,
    form: Form = "original",
) -> Array:
    """Return α on a block with a regularization without scale.

    It is relative to what it is added to: δ in units of (max|β| k_Z(z, z))², λ in units of
    max|β| k_Z(z, z), so that it acts alike on narrow and wide beliefs, and with every kernel.
    """
    size = float(np.abs(prior_weights).max()) * float(np.diag(gram).max())
    unit = size**2 if form == "original" else size
    return block_posterior_weights(prior_weights, gram, similarities, regularization * unit, form)


def _original(prior_weights: Array, gram: Array, similarities: Array, delta: float) -> Array:
    """Return α of the original rule by one complex solve, in which nothing is squared.

    B = D(β)G_Z is real, so B(B² + δI)⁻¹ is the real part of (B − i√δI)⁻¹.
    """
    system = np.empty(gram.shape, dtype=np.complex128, order="F")
    np.multiply(prior_weights[:, None], gram, out=system)
    system.flat[:: len(system) + 1] -= 1j * np.sqrt(delta)
    right = (prior_weights * similarities).astype(np.complex128)[:, None]
    _, _, solution, info = zgesv(system, right, overwrite_a=True, overwrite_b=True)
    if info != 0:
        solution = np.linalg.lstsq(
            prior_weights[:, None] * gram - 1j * np.sqrt(delta) * np.eye(len(gram)),
            (prior_weights * similarities)[:, None],
            rcond=None,
        )[0]
    return np.ascontiguousarray(solution[:, 0].real)


def _importance_weighted(
    prior_weights: Array, gram: Array, similarities: Array, ridge: float
) -> Array:
    """Solve one positive definite system on the rows of positive prior weight, `ridge` being λ."""
    posterior = np.zeros(len(prior_weights))
    rows = np.flatnonzero(prior_weights > 0.0)
    if len(rows) == 0:
        return posterior
    roots = np.sqrt(prior_weights[rows])
    block = gram if len(rows) == len(gram) else gram[np.ix_(rows, rows)]
    system = roots[:, None] * block * roots
    system.flat[:: len(system) + 1] += ridge
    right = roots * similarities[rows]
    _, solution, info = dposv(system, right, lower=1)
    if info != 0:
        solution = np.linalg.lstsq(system, right, rcond=None)[0]
    posterior[rows] = roots * solution
    return posterior


def reference_posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    regularization: float,
    form: Form = "original",
) -> Array:
    """Return the printed formulas, term by term."""
    if form == "original":
        weighted = prior_weights[:, None] * gram
        squared = weighted @ weighted + regularization * np.eye(len(gram))
        return np.asarray(weighted @ solve(squared, prior_weights * similarities))
    ratios = np.maximum(prior_weights, 0.0)
    if form == "plain":
        return ratios * similarities
    root = np.diag(np.sqrt(ratios))
    system = root @ gram @ root + regularization * np.eye(len(gram))
    return np.asarray(root @ solve(system, root @ similarities))


def restricted_posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    regularization: float,
    threshold: float = SUPPORT_THRESHOLD,
    form: Form = "original",
) -> Array:
    """Return the rule on the support of β; exact for `threshold` 0."""
    rows = support(prior_weights, threshold)
    posterior = np.zeros(len(prior_weights))
    if len(rows) == 0:
        return posterior
    posterior[rows] = block_posterior_weights(
        prior_weights[rows], gram[np.ix_(rows, rows)], similarities[rows], regularization, form
    )
    return posterior


def low_rank_posterior_weights(
    prior_weights: Array,
    factor: Array,
    similarities: Array,
    regularization: float,
    form: Form = "original",
) -> Array:
    """Return the rule for G_Z ≈ ΓΓᵀ, `factor` Γ (n, r), by a positive definite r×r system.

    Original: D(β)Γ(A² + δI)⁻¹ΓᵀD(β)k_Z with A = ΓᵀD(β)Γ, for negative β too. Importance-weighted:
    D(k_Z − Γ(A + λI)⁻¹ΓᵀDk_Z)/λ (Woodbury), which loses digits as λ falls below 1e-8 of A.
    """
    if form == "plain":
        return np.maximum(prior_weights, 0.0) * similarities
    if form == "importance-weighted":
        ratios = np.maximum(prior_weights, 0.0)
        weighted = ratios[:, None] * factor
        system = factor.T @ weighted
    else:
        weighted = prior_weights[:, None] * factor
        inner = factor.T @ weighted
        system = inner @ inner
    system.flat[:: len(system) + 1] += regularization
    right = weighted.T @ similarities
    _, solution, info = dposv(system, right, lower=1)
    if info != 0:
        solution = np.linalg.lstsq(system, right, rcond=None)[0]
    if form == "importance-weighted":
        return np.asarray(ratios * (similarities - factor @ solution) / regularization)
    return np.asarray(weighted @ solution)


def posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    regularization: float,
    form: Form = "original",
    computation: Computation = "restricted",
) -> Array:
    """Return α of a form of the rule, arguments checked; the low-rank one has all its ranks."""
    matrix = as_square("gram", gram)
    prior = as_vector("prior_weights", prior_weights, len(matrix))
    similarity = as_vector("similarities", similarities, len(matrix))
    as_positive("regularization", regularization)
    check_form(form)
    if computation == "reference":
        return reference_posterior_weights(prior, matrix, similarity, regularization, form)
    if computation == "restricted":
        return restricted_posterior_weights(prior, matrix, similarity, regularization, form=form)
    if computation == "low_rank":
        factor = low_rank_factor(matrix, len(matrix))
        return low_rank_posterior_weights(prior, factor, similarity, regularization, form)
    raise ValueError(f"computation: must be one of {', '.join(COMPUTATIONS)}, got {computation!r}")


class KernelBayesRule:
    """KBR, learnt from pairs of `states` X_i (n, m) and `observations` Z_i (n items).

    `regularization` is ε of the prior's weights in units of k_X(x, x). `delta` regularizes the
    posterior: δ in units of k_Z(z, z)² for the "original" rule, λ in units of k_Z(z, z) for the
    "importance-weighted" one; "plain" weights have none (`posterior_weights` has the formulas).
    Units are those of the largest diagonal entry. The prior may be weighted points or carry a
    noise model (3.6 and 4.3 of the paper). `computation` chooses how the weights are computed;
    `rank` is that of "low_rank".
    """

    def __init__(
        self,
        states: ArrayLike,
        observations: Any,
        state_kernel: DensityKernel,
        observation_kernel: Kernel,
        regularization: float,
        delta: float,
        form: Form = "original",
        rank: int | None = None,
        computation: Computation = "restricted",
    ) -> None:
        self.states = as_points("states", states, state_kernel.dimension)
        self.observations = observations
        if len(observations) != len(self.states):
            raise ValueError(f"observations: {len(observations)} for {len(self.states)} states")
        self.state_kernel = state_kernel
        self.observation_kernel = observation_kernel
        self.delta = as_positive("delta", delta)
        self.form: Form = check_form(form)
        self.computation: Computation = computation
        epsilon = as_positive("regularization", regularization)
        self._solver = relative_solver(state_kernel.gram(self.states, self.states), epsilon)
        self._gram = observation_kernel.gram(observations, observations)
        unit = as_positive("observation_kernel", float(np.diag(self._gram).max()))
        self._ridge = self.delta * (unit**2 if form == "original" else unit)
        if computation == "low_rank":
            # Made here, once: it does not depend on the prior.
            self._factor = low_rank_factor(self._gram, len(self._gram) if rank is None else rank)

    def __repr__(self) -> str:
        return f"KernelBayesRule({len(self.states)} pairs, {self.state_kernel!r}, {self.form})"

    def prior_weights(self, prior: KernelMean) -> Array:
        """Return β = (G_X + nεk_X(x, x)I)⁻¹ (m_Π(X_1), …, m_Π(X_n))."""
        if not self.state_kernel.same_as(prior.kernel):
            raise ValueError("prior: its kernel is not this rule's state kernel")
        return self._solver.solve(prior.evaluate(self.states))

    def posterior_weights(self, prior_weights: ArrayLike, observation: Any) -> Array:
        """Return α for the prior weights β (n,) and one `observation`."""
        prior = as_vector("prior_weights", prior_weights, len(self.states))
        similarities = self.observation_kernel.gram(
            self.observations, np.asarray(observation)[None]
        )
        similarity = as_vector("observation", similarities[:, 0])
        if self.computation == "low_rank":
            return low_rank_posterior_weights(
                prior, self._factor, similarity, self._ridge, self.form
            )
        return posterior_weights(
            prior, self._gram, similarity, self._ridge, self.form, self.computation
        )

    def __call__(self, prior: KernelMean, observation: Any) -> KernelMean:
        """Return the posterior's kernel mean Σ_j α_j k_X(·, X_j), its weights normalized."""
        weights = self.posterior_weights(self.prior_weights(prior), observation)
        return KernelMean(self.states, weights, self.state_kernel).normalized()


class KernelBayesFilter:
    """Filters x_t ~ p(x | x_{t−1}, u_t), seen as z_t ~ p(z | x_t).

    `predict` is a sum rule from x to x, model-based or learnt; `bayes` the kernel Bayes' rule,
    learnt from examples of states and observations. `prior` is the kernel mean of p(x_1), the
    rule's own states with equal weights when omitted.
    """

    def __init__(
        self, predict: SumRule, bayes: KernelBayesRule, prior: KernelMean | None = None
    ) -> None:
        self.predict = predict
        self.bayes = bayes
        self.reset(prior)

    def __repr__(self) -> str:
        return f"KernelBayesFilter({self.predict!r}, {self.bayes!r})"

    def reset(self, prior: KernelMean | None = None) -> None:
        """Start from `prior`, or from anywhere among the rule's states when None."""
        if prior is None:
            prior = KernelMean(self.bayes.states, None, self.bayes.state_kernel)
        self.belief = prior
        self._starts = True

    def step(self, observation: Any = None, control: Any = None) -> KernelMean:
        """Return the posterior kernel mean after one more `observation`; None where there is none.

        The first step does not predict: the prior is that of the first state. Where the rule's
        weights sum to nothing, as for an observation that is like no example, the prediction
        stays.
        """
        prior = self.belief if self._starts else self.predict(self.belief, control)
        self._starts = False
        weights = normalized("prior", self.bayes.prior_weights(prior))
        if observation is not None:
            posterior = self.bayes.posterior_weights(weights, observation)
            total = float(posterior.sum())
            if np.isfinite(total) and total > 1e-12 * float(np.abs(posterior).sum()):
                weights = posterior / total
        self.belief = KernelMean(self.bayes.states, weights, self.bayes.state_kernel)
        return self.belief

    def run(
        self, observations: Iterable[Any], controls: Iterable[Any] | None = None
    ) -> Iterator[KernelMean]:
        """Return the posterior after each observation.

        `controls` lead to each of them, the first unused.
        It goes on from the present belief.
        """
        if controls is None:
            for observation in observations:
                yield self.step(observation)
            return
        for observation, control in zip(observations, controls, strict=True):
            yield self.step(observation, control)


def smooth(
    beliefs: Sequence[KernelMean],
    model: ModelBasedSumRule,
    delta: float,
    controls: Sequence[Any] | None = None,
    *,
    form: Form = "original",
    draws: int = 4,
    seed: int = 0,
) -> list[KernelMean]:
    """Return the kernel means of p(x_t | z_1, …, z_T) from those of a filter, p(x_t | z_1, …, z_t).

    The model-based smoother of Nishiyama, Afsharinejad, Naruse, Boots and Song (2016).
    Going back, p(x_t | x_{t+1}, z_1, …, z_t) is Bayes' rule with the filter's belief as prior and
    the transition as likelihood. Its examples are the belief's points X_i with `draws` draws each
    of x_{t+1} from `model`; and since the rule is linear in the similarities, p(x_{t+1} | z_1, …,
    z_T) is integrated out by evaluating its kernel mean at these draws.

    `beliefs` have no noise, as those of `KernelBayesFilter`. `controls` are the filter's: the one
    at t leads to x_t. `delta` is δ, or λ, in units as in `KernelBayesRule`.
    """
    as_positive("delta", delta)
    if controls is not None and len(controls) != len(beliefs):
        raise ValueError(f"controls: {len(controls)} for {len(beliefs)} beliefs")
    if draws < 1:
        raise ValueError(f"draws: must be at least 1, got {draws}")
    if any(belief.noise is not None for belief in beliefs):
        raise ValueError("beliefs: must be weighted points without noise; project them first")
    generator = np.random.default_rng(seed)
    unit = model.kernel.at_zero() ** (2 if form == "original" else 1)
    result = list(beliefs[-1:])
    for step in range(len(beliefs) - 2, -1, -1):
        belief = beliefs[step]
        control = None if controls is None else controls[step + 1]
        following = model.draw(belief.points, draws, generator, control)
        weights = posterior_weights(
            np.repeat(belief.weights / draws, draws),
            model.kernel.gram(following, following),
            result[0].evaluate(following),
            delta * unit,
            form,
        )
        result.insert(0, _summed(belief, weights, draws))
    return result


def _summed(belief: KernelMean, weights: Array, draws: int) -> KernelMean:
    """Return the summed weights of each point's draws; the belief itself where they sum to zero."""
    together = weights.reshape(-1, draws).sum(axis=1)
    total = float(together.sum())
    if not (np.isfinite(total) and total > 1e-12 * float(np.abs(together).sum())):
        return belief
    return KernelMean(belief.points, normalized("weights", together), belief.kernel)
