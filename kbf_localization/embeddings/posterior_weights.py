"""The weights of the kernel Bayes' rule: three forms of the rule, each with several computations.

All take the prior weights β (n,), the observations' Gram matrix G_Z (n, n), the similarities
k_Z(z) (n,) of the observation and a regularization, and give α (n,), not normalized:

- "original": α = D(β)G_Z ((D(β)G_Z)² + δI)⁻¹ D(β)k_Z (equation kernelBayesrule of the paper), β of
  any sign;
- "importance-weighted": α = √D (√D G_Z √D + λI)⁻¹ √D k_Z with D = D(max(β, 0)) (Xu, Chen, Doucet
  and Gretton 2022). The density ratio of that paper at X_i (KuLSIF) is n β_i, so both forms take
  the same β; α is the kernel ridge regression of the states on the observations, weighted by β;
- "plain": α = max(β, 0) k_Z, the importance-weighted form as λ → ∞: the similarity is taken for the
  likelihood.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from scipy.linalg import solve
from scipy.linalg.lapack import dposv, zgesv

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor
from kbf_localization.embeddings.validation import as_positive, as_square, as_vector

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
