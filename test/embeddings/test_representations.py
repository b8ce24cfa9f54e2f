"""What a kernel, a noise or a rule says about itself, in one short line."""

import numpy as np
import pytest

from kbf_localization.embeddings import (
    AffineMap,
    CauchyNoise,
    GaussianKernel,
    GaussianNoise,
    KernelBayesRule,
    KernelMean,
    LaplaceKernel,
    MixtureNoise,
    ModelBasedSumRule,
    NonparametricSumRule,
)

KERNEL = GaussianKernel(np.diag([0.25, 4.0]))
NOISE = GaussianNoise(0.01 * np.eye(2))
POINTS = np.arange(10.0).reshape(5, 2)


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (KERNEL, "GaussianKernel(widths 0.5, 2)"),
        (LaplaceKernel(9.0), "LaplaceKernel(widths 3)"),
        (CauchyNoise(0.04), "CauchyNoise(widths 0.2)"),
        (
            MixtureNoise([0.5, 0.5], [GaussianNoise(0.01), GaussianNoise(1.0)]),
            "MixtureNoise(widths 0.1; 1)",
        ),
        (
            KernelMean(POINTS, None, KERNEL),
            "KernelMean(5 points in 2 dimensions, 0 negative weights, "
            "GaussianKernel(widths 0.5, 2))",
        ),
        (AffineMap(np.eye(2)), "AffineMap(from 2 to 2 dimensions)"),
        (
            ModelBasedSumRule(AffineMap(np.eye(2)), NOISE, KERNEL),
            "ModelBasedSumRule(GaussianNoise(widths 0.1, 0.1), GaussianKernel(widths 0.5, 2))",
        ),
        (
            NonparametricSumRule(POINTS, POINTS, KERNEL, KERNEL, 0.1),
            "NonparametricSumRule(5 pairs, GaussianKernel(widths 0.5, 2))",
        ),
        (
            KernelBayesRule(POINTS, POINTS, KERNEL, KERNEL, 0.1, 0.1),
            "KernelBayesRule(5 pairs, GaussianKernel(widths 0.5, 2), original)",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_is_short_and_says_what_it_is(thing: object, text: str) -> None:
    assert repr(thing) == text
