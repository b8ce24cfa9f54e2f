"""The kernel Bayes filter of any state-space model: Algorithm 1 of the paper in its rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kbf_localization.embeddings.bayes_rule import KernelBayesRule
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.sum_rules import SumRule
from kbf_localization.embeddings.validation import normalized


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
