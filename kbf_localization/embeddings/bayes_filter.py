"""The kernel Bayes filter of any state-space model: Algorithm 1 of the paper in its rules.

Its smoother is that of Nishiyama, Afsharinejad, Naruse, Boots and Song (2016), model-based.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.bayes_rule import KernelBayesRule
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.posterior_weights import Form, posterior_weights
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule, SumRule
from kbf_localization.embeddings.validation import as_positive, normalized


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
