"""The kernel Bayes smoother (Nishiyama, Afsharinejad, Naruse, Boots and Song 2016), model-based."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.posterior_weights import Form, posterior_weights
from kbf_localization.embeddings.sum_rules import ModelBasedSumRule
from kbf_localization.embeddings.validation import as_positive, normalized


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
    """Return the weights of each point's draws together.

    The belief itself where they sum to nothing.
    """
    together = weights.reshape(-1, draws).sum(axis=1)
    total = float(together.sum())
    if not (np.isfinite(total) and total > 1e-12 * float(np.abs(together).sum())):
        return belief
    return KernelMean(belief.points, normalized("weights", together), belief.kernel)
