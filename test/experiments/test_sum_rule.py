import numpy as np
import pytest

from kbf_localization.embeddings import KernelMean
from kbf_localization.experiments.sum_rule import (
    IDENTITY,
    KERNEL_Y,
    draw_problem,
    error_against,
    estimated_model,
    metrics_of,
    run_trials,
    true_mean,
)
from kbf_localization.parallel import Cores, Serial


@pytest.fixture(scope="module")
def results():
    return run_trials(4, 0, Serial())


def test_true_mean_is_what_many_samples_approach() -> None:
    generator = np.random.default_rng(0)
    problem = draw_problem(generator)
    # Through the model: prior sample plus unit noise is a sample of q(y).
    sample = problem.prior_points + generator.standard_normal(problem.prior_points.shape)
    error = error_against(true_mean(problem, IDENTITY))
    # E‖m̂ − m‖² ≤ k(0)/n for independent points.
    assert error(KernelMean(sample, None, KERNEL_Y)) < 2.0 * np.sqrt(
        KERNEL_Y.at_zero() / len(sample)
    )


def test_error_is_the_rkhs_distance() -> None:
    problem = draw_problem(np.random.default_rng(1))
    truth = true_mean(problem, IDENTITY)
    estimate = KernelMean(problem.outputs, None, truth.kernel)
    assert error_against(truth)(estimate) == pytest.approx(estimate.distance(truth), rel=1e-9)


def test_estimated_model_recovers_the_true_one() -> None:
    problem = draw_problem(np.random.default_rng(2))
    rule = estimated_model(problem.inputs, problem.outputs)
    # 500 pairs on [−10, 10]²: standard errors of 0.008 and 0.06.
    np.testing.assert_allclose(rule.function.matrix, IDENTITY, atol=0.04)
    np.testing.assert_allclose(rule.noise.scale, IDENTITY, atol=0.25)


def test_figures_are_those_of_the_paper(results) -> None:
    metrics = metrics_of(results)
    assert metrics["trials"] == 4
    assert metrics["mb_ksr"]["mean"] < metrics["np_ksr_best"]["mean"] / 3.0
    assert set(metrics["np_ksr"]) >= {"0.1", "0.01", "5e-05"}
    for curve in ("misspecified_mean", "misspecified_noise"):
        lowest = min(metrics[curve], key=lambda factor: metrics[curve][factor]["mean"])
        assert lowest == "1"


def test_a_model_in_either_place_is_worth_the_same(results) -> None:
    """The caption: NP + Mb, NP + Mb (est) and Mb + NP overlap, and all beat NP + NP."""
    combined = metrics_of(results)["combined"]
    best = {
        name: min(figure["mean"] for figure in metrics.values())
        for name, metrics in combined.items()
    }
    modelled = [best[name] for name in ("np_mb", "np_mb_estimated", "mb_np")]
    assert max(modelled) < 1.1 * min(modelled)
    assert max(modelled) < 0.85 * best["np_np"]


def test_same_seed_gives_the_same_numbers_on_other_workers(results) -> None:
    # A worker has another number of BLAS threads, which add up in another order.
    (theirs,) = run_trials(1, 0, Cores(1))
    assert results[0] == pytest.approx(theirs, rel=1e-9)
    assert results[0] != results[1]
