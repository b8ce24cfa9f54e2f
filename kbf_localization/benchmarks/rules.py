"""How fast the kernel Bayes' rule is: on the prior's support, against the paper's formula."""

from __future__ import annotations

import numpy as np

from kbf_localization.arrays import Array
from kbf_localization.benchmarks._timing import case, milliseconds
from kbf_localization.embeddings import (
    GaussianKernel,
    GaussianNoise,
    KernelBayesRule,
    KernelMean,
    ModelBasedSumRule,
    RationalQuadraticKernel,
    reference_posterior_weights,
    restricted_posterior_weights,
)
from kbf_localization.progress import Progress, no_progress

POSES = 2000
AREA_M = 30.0
POSITION_STD_M = 1.0
HEADING_STD = 0.4


def run(progress: Progress = no_progress) -> dict[str, dict[str, float | str]]:
    """Time the update of a prior near one pose of a map of 2000, as while tracking."""
    progress(0, 2, "kernel Bayes' rule")
    generator = np.random.default_rng(0)
    poses = drive_poses(POSES)
    kernel = GaussianKernel(
        np.diag([POSITION_STD_M, POSITION_STD_M, HEADING_STD, HEADING_STD]) ** 2
    )
    observation_kernel = RationalQuadraticKernel(kernel.covariance)
    observations = poses + 0.1 * generator.standard_normal(poses.shape)
    epsilon = 0.3 / POSES
    rule = KernelBayesRule(poses, observations, kernel, observation_kernel, epsilon, 1e-4)
    step = np.array([0.2, 0.0, 0.0, 0.0])
    motion = ModelBasedSumRule(lambda x: x + step, GaussianNoise(0.05**2 * np.eye(4)), kernel)
    here = poses[POSES // 3][None]
    prior_weights = rule.prior_weights(motion(KernelMean(here, [1.0], kernel)))
    # Far tails would be subnormal numbers, which slow the reference down twentyfold for nothing.
    prior_weights[np.abs(prior_weights) < 1e-16 * np.abs(prior_weights).max()] = 0.0
    gram = observation_kernel.gram(observations, observations)
    similarities = observation_kernel.gram(observations, here + step)[:, 0]

    arguments = (prior_weights, gram, similarities, 1e-4)
    # The first call of each is not counted.
    ours = [milliseconds(restricted_posterior_weights, *arguments) for _ in range(201)]
    progress(1, 2, "kernel Bayes' rule")
    reference = [milliseconds(reference_posterior_weights, *arguments) for _ in range(6)]
    progress(2, 2, "kernel Bayes' rule")
    return {
        "restricted_update_n2000": case(
            ours[1:], reference[1:], "the paper's formula on all 2000 poses (NumPy and LAPACK)"
        )
    }


def drive_poses(count: int) -> Array:
    """Return poses of a drive that crosses itself all over a square, as (x, y, cos θ, sin θ)."""
    phase = np.linspace(0.0, 2.0 * np.pi, count, endpoint=False)
    x, y = np.sin(5.0 * phase), np.sin(6.0 * phase)
    headings = np.arctan2(6.0 * np.cos(6.0 * phase), 5.0 * np.cos(5.0 * phase))
    half = AREA_M / 2.0
    return np.column_stack([half * x, half * y, np.cos(headings), np.sin(headings)])
