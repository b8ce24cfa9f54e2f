"""Kernel Bayesian inference, with no robot in it.

Example::

    kernel = GaussianKernel(covariance)                      # also RationalQuadratic, Matern…
    kernel.gram(a, b)                                        # (len a, len b), density-normalized
    noise = GaussianNoise(covariance)                        # also Cauchy, VarianceGamma, Mixture
    kernel.smoothed(noise).pairwise(at, f(points))           # conditional kernel means at_i

    prior = KernelMean(points, weights, kernel)              # evaluate, expectation, norm, distance
    preimage(prior), herd(prior, count)                      # pseudo-MAP point, samples
    predict = ModelBasedSumRule(f, noise, kernel)            # predict(prior, control) -> KernelMean
    predict.gram(at, points, control)                        # G_{X'|X}
    learnt = NonparametricSumRule(X, Y, kernel_x, kernel_y, epsilon)
    bayes = KernelBayesRule(X, Z, kernel_x, PowerKernel(kernel_z, 4), epsilon, delta,
                            form="original")                 # "importance-weighted", "plain"
    posterior = bayes(predict(prior), z)                     # rules chain in any order
    KernelBayesFilter(predict, bayes).step(z, control)       # the filter of a state-space model
    smooth(beliefs, predict, delta)                          # and its smoother

ε is in units of k_X(x, x); δ in units of k_Z(z, z)², or of k_Z(z, z) where it is λ of the
importance-weighted form.

Whoever holds Gram matrices already uses the rules on arrays: `RidgeSolver(G, n·ε).solve(v)`;
`posterior_weights(β, G_Z, k_Z, δ, form)`, computed as "reference", "restricted" or "low_rank";
`support(β)` gives the rows S and `block_posterior_weights(β_S, G_SS, k_S, δ, form)` needs no more
than that block; `relative_posterior_weights` takes δ or λ in units of the block's own scale;
`low_rank_posterior_weights(β, Γ, k_Z, δ, form)` takes a factor of `pivoted_cholesky`. There ridge,
δ and λ are absolute, and the weights α are not normalized.
"""

from kbf_localization.embeddings.bayes_rule import (
    FORMS,
    Form,
    KernelBayesFilter,
    KernelBayesRule,
    block_posterior_weights,
    low_rank_posterior_weights,
    posterior_weights,
    reference_posterior_weights,
    relative_posterior_weights,
    restricted_posterior_weights,
    smooth,
    support,
)
from kbf_localization.embeddings.density import ConjugacyError, Density, EllipticalDensity
from kbf_localization.embeddings.kernel_mean import KernelMean, KernelMeanSum, herd, preimage
from kbf_localization.embeddings.kernels import (
    DensityKernel,
    GaussianKernel,
    Kernel,
    LaplaceKernel,
    MaternKernel,
    PowerKernel,
    RationalQuadraticKernel,
)
from kbf_localization.embeddings.linear_solver import RidgeSolver
from kbf_localization.embeddings.noise import CauchyNoise, GaussianNoise, MixtureNoise
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor, pivoted_cholesky
from kbf_localization.embeddings.sum_rules import (
    AffineMap,
    ModelBasedSumRule,
    NonparametricSumRule,
    SumRule,
)
from kbf_localization.embeddings.validation import normalized
from kbf_localization.embeddings.variance_gamma import VarianceGammaNoise

__all__ = [
    "FORMS",
    "AffineMap",
    "CauchyNoise",
    "ConjugacyError",
    "Density",
    "DensityKernel",
    "EllipticalDensity",
    "Form",
    "GaussianKernel",
    "GaussianNoise",
    "Kernel",
    "KernelBayesFilter",
    "KernelBayesRule",
    "KernelMean",
    "KernelMeanSum",
    "LaplaceKernel",
    "MaternKernel",
    "MixtureNoise",
    "ModelBasedSumRule",
    "NonparametricSumRule",
    "PowerKernel",
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
    "relative_posterior_weights",
    "restricted_posterior_weights",
    "smooth",
    "support",
]
