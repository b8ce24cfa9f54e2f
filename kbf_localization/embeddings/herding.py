"""Kernel herding: points of equal weight that stand for a kernel mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kbf_localization.arrays import Array
from kbf_localization.embeddings.kernel_mean import KernelMean
from kbf_localization.embeddings.validation import as_points


def herd(mean: KernelMean, count: int, candidates: ArrayLike | None = None) -> Array:
    """`count` points (count, m) whose equally weighted embedding approaches `mean`.

    Each is the candidate that maximizes m(x) − Σ_s k(x, x_s) / t over the points x_s chosen so far.
    `candidates` (c, m) are the mean's own points when omitted; for a mean with noise give a set
    that covers it, such as the points with noise added. A candidate can be taken more than once.
    """
    if count < 1:
        raise ValueError(f"count: must be at least 1, got {count}")
    pool = (
        mean.points
        if candidates is None
        else as_points("candidates", candidates, mean.kernel.dimension)
    )
    attraction = mean.evaluate(pool)
    repulsion = np.zeros(len(pool))
    chosen = np.empty(count, dtype=np.intp)
    for step in range(count):
        chosen[step] = int(np.argmax(attraction - repulsion / (step + 1)))
        repulsion += mean.kernel.gram(pool, pool[chosen[step]][None])[:, 0]
    return np.asarray(pool[chosen])
