"""The kernel Bayes' rule: a prior kernel mean of x and an observation z in, the posterior out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.kernels import DensityKernel, Kernel
from kbf_localization.embeddings.linear_solver import relative_solver
from kbf_localization.embeddings.pivoted_cholesky import low_rank_factor
from kbf_localization.embeddings.posterior_weights import (
    Computation,
    Form,
    check_form,
    low_rank_posterior_weights,
    posterior_weights,
)
from kbf_localization.embeddings.validation import as_points, as_positive, as_vector


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
