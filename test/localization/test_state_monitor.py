"""When the robot says that it tracks, and when that it is lost."""

import numpy as np
import pytest
from kbf_localization.localization.types import State

from kbf_localization.filters.base import Estimate
from kbf_localization.localization.state_monitor import BLIND, StateMonitor, StateThresholds

LIMITS = StateThresholds(usual_evidence=0.5, jump_m=1.0, blind_updates=10)


def said(evidence=0.5, events=()):
    return Estimate(np.zeros(3), np.eye(3), np.zeros(3), None, evidence, events)


def tracking_monitor():
    monitor = StateMonitor(LIMITS)
    for _ in range(4):
        monitor.update(said(), sigma_m=0.1)
    assert monitor.state is State.TRACKING
    return monitor


def test_tracking_needs_several_good_updates_on_end():
    monitor = StateMonitor(LIMITS)
    states = [monitor.update(said(), sigma_m=0.1) for _ in range(3)]
    assert states == [State.LOCALIZING, State.LOCALIZING, State.TRACKING]


def test_a_wide_belief_stays_localizing():
    monitor = StateMonitor(LIMITS)
    for _ in range(20):
        assert monitor.update(said(), sigma_m=3.0) is State.LOCALIZING


def test_a_jump_from_where_odometry_leads_is_lost_at_once_and_confirmed_anew():
    monitor = tracking_monitor()
    assert monitor.update(said(), 0.1, jump_m=1.5) is State.LOST
    states = [monitor.update(said(), 0.1) for _ in range(3)]
    assert states == [State.LOST, State.LOST, State.TRACKING]


def test_a_belief_that_stays_wide_is_lost_a_short_widening_is_not():
    monitor = tracking_monitor()
    states = [monitor.update(said(), sigma_m=3.0) for _ in range(7)]
    assert set(states) == {State.TRACKING}
    assert monitor.update(said(), sigma_m=0.1) is State.TRACKING
    states = [monitor.update(said(), sigma_m=3.0) for _ in range(8)]
    assert states[-2:] == [State.TRACKING, State.LOST]


def test_evidence_far_below_the_usual_is_lost_after_some_updates_not_after_one():
    monitor = tracking_monitor()
    states = [monitor.update(said(evidence=0.0), 0.1) for _ in range(15)]
    assert states[0] is State.TRACKING
    # The fast average is 0.5 · 0.8^k; it is below a quarter of the usual from k = 7 on, the slow
    # one having fallen a little too.
    assert State.LOST in states[5:8]


def test_evidence_that_is_lower_in_all_of_a_place_is_got_used_to():
    monitor = tracking_monitor()
    states = {monitor.update(said(evidence=0.3), 0.1) for _ in range(300)}
    assert states == {State.TRACKING}


def test_the_slow_average_never_gets_used_to_nothing():
    monitor = tracking_monitor()
    for _ in range(1000):
        monitor.update(said(evidence=0.02), 0.1)
    assert monitor.state is State.LOST


def test_a_covered_camera_is_dead_reckoning_first_and_lost_later():
    monitor = tracking_monitor()
    states = [monitor.update(said(0.0, (BLIND,)), 0.2) for _ in range(12)]
    assert states[:9] == [State.TRACKING] * 9
    assert states[9:] == [State.LOST] * 3


def test_blind_dead_reckoning_that_has_grown_uncertain_is_lost():
    monitor = tracking_monitor()
    assert monitor.update(said(0.0, (BLIND,)), LIMITS.tracking_sigma_m + 0.1) is State.LOST


def test_blind_updates_say_nothing_about_the_evidence():
    monitor = tracking_monitor()
    before = monitor.evidence
    monitor.update(said(0.0, (BLIND,)), 0.2)
    assert monitor.evidence == before


@pytest.mark.parametrize("evidence", [float("nan"), float("inf")])
def test_evidence_that_is_not_finite_is_passed_over(evidence):
    monitor = tracking_monitor()
    before = monitor.evidence
    monitor.update(said(evidence), 0.1)
    assert monitor.evidence == before and monitor.state is State.TRACKING


def test_thresholds_come_back_from_a_map_that_keeps_others_too():
    stored = {**LIMITS.stored_form(), "least_similarity": 0.3, "covariance_scale": 2.0}
    assert StateThresholds.of_map(stored) == LIMITS
