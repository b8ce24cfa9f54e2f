"""Every bad argument is refused with its name."""

from collections.abc import Callable

import numpy as np
import pytest

from kbf_localization.embeddings import (
    CauchyNoise,
    GaussianKernel,
    GaussianNoise,
    KernelBayesRule,
    KernelMean,
    MaternKernel,
    MixtureNoise,
    ModelBasedSumRule,
    NonparametricSumRule,
    VarianceGammaNoise,
    normalized,
    posterior_weights,
)

EYE = np.eye(2)
KERNEL = GaussianKernel(EYE)
POINTS = np.zeros((3, 2))
BAD = np.array([[0.0, np.nan]])
PRIOR = KernelMean(POINTS, None, KERNEL)

CASES: list[tuple[str, Callable[[], object]]] = [
    ("points", lambda: KernelMean(BAD, [1.0], KERNEL)),
    ("points", lambda: KernelMean(np.zeros((3, 5)), None, KERNEL)),
    ("points", lambda: KernelMean(np.zeros((0, 2)), None, KERNEL)),
    ("points", lambda: KernelMean(np.zeros((1, 1, 2)), None, KERNEL)),
    ("weights", lambda: KernelMean(POINTS, [1.0, 2.0], KERNEL)),
    ("weights", lambda: KernelMean(POINTS, [1.0, 2.0, np.inf], KERNEL)),
    ("weights", lambda: KernelMean(POINTS, [1.0, -1.0, 0.0], KERNEL).normalized()),
    ("weights", lambda: normalized("weights", [0.1, 0.2, -0.3])),
    ("a", lambda: KERNEL.gram(BAD, POINTS)),
    ("b", lambda: KERNEL.gram(POINTS, np.zeros((3, 1)))),
    ("at", lambda: PRIOR.evaluate(BAD)),
    ("covariance", lambda: GaussianKernel(-EYE)),
    ("covariance", lambda: GaussianKernel(np.ones((2, 2)))),
    ("covariance", lambda: GaussianNoise([[1.0, 0.5], [0.0, 1.0]])),
    ("covariance", lambda: GaussianNoise(np.ones((2, 3)))),
    ("covariance", lambda: GaussianNoise([[np.nan]])),
    ("location", lambda: GaussianNoise(EYE, [0.0])),
    ("scale", lambda: CauchyNoise(-1.0)),
    ("scale", lambda: MaternKernel(1.0, 0.0)),
    ("smoothness", lambda: MaternKernel(0.0, 1.0)),
    ("shape", lambda: VarianceGammaNoise(1.0, 1.0, EYE)),
    ("rate", lambda: VarianceGammaNoise(2.0, -1.0, EYE)),
    ("coefficients", lambda: MixtureNoise([0.5, 0.6], [GaussianNoise(1.0), GaussianNoise(1.0)])),
    ("coefficients", lambda: MixtureNoise([], [])),
    ("parts", lambda: MixtureNoise([0.5, 0.5], [GaussianNoise(1.0), GaussianNoise(EYE)])),
    ("noise", lambda: KERNEL.smoothed(GaussianNoise(1.0))),
    ("function", lambda: ModelBasedSumRule(lambda x: x[:1], None, KERNEL)(PRIOR)),
    ("function", lambda: ModelBasedSumRule(lambda x: x * np.nan, None, KERNEL)(PRIOR)),
    ("inputs", lambda: NonparametricSumRule(np.zeros((0, 2)), POINTS, KERNEL, KERNEL, 1.0)),
    ("outputs", lambda: NonparametricSumRule(POINTS, POINTS[:2], KERNEL, KERNEL, 1.0)),
    ("regularization", lambda: NonparametricSumRule(POINTS, POINTS, KERNEL, KERNEL, 0.0)),
    ("regularization", lambda: PRIOR.projected(POINTS, np.nan)),
    ("control_kernel", lambda: NonparametricSumRule(POINTS, POINTS, KERNEL, KERNEL, 1.0, POINTS)),
    ("states", lambda: KernelBayesRule(BAD, POINTS[:1], KERNEL, KERNEL, 1.0, 1.0)),
    ("observations", lambda: KernelBayesRule(POINTS, POINTS[:2], KERNEL, KERNEL, 1.0, 1.0)),
    ("regularization", lambda: KernelBayesRule(POINTS, POINTS, KERNEL, KERNEL, -1.0, 1.0)),
    ("delta", lambda: KernelBayesRule(POINTS, POINTS, KERNEL, KERNEL, 1.0, 0.0)),
    ("regularization", lambda: posterior_weights(np.ones(2), EYE, np.ones(2), -1.0)),
    ("gram", lambda: posterior_weights(np.ones(2), np.ones((2, 3)), np.ones(2), 1.0)),
    ("prior_weights", lambda: posterior_weights(np.ones(3), EYE, np.ones(2), 1.0)),
    ("similarities", lambda: posterior_weights(np.ones(2), EYE, np.full(2, np.nan), 1.0)),
    ("form", lambda: posterior_weights(np.ones(2), EYE, np.ones(2), 1.0, "fast")),  # type: ignore[arg-type]
    (
        "computation",
        lambda: posterior_weights(np.ones(2), EYE, np.ones(2), 1.0, computation="fast"),  # type: ignore[arg-type]
    ),
    ("form", lambda: KernelBayesRule(POINTS, POINTS, KERNEL, KERNEL, 1.0, 1.0, form="fast")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("argument", "call"), CASES)
def test_bad_argument_is_refused_by_name(argument: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=f"^{argument}:"):
        call()
