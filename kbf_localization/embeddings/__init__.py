"""Kernel Bayesian inference, with no robot in it::

    kernel = GaussianKernel(covariance)                      # also RationalQuadratic, Matern…
    kernel.gram(a, b)                                        # (len a, len b), density-normalized
    noise = GaussianNoise(covariance)                        # also Cauchy, VarianceGamma, Mixture
    kernel.smoothed(noise).pairwise(at, f(points))           # conditional kernel means at_i

    prior = KernelMean(points, weights, kernel)              # evaluate, expectation, norm, distance
    preimage(prior), herd(prior, count)                      # pseudo-MAP point, samples
    predict = ModelBasedSumRule(f, noise, kernel)            # predict(prior, control) -> KernelMean
    predict.gram(at, points, control)                        # G_{X'|X}
    learnt = NonparametricSumRule(X, Y, kernel_x, kernel_y, epsilon)
    bayes = KernelBayesRule(X, Z, kernel_x, kernel_z, epsilon, delta, form="restricted")
    posterior = bayes(predict(prior), z)                     # rules chain in any order

Whoever holds Gram matrices already uses the rules on arrays: `RidgeSolver(G, n·ε).solve(v)`;
`posterior_weights(β, G_Z, k_Z, δ, form=…)` in the forms "reference", "restricted" and "low_rank";
`support(β)` gives the rows S and `block_posterior_weights(β_S, G_SS, k_S, δ)` needs no more than
that block; `low_rank_posterior_weights(β, Γ, k_Z, δ)` takes a factor of `pivoted_cholesky`.
Weights α are not normalized by the functions on arrays.
"""

from kbf_localization.embeddings.bayes_rule import KernelBayesRule
from kbf_localization.embeddings.density import ConjugacyError, Density
from kbf_localization.embeddings.herding import herd
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import (
    DensityKernel,
    GaussianKernel,
    Kernel,
    LaplaceKernel,
    MaternKernel,
    RationalQuadraticKernel,
)
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.embeddings.noise import CauchyNoise, GaussianNoise, MixtureNoise
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor, pivoted_cholesky
from kbf_localization.embeddings.posterior_weights import (
    block_posterior_weights,
    low_rank_posterior_weights,
    posterior_weights,
    reference_posterior_weights,
    restricted_posterior_weights,
    support,
)
from kbf_localization.embeddings.preimage import preimage
from kbf_localization.embeddings.sum_rules import (
    AffineMap,
    ModelBasedSumRule,
    NonparametricSumRule,
    SumRule,
)
from kbf_localization.embeddings.validation import normalized
from kbf_localization.embeddings.variance_gamma import VarianceGammaNoise

__all__ = [
    "AffineMap",
    "CauchyNoise",
    "ConjugacyError",
    "Density",
    "DensityKernel",
    "GaussianKernel",
    "GaussianNoise",
    "Kernel",
    "KernelBayesRule",
    "KernelMean",
    "LaplaceKernel",
    "MaternKernel",
    "MixtureNoise",
    "ModelBasedSumRule",
    "NonparametricSumRule",
    "RationalQuadraticKernel",
    "RidgeSolver",
    "SumRule",
    "VarianceGammaNoise",
    "block_posterior_weights",
    "herd",
    "low_rank_factor",
    "low_rank_posterior_weights",
    "normalized",
    "pivoted_cholesky",
    "posterior_weights",
    "preimage",
    "reference_posterior_weights",
    "restricted_posterior_weights",
    "support",
]
