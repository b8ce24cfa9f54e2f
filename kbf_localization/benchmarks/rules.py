"""How fast the kernel Bayes' rule is: on the prior's support, against the paper's formula."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from kbf_localization.embeddings import (
    GaussianKernel,
    GaussianNoise,
    KernelBayesRule,
    KernelMean,
    ModelBasedSumRule,
    reference_posterior_weights,
    restricted_posterior_weights,
)
from kbf_localization.progress import Progress, no_progress

POSES = 2000
AREA_M = 40.0
SPACING_M = AREA_M / np.sqrt(POSES)


def run(progress: Progress = no_progress) -> dict[str, dict[str, float | str]]:
    """The update of a prior that lives near one place of a map of 2000 poses."""
    progress(0, 2, "kernel Bayes' rule")
    generator = np.random.default_rng(0)
    poses = generator.uniform(0.0, AREA_M, (POSES, 2))
    kernel = GaussianKernel(SPACING_M**2 * np.eye(2))
    observations = poses + 0.1 * generator.standard_normal((POSES, 2))
    rule = KernelBayesRule(poses, observations, kernel, kernel, 1e-4, 1e-4)
    motion = ModelBasedSumRule(lambda x: x + 0.2, GaussianNoise(0.05**2 * np.eye(2)), kernel)
    centre = np.full((1, 2), AREA_M / 2.0)
    prior_weights = rule.prior_weights(motion(KernelMean(centre, [1.0], kernel)))
    gram = kernel.gram(observations, observations)
    similarities = kernel.gram(observations, centre + 0.2)[:, 0]

    arguments = (prior_weights, gram, similarities, 1e-4)
    ours = median_ms(lambda: restricted_posterior_weights(*arguments), 200)
    progress(1, 2, "kernel Bayes' rule")
    reference = median_ms(lambda: reference_posterior_weights(*arguments), 5)
    progress(2, 2, "kernel Bayes' rule")
    return {
        "restricted_update_n2000": {
            "ours_ms": ours,
            "reference_ms": reference,
            "ratio": reference / ours,
            "reference": "the paper's formula on all 2000 poses (NumPy and LAPACK)",
        }
    }


def median_ms(function: Callable[[], object], repetitions: int) -> float:
    """Median time of a call in milliseconds, after one call that is not counted."""
    function()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))
