"""The weights of the kernel Bayes' rule, in the paper's form and two that are faster.

All compute α = D(β)G_Z ((D(β)G_Z)² + δI)⁻¹ D(β)k_Z(z) (equation kernelBayesrule) from the prior
weights β (n,), the observations' Gram matrix G_Z (n, n), the similarities k_Z(z) (n,) of the
observation and δ > 0. None of them normalizes α.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.linalg import solve
from scipy.linalg.lapack import dposv, zgesv

from kbf_localization.arrays import Array, Rows
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor
from kbf_localization.embeddings.validation import as_positive, as_square, as_vector

Form = Literal["reference", "restricted", "low_rank"]
SUPPORT_THRESHOLD = 1e-6


def support(prior_weights: Array, threshold: float = SUPPORT_THRESHOLD) -> Rows:
    """S, the rows where |β_i| > `threshold`·max|β|; α is zero, or as small, elsewhere."""
    magnitudes = np.abs(prior_weights)
    return np.flatnonzero(magnitudes > threshold * magnitudes.max(initial=0.0))


def block_posterior_weights(
    prior_weights: Array, gram: Array, similarities: Array, delta: float
) -> Array:
    """α on a block: β, G_Z and k_Z of the rows S alone, all that the rule needs of them.

    B = D(β)G_Z is real, so B(B² + δI)⁻¹ is the real part of (B − i√δI)⁻¹: one complex solve, and
    nothing is squared.
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


def reference_posterior_weights(
    prior_weights: Array, gram: Array, similarities: Array, delta: float
) -> Array:
    """The paper's formula, term by term."""
    weighted = prior_weights[:, None] * gram
    squared = weighted @ weighted + delta * np.eye(len(gram))
    return np.asarray(weighted @ solve(squared, prior_weights * similarities))


def restricted_posterior_weights(
    prior_weights: Array,
    gram: Array,
    similarities: Array,
    delta: float,
    threshold: float = SUPPORT_THRESHOLD,
) -> Array:
    """The rule on the support of β; exact for `threshold` 0."""
    rows = support(prior_weights, threshold)
    posterior = np.zeros(len(prior_weights))
    if len(rows) == 0:
        return posterior
    posterior[rows] = block_posterior_weights(
        prior_weights[rows], gram[np.ix_(rows, rows)], similarities[rows], delta
    )
    return posterior


def low_rank_posterior_weights(
    prior_weights: Array, factor: Array, similarities: Array, delta: float
) -> Array:
    """The symmetric form for G_Z ≈ ΓΓᵀ, `factor` Γ (n, r): D(β)Γ(A² + δI)⁻¹ΓᵀD(β)k_Z, A = ΓᵀD(β)Γ.

    The r×r system is positive definite for negative β too.
    """
    weighted = prior_weights[:, None] * factor
    inner = factor.T @ weighted
    system = inner @ inner
    system.flat[:: len(system) + 1] += delta
    right = weighted.T @ similarities
    _, solution, info = dposv(system, right, lower=1)
    if info != 0:
        solution = np.linalg.lstsq(system, right, rcond=None)[0]
    return np.asarray(weighted @ solution)


def posterior_weights(
    prior_weights: Array, gram: Array, similarities: Array, delta: float, form: Form = "restricted"
) -> Array:
    """α in one of the three forms, arguments checked; the low-rank form has all of its ranks."""
    matrix = as_square("gram", gram)
    prior = as_vector("prior_weights", prior_weights, len(matrix))
    similarity = as_vector("similarities", similarities, len(matrix))
    as_positive("delta", delta)
    if form == "reference":
        return reference_posterior_weights(prior, matrix, similarity, delta)
    if form == "restricted":
        return restricted_posterior_weights(prior, matrix, similarity, delta)
    if form == "low_rank":
        factor = low_rank_factor(matrix, len(matrix))
        return low_rank_posterior_weights(prior, factor, similarity, delta)
    raise ValueError(f"form: must be reference, restricted or low_rank, got {form!r}")
