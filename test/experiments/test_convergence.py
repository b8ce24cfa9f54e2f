import numpy as np
import pytest

from kbf_localization.experiments.convergence import (
    Errors,
    experiment_result,
    metrics_of,
    run_trials,
    slope,
)
from kbf_localization.parallel import Serial

SIZES = (40, 80, 160, 320)


@pytest.fixture(scope="module")
def results() -> list[Errors]:
    return run_trials(8, 0, SIZES, Serial())


def test_slope_is_that_of_a_power_law_with_the_standard_error_of_its_mean() -> None:
    sizes = np.array([10.0, 100.0, 1000.0])
    exponents = np.array([0.4, 0.5, 0.6, 0.7])
    errors = 3.0 * sizes[None] ** -exponents[:, None]
    found = slope(sizes, errors)
    assert found["slope"] == pytest.approx(-0.55)
    assert found["standard_error"] == pytest.approx(exponents.std(ddof=1) / 2.0)


def test_input_error_is_that_of_independent_samples(results: list[Errors]) -> None:
    """E‖m̂ − m‖² = (k(0) − ‖m‖²)/ℓ, with k(0) = 1/(2π·0.1) and a small ‖m‖."""
    squares = np.mean([result.input**2 for result in results], axis=0)
    expected = 1.0 / (2.0 * np.pi * 0.1) / np.array(SIZES)
    # The mean of 8 squares whose standard deviation is about a fifth of them.
    np.testing.assert_allclose(squares, expected, rtol=0.25)


def test_mb_ksr_converges_at_the_rate_of_its_input_and_np_ksr_more_slowly(
    results: list[Errors],
) -> None:
    metrics = metrics_of(results)
    of_input, modelled, learnt = (metrics[name] for name in ("input", "mb_ksr", "np_ksr"))
    for rate in (of_input, modelled):
        assert abs(rate["slope"] + 0.5) < 3.0 * rate["standard_error"] + 0.03
    assert learnt["slope"] > modelled["slope"] + 2.0 * learnt["standard_error"]
    assert learnt["errors"]["320"]["mean"] > modelled["errors"]["320"]["mean"]


def test_findings_have_a_row_for_each_trial_and_a_plot(results: list[Errors]) -> None:
    found = experiment_result(results)
    header, rows = found.csv["convergence.csv"]
    assert len(list(rows)) == 8 * 3 * len(SIZES) and len(header) == 4
    assert "convergence.png" in found.plots
