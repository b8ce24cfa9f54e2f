"""The verdict says what the run's arrays say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kbf_localization.evaluation.metric_texts import (
    METRIC_TEXTS,
    length_text,
    metric_text,
    percent_text,
)
from kbf_localization.evaluation.metrics import trajectory_metrics
from kbf_localization.evaluation.run import Run
from kbf_localization.evaluation.verdict import verdict


def run_of(errors: Sequence[float], states: Sequence[str]) -> Run:
    """A frame each second, off by `errors` along x; NaN is a frame without truth."""
    count = len(errors)
    truth = np.zeros((count, 3))
    truth[np.isnan(errors)] = np.nan
    estimates = np.zeros((count, 3))
    estimates[:, 0] = np.nan_to_num(errors)
    return Run(
        method="kbf",
        stamps_ns=np.arange(count, dtype=np.int64) * 10**9,
        estimates=estimates,
        covariances=np.tile(np.eye(3), (count, 1, 1)),
        truth=truth,
        states=tuple(states),
        evidence=np.ones(count),
        step_ms=np.ones(count),
    )


def test_a_good_runs_verdict_has_its_figures() -> None:
    errors = [5.0] * 3 + [0.07, 0.25] + [0.07] * 201
    run = run_of(errors, ["localizing"] * 3 + ["tracking"] * 203)
    assert verdict(run) == (
        "Found itself after 3 s without a hint, then stayed within 25 cm (median 7 cm) for 202 s; "
        "never lost; never confident and wrong."
    )


def test_a_run_that_is_smoothed_neither_finds_nor_loses_itself() -> None:
    run = replace(run_of([0.07, 0.25, 0.07], ["tracking"] * 3), is_smoothed=True)
    assert verdict(run) == (
        "Smoothed, the path is known from 0 s on: stayed within 25 cm (median 7 cm) for 2.0 s; "
        "never confident and wrong."
    )


def test_its_figures_are_those_of_the_metrics() -> None:
    rng = np.random.default_rng(0)
    errors = np.abs(rng.normal(0, 0.1, 1000))
    errors[500:503] = 1.5
    run = run_of(errors.tolist(), ["tracking"] * 1000)
    said, figures = verdict(run), trajectory_metrics(run)
    assert f"median {length_text(figures['position_median_m'])}" in said
    assert f"within {length_text(figures['position_p95_m'])} in 95 %" in said
    assert f"largest {length_text(figures['position_max_m'])}" in said
    found = re.search(r"1 frame in (\d+) confident and wrong", said)
    assert found and int(found[1]) == round(1 / figures["share_confident_wrong"])


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ("tttttttttt", "never lost"),
        ("ttlltttttt", "lost once, for 2.0 s"),
        ("ttlltltttt", "lost 2 times, for 3 s in all"),
        ("ttttttllll", "lost once, for 3 s, still lost at the end"),
    ],
)
def test_losses_are_counted_and_timed(states: str, said: str) -> None:
    names = {"t": "tracking", "l": "lost"}
    run = run_of([0.1] * len(states), [names[letter] for letter in states])
    assert f"; {said};" in verdict(run)


def test_wrong_while_lost_is_not_confident() -> None:
    run = run_of([0.1, 3.0, 0.1, 3.0], ["tracking", "lost", "tracking", "tracking"])
    assert "25.0 % of the frames confident and wrong" in verdict(run)


def test_a_run_that_never_was_sure_says_so() -> None:
    assert verdict(run_of([1.0] * 31, ["localizing"] * 31)) == "Never found itself in 30 s."


def test_a_baseline_without_states_is_described_by_its_errors() -> None:
    run = replace(run_of([0.1] * 95 + [2.0] * 5, ["localizing"] * 100), has_state=False)
    said = verdict(run)
    assert "Half of its poses are within 10 cm" in said and "1 frame in 20 beyond 1 m" in said


def test_a_method_without_a_state_has_no_figures_of_one() -> None:
    run = run_of([0.1, 2.0], ["localizing"] * 2)
    of_states = {"share_tracking", "share_degraded", "share_confident_wrong"}
    assert of_states <= set(trajectory_metrics(run))
    assert not of_states & set(trajectory_metrics(replace(run, has_state=False)))


def test_wrong_is_beyond_the_maps_scale_where_a_metre_is_more() -> None:
    run = run_of([0.1, 0.3, 0.1, 0.6], ["tracking", "tracking", "localizing", "localizing"])
    assert trajectory_metrics(run)["share_confident_wrong"] == 0.0
    small = trajectory_metrics(replace(run, wrong_beyond_m=0.2))
    assert small["share_confident_wrong"] == 0.25
    assert small["confident_wrong_beyond_m"] == 0.2
    assert "25.0 % of the frames confident and wrong" in verdict(replace(run, wrong_beyond_m=0.2))


def test_time_carried_by_odometry_alone_is_said() -> None:
    run = replace(run_of([0.1] * 11, ["tracking"] * 11), degraded_s=4.0)
    assert trajectory_metrics(run)["share_degraded"] == pytest.approx(0.4)
    assert "carried by odometry alone for 4 s" in verdict(run)


def test_a_drive_without_poses_has_no_errors() -> None:
    said = verdict(run_of([np.nan] * 10, ["localizing"] + ["tracking"] * 9))
    assert "errors cannot be computed" in said and "cm" not in said and "wrong" not in said


@pytest.mark.parametrize(
    ("metres", "coarse", "fine"),
    [
        (0.0725, "7 cm", "7.2 cm"),
        (0.004, "4 mm", "4 mm"),
        (0.2537, "25 cm", "25 cm"),
        (0.9999, "1.00 m", "1.00 m"),
        (12.34, "12.3 m", "12.3 m"),
        (float("nan"), "–", "–"),
    ],
)
def test_lengths_are_written_as_people_say_them(metres: float, coarse: str, fine: str) -> None:
    assert length_text(metres) == coarse
    assert length_text(metres, fine=True) == fine


def test_fractions_are_per_cent_and_nearly_all_is_not_all() -> None:
    assert percent_text(0.008) == "0.8 %"
    assert percent_text(0.0) == "0 %" and percent_text(1.0) == "100 %"
    assert percent_text(0.99996) == "99.99 %"
    assert metric_text("share_beyond_1m", 0.008) == "0.8 %"


def test_every_figure_is_explained() -> None:
    driven = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    run = replace(
        run_of([0.1, 0.2], ["localizing", "tracking"]),
        inliers=np.array([0, 60]),
        truth=driven,
        map_truth=driven,
    )
    figures = trajectory_metrics(run)
    assert set(figures) == set(METRIC_TEXTS)
    for text in METRIC_TEXTS.values():
        what, good = text.tip.split(". ")
        assert what and good.endswith(".")
