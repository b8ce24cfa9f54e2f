"""The choice of the published hypothesis, its running evidence, and what landmarks say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from kbf_localization.filters.association import Association, best_fit, landmark_ratios
from kbf_localization.filters.hypothesis import GATE_MAHALANOBIS, Hypothesis
from kbf_localization.filters.kernel_belief import EVIDENCE_MEMORY, EstimateSelector
from kbf_localization.filters.kernel_step import LocalPosterior
from kbf_localization.training_map.calibration import LikelihoodRatioModel
from test.filters.synthetic_world import Fix

COVERED = {1: 1.0, 2: 1.0}
EVIDENCE = LikelihoodRatioModel(5.0, 4.0, -1.0, -2.0, 5.0, 0.3, median=2.5, q005=-0.25)


def hypothesis(number: int, weight: float) -> Hypothesis:
    prior = Hypothesis.from_prior(np.zeros(3), np.eye(3), number)
    return prior.with_log_weight(np.log(weight))


def association(number: int, coverage: float, log_odds: float) -> Association:
    rows, weights = np.zeros(1, dtype=np.intp), np.ones(1)
    posterior = LocalPosterior(rows, weights, coverage, 0.5, 0.3, None)
    return Association(hypothesis(number, 0.5), posterior, log_odds)


def confirmed() -> EstimateSelector:
    """A selector that publishes hypothesis 1, which was almost certain once."""
    selector = EstimateSelector()
    selector.select([hypothesis(1, 0.999)], COVERED, {})
    assert selector.confirmed and selector.number == 1
    return selector


@pytest.mark.parametrize(("lead", "number"), [(2.9, 1), (3.1, 2)])
def test_a_confirmed_hypothesis_is_replaced_beyond_a_ratio_of_e_cubed(lead, number):
    selector = confirmed()
    weight = 0.9 * np.exp(-lead)
    chosen = selector.select([hypothesis(1, weight), hypothesis(2, 0.9)], COVERED, {})
    assert chosen.number == selector.number == number
    assert selector.switched == (number == 2)


@pytest.mark.parametrize(("lead", "number"), [(0.9, 1), (1.1, 2)])
def test_an_unconfirmed_hypothesis_is_replaced_beyond_a_ratio_of_e(lead, number):
    selector = EstimateSelector()
    selector.select([hypothesis(1, 0.3)], COVERED, {})
    assert not selector.confirmed
    chosen = selector.select([hypothesis(1, 0.3 * np.exp(-lead)), hypothesis(2, 0.3)], COVERED, {})
    assert chosen.number == selector.number == number
    assert not selector.switched


def test_hypotheses_that_alternate_do_not_switch_the_estimate():
    selector = EstimateSelector()
    weights = [(0.3, 0.29), (0.2, 0.4), (0.4, 0.2), (0.25, 0.5)]
    chosen = [
        selector.select([hypothesis(1, a), hypothesis(2, b)], COVERED, {}) for a, b in weights
    ]
    assert [best.number for best in chosen] == [1, 1, 1, 1]


def test_a_switch_is_reported_once_and_ends_the_confirmation():
    selector = confirmed()
    both = [hypothesis(1, 1e-4), hypothesis(2, 0.5)]
    selector.select(both, COVERED, {})
    assert selector.changed and selector.switched and not selector.confirmed
    selector.select(both, COVERED, {})
    assert not selector.changed and not selector.switched and selector.number == 2


def test_while_no_pose_is_confirmed_a_covered_place_is_preferred():
    """A place without map images counts a tenth: 0.5 there is less than 0.2 on the map."""
    both = [hypothesis(1, 0.5), hypothesis(2, 0.2)]
    assert EstimateSelector().select(both, {1: 0.0, 2: 1.0}, {}).number == 2
    selector = confirmed()
    assert selector.select(both, {1: 0.0, 2: 1.0}, {}).number == 1


def test_a_published_place_is_not_given_up_for_leaving_the_map():
    """No pose is confirmed: a covered place replaces it by being e times as probable, not by less.

    Off the map the place counts as on it; the tenth is for places that were not published.
    """
    selector = EstimateSelector()
    selector.select([hypothesis(1, 0.5), hypothesis(2, 0.2)], COVERED, {})
    left = {1: 0.0, 2: 1.0}
    for weight, number in ((0.2, 1), (0.2 * np.exp(0.99), 1), (0.2 * np.exp(1.01), 2)):
        assert selector.select([hypothesis(1, 0.2), hypothesis(2, weight)], left, {}).number == (
            number
        )


def test_without_hypotheses_nothing_is_published():
    selector = confirmed()
    assert selector.select([], {}, {}) is None
    assert selector.number is None and not selector.switched


def test_running_evidence_is_the_exponential_average_of_the_log_ratios():
    """Against Σ_k a_k Π_{j>k} (1 − a_j) x_k, with a = information/memory and x = coverage² odds."""
    selector = EstimateSelector()
    selector.select([hypothesis(1, 0.5)], COVERED, {})
    generator = np.random.default_rng(0)
    log_odds, information = generator.normal(1.0, 2.0, 12), generator.uniform(0.1, 1.0, 12)
    coverage = generator.uniform(0.3, 1.0, 12)
    for odds, covered, fraction in zip(log_odds, coverage, information, strict=True):
        seen = [association(1, covered, odds), association(2, 1.0, 99.0)]
        selector.update_evidence(seen, fraction)
    gains = information / EVIDENCE_MEMORY
    remaining = np.append(np.cumprod((1.0 - gains)[::-1])[::-1][1:], 1.0)
    assert selector.evidence == pytest.approx((gains * remaining) @ (coverage**2 * log_odds))


def test_another_hypothesis_starts_with_the_evidence_of_the_image_that_led_to_it():
    selector = confirmed()
    selector.update_evidence([association(1, 1.0, 5.0)], 1.0)
    assert selector.evidence > 1.0
    selector.select([hypothesis(1, 1e-4), hypothesis(2, 0.5)], COVERED, {1: -4.0, 2: 3.0})
    assert selector.evidence == 3.0
    selector.select([hypothesis(1, 0.5), hypothesis(2, 1e-4)], COVERED, {})
    assert selector.number == 1 and selector.evidence == 0.0


def test_images_that_fit_nowhere_leave_no_evidence_for_or_against():
    """Against the average of zeros: what a place lacks, the best place lacks too."""
    selector = confirmed()
    selector.update_evidence([association(1, 1.0, 2.0)], EVIDENCE_MEMORY)
    assert selector.evidence == pytest.approx(2.0)
    selector.update_evidence([association(1, 1.0, -3.0)], 0.5 * EVIDENCE_MEMORY, floor=-3.0)
    assert selector.evidence == pytest.approx(1.0)
    selector.update_evidence([association(1, 1.0, -3.0)], EVIDENCE_MEMORY, floor=-1.0)
    assert selector.evidence == pytest.approx(-2.0)


def measured(number, log_likelihood_ratio, coverage=1.0, offset=0.0):
    """A hypothesis with a fix so many of their summed standard deviations away, √2 m."""
    fix = Fix(np.array([offset * np.sqrt(2.0), 0.0, 0.0]), np.eye(3), 60, log_likelihood_ratio)
    return replace(association(number, coverage, 0.0), fix=fix)


def test_few_landmarks_speak_against_a_place_as_far_as_the_map_covers_it():
    assert measured(1, -2.0).landmark_ratio == pytest.approx(-2.0)
    assert measured(1, -2.0, coverage=0.5).landmark_ratio == pytest.approx(-0.5)
    assert measured(1, 2.0, coverage=0.5).landmark_ratio == pytest.approx(2.0)
    assert association(1, 1.0, 5.0).landmark_ratio == 0.0


@pytest.mark.parametrize(("driven_m", "speaks"), [(0.5, 0.0), (10.0, 2.0)])
def test_a_fix_beyond_the_gate_speaks_for_the_hypothesis_that_it_may_re_anchor(driven_m, speaks):
    gate = float(np.sqrt(GATE_MAHALANOBIS))

    def ratio(log_likelihood_ratio, offset):
        item = measured(1, log_likelihood_ratio, offset=offset)
        driven = replace(item.hypothesis, since_landmarks_m=driven_m, since_given_m=np.inf)
        return replace(item, hypothesis=driven).landmark_ratio

    assert ratio(2.0, 0.99 * gate) == pytest.approx(2.0)
    assert ratio(2.0, 1.01 * gate) == pytest.approx(speaks)
    assert ratio(-2.0, 1.01 * gate) == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("driven_m", "ratio", "contradicted"), [(2.9, 2.0, True), (3.1, 2.0, False), (2.9, -2.0, False)]
)
def test_landmarks_of_a_pose_beyond_what_the_robot_has_driven_contradict(
    driven_m, ratio, contradicted
):
    """Three metres away; few landmarks that fit there contradict nothing."""
    item = replace(association(1, 1.0, 5.0), fix=Fix(np.array([3.0, 0.0, 0.0]), np.eye(3) * 1e-4))
    near = replace(item.hypothesis, since_landmarks_m=driven_m, since_given_m=np.inf).kalman_step(
        np.zeros((6, 3)), np.eye(6) * 0.01, np.zeros(3), np.eye(3) * 1e-4
    )
    item = replace(item, hypothesis=near, fix=replace(item.fix, log_likelihood_ratio=ratio))
    assert item.contradicted == contradicted
    assert item.confirms != contradicted
    assert item.evidence() == pytest.approx(5.0)


def test_evidence_of_landmarks_that_contradict_is_none():
    sure = replace(hypothesis(1, 0.5), since_landmarks_m=0.5)
    item = replace(measured(1, 4.0, offset=5.0), log_odds=-1.0, hypothesis=sure)
    assert item.contradicted and item.evidence() == pytest.approx(-1.0)
    assert measured(1, 4.0).evidence() == pytest.approx(4.0)


def test_places_whose_landmarks_fit_keep_their_odds():
    seen = [measured(1, 4.0), measured(2, 1.5), measured(3, -2.0), association(4, 1.0, 3.0)]
    np.testing.assert_allclose(landmark_ratios(seen), [4.0, 4.0, -2.0, 0.0])
    np.testing.assert_allclose(landmark_ratios(seen[2:]), [-2.0, 0.0])
    assert landmark_ratios([]).shape == (0,)


def test_agreement_with_the_hypothesis_excuses_few_landmarks_and_no_more():
    few = measured(1, -2.0)
    assert replace(few, agreement=1.5).landmark_ratio == pytest.approx(-0.5)
    assert replace(few, agreement=9.0).landmark_ratio == 0.0
    assert replace(few, agreement=9.0).confirms and not replace(few, agreement=1.5).confirms
    assert replace(measured(1, 2.0), agreement=9.0).landmark_ratio == pytest.approx(2.0)


@pytest.mark.parametrize(("doubtful", "log_odds"), [(True, 4.0), (False, -3.0)])
def test_landmarks_alone_recognize_a_place_only_where_the_pose_is_in_doubt(doubtful, log_odds):
    seen = [replace(measured(1, 4.0), log_odds=-3.0), association(2, 1.0, -5.0)]
    fit = best_fit(seen, EVIDENCE, 1.0, True, doubtful)
    assert fit.best == -3.0
    assert fit.recognized == pytest.approx(expit(log_odds))


@pytest.mark.parametrize(
    ("median", "log_odds"), [(2.5, -1.0), (0.0, -1.0), (-0.8, -0.2), (-3.0, 2.0)]
)
def test_where_right_places_have_odds_below_zero_an_image_is_recognized_as_they_are(
    median, log_odds
):
    """Among look-alikes an image that fits as right ones do in the median has even odds."""
    evidence = replace(EVIDENCE, median=median)
    fit = best_fit([association(1, 1.0, -1.0)], evidence, 1.0, False, True)
    assert fit.recognized == pytest.approx(expit(log_odds))
