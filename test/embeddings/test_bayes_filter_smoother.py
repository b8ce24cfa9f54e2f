import numpy as np
import pytest

from kbf_localization.embeddings import (
    GaussianKernel,
    GaussianNoise,
    KernelMean,
    ModelBasedSumRule,
    smooth,
)

MOTION, NOISE, SEEN = 0.95, 0.25**2, 0.5**2
STEPS = 12


def mean_of(belief: KernelMean) -> float:
    return float(belief.expectation(lambda x: x[:, 0]))


def kalman(observations: np.ndarray, controls: np.ndarray) -> tuple[list, list]:
    """(mean, variance) of the predictions, and of the Kalman filter."""
    predicted, filtered = [], []
    mean, variance = 0.0, 1.0
    for step, observation in enumerate(observations):
        if step > 0:
            mean, variance = MOTION * mean + controls[step], MOTION**2 * variance + NOISE
        predicted.append((mean, variance))
        gain = variance / (variance + SEEN)
        mean, variance = mean + gain * (observation - mean), (1.0 - gain) * variance
        filtered.append((mean, variance))
    return predicted, filtered


def rauch_tung_striebel(predicted: list, filtered: list) -> np.ndarray:
    """The smoothed means."""
    means = [mean for mean, _ in filtered]
    for step in range(len(means) - 2, -1, -1):
        (foreseen, spread), (mean, variance) = predicted[step + 1], filtered[step]
        means[step] = mean + variance * MOTION / spread * (means[step + 1] - foreseen)
    return np.array(means)


@pytest.mark.parametrize("form", ["original", "importance-weighted"])
def test_linear_gaussian_smoother_agrees_with_rauch_tung_and_striebel(form) -> None:
    generator = np.random.default_rng(4)
    controls = 0.2 * generator.standard_normal(STEPS)
    observations = np.cumsum(controls) + np.sqrt(SEEN) * generator.standard_normal(STEPS)
    predicted, filtered = kalman(observations, controls)
    kernel, states = GaussianKernel(0.4**2), np.linspace(-3.0, 3.0, 61)[:, None]
    beliefs = [
        KernelMean([[mean]], [1.0], kernel, GaussianNoise(variance)).projected(states, 1e-8)
        for mean, variance in filtered
    ]
    model = ModelBasedSumRule(lambda x, u: MOTION * x + u, GaussianNoise(NOISE), kernel)
    smoothed = smooth(beliefs, model, 1e-5, controls, form=form, draws=8)
    exact = rauch_tung_striebel(predicted, filtered)
    errors = np.array([mean_of(item) for item in smoothed]) - exact
    gained = np.array([mean for mean, _ in filtered]) - exact
    # What is left is the error of the draws.
    assert np.sqrt(np.mean(errors**2)) < 0.35 * np.sqrt(np.mean(gained**2))


def test_the_last_belief_stays_and_one_alone_is_its_own_smoother() -> None:
    kernel = GaussianKernel(0.5)
    belief = KernelMean([[0.0], [1.0]], [0.4, 0.6], kernel)
    model = ModelBasedSumRule(lambda x: x, GaussianNoise(0.1), kernel)
    assert smooth([belief], model, 1e-3) == [belief]
    assert smooth([belief, belief], model, 1e-3)[-1] is belief


def test_what_cannot_be_smoothed_is_refused() -> None:
    kernel = GaussianKernel(0.5)
    belief = KernelMean([[0.0]], [1.0], kernel)
    noisy = KernelMean([[0.0]], [1.0], kernel, GaussianNoise(0.1))
    model = ModelBasedSumRule(lambda x: x, GaussianNoise(0.1), kernel)
    for match, arguments in (
        ("^delta:", ([belief], model, 0.0)),
        ("^controls:", ([belief], model, 1.0, [1, 2])),
        ("^beliefs:", ([noisy], model, 1.0)),
    ):
        with pytest.raises(ValueError, match=match):
            smooth(*arguments)  # type: ignore[arg-type]
