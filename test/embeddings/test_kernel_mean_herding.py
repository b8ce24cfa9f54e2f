import numpy as np
import pytest

from kbf_localization.embeddings import GaussianKernel, GaussianNoise, KernelMean, herd

KERNEL = GaussianKernel(0.3 * np.eye(2))


def test_herded_points_beat_independent_ones() -> None:
    generator = np.random.default_rng(0)
    mean = KernelMean(generator.standard_normal((500, 2)), None, KERNEL)
    herded = KernelMean(herd(mean, 40), None, KERNEL).distance(mean)
    drawn = np.mean(
        [
            KernelMean(generator.standard_normal((40, 2)), None, KERNEL).distance(mean)
            for _ in range(20)
        ]
    )
    assert herded < 0.5 * drawn


def test_error_falls_with_the_number_of_points() -> None:
    generator = np.random.default_rng(1)
    noise = GaussianNoise(0.4 * np.eye(2))
    mean = KernelMean(generator.standard_normal((50, 2)), None, KERNEL, noise)
    candidates = 1.5 * generator.standard_normal((800, 2))
    errors = [
        KernelMean(herd(mean, count, candidates), None, KERNEL).distance(mean)
        for count in (10, 40, 160)
    ]
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2]


def test_negative_weights_keep_herding_away() -> None:
    mean = KernelMean([[0.0, 0.0], [2.0, 0.0]], [1.2, -0.2], KERNEL)
    np.testing.assert_array_equal(herd(mean, 5), np.zeros((5, 2)))


def test_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="^count:"):
        herd(KernelMean([[0.0, 0.0]], [1.0], KERNEL), 0)
