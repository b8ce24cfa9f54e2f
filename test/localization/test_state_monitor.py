"""When the state is tracking, and when it is lost."""

import numpy as np
import pytest

from kbf_localization.filters.base import Confidence
from kbf_localization.localization.result import LocalizerSettings, State
from kbf_localization.localization.state_monitor import StateMonitor
from kbf_localization.motion.odometry_buffer import OdometryReading
from kbf_localization.training_map.calibration import SimilarityModel

GOOD = Confidence(probability=0.95, evidence=2.0, min_evidence=-0.5, max_sigma_m=0.5)


def confidence(**changes):
    return Confidence(**{**GOOD.__dict__, **changes})


HERE = OdometryReading(0, np.zeros(3), 0.0, 0.0, np.zeros(3), 0.0)


class Monitor:
    """A state monitor of a robot that stands still."""

    def __init__(self):
        self.monitor = StateMonitor(SimilarityModel(1.0, 1.0, 1.0, 1.0))

    @property
    def state(self):
        return self.monitor.state_at(HERE, LocalizerSettings())

    def update(self, confidence, sigma_m, max_sigma_m=1e3):
        settings = LocalizerSettings(max_tracking_sigma_m=max_sigma_m)
        return self.monitor.update(confidence, sigma_m, HERE, settings)


def monitor_in(state):
    monitor = Monitor()
    if state is State.LOCALIZING:
        monitor.update(confidence(probability=0.1), 0.1)
    if state in (State.TRACKING, State.LOST):
        monitor.update(GOOD, 0.1)
    if state is State.LOST:
        monitor.update(confidence(probability=0.1), 0.1)
    assert monitor.state is state
    return monitor


@pytest.mark.parametrize(
    ("changes", "sigma_m", "expected"),
    [
        ({}, 0.1, State.TRACKING),
        ({}, 0.5, State.TRACKING),
        ({}, 0.51, State.LOCALIZING),
        ({"probability": 0.89}, 0.1, State.LOCALIZING),
        ({"evidence": 0.0}, 0.1, State.LOCALIZING),
        ({"evidence": -0.4}, 0.1, State.LOCALIZING),
        ({"verified": False}, 0.1, State.LOCALIZING),
    ],
)
@pytest.mark.parametrize("start", [State.UNINITIALIZED, State.LOCALIZING])
def test_tracking_needs_a_probable_narrow_and_supported_pose(start, changes, sigma_m, expected):
    assert monitor_in(start).update(confidence(**changes), sigma_m) is expected


@pytest.mark.parametrize(
    ("changes", "sigma_m", "expected"),
    [
        ({"probability": 0.5}, 0.1, State.TRACKING),
        ({"probability": 0.49}, 0.1, State.LOST),
        ({"evidence": -0.5}, 0.1, State.TRACKING),
        ({"evidence": -0.51}, 0.1, State.LOST),
        ({}, 0.51, State.LOST),
    ],
)
def test_tracking_ends_with_what_supported_it(changes, sigma_m, expected):
    assert monitor_in(State.TRACKING).update(confidence(**changes), sigma_m) is expected


@pytest.mark.parametrize(("probability", "expected"), [(0.979, State.LOST), (0.98, State.TRACKING)])
def test_after_a_loss_more_proof_is_asked_for(probability, expected):
    monitor = monitor_in(State.LOST)
    assert monitor.update(confidence(probability=probability), 0.1) is expected


@pytest.mark.parametrize("name", ["probability", "evidence"])
@pytest.mark.parametrize("state", [State.UNINITIALIZED, State.TRACKING, State.LOST])
def test_what_is_not_a_number_is_never_tracking(state, name):
    monitor = monitor_in(state)
    assert monitor.update(confidence(**{name: np.nan}), 0.1) is not State.TRACKING
    assert monitor_in(state).update(GOOD, np.nan) is not State.TRACKING


def test_a_filter_without_a_confidence_is_localizing():
    assert Monitor().update(None, 0.01) is State.LOCALIZING


def test_a_reset_is_uninitialized():
    monitor = monitor_in(State.TRACKING)
    monitor.monitor.reset()
    assert monitor.state is State.UNINITIALIZED


def test_a_pose_wider_than_the_absolute_bound_is_not_tracked():
    """On a map of a large scale, whose own bound is 5 m."""
    wide = confidence(max_sigma_m=5.0)
    monitor = monitor_in(State.UNINITIALIZED)
    assert monitor.update(wide, 0.6, max_sigma_m=0.5) is State.LOCALIZING
    assert monitor.update(wide, 0.5, max_sigma_m=0.5) is State.TRACKING
    assert monitor.update(wide, 0.6, max_sigma_m=0.5) is State.LOCALIZING
    assert monitor.update(wide, 0.4, max_sigma_m=0.5) is State.TRACKING
    assert monitor.update(wide, 5.1, max_sigma_m=0.5) is State.LOST


def test_an_image_that_neither_fits_nor_continues_the_one_before_degrades_at_once():
    monitor = monitor_in(State.TRACKING)
    interrupted = confidence(confirmed=False, interrupted=True)
    assert monitor.update(interrupted, 0.1) is State.DEGRADED
    # The next one continues that image, but fits no better.
    assert monitor.update(confidence(confirmed=False), 0.1) is State.DEGRADED
    assert monitor.update(GOOD, 0.1) is State.TRACKING
    assert monitor.update(confidence(confirmed=False), 0.1) is State.TRACKING


def test_a_tracked_pose_stays_tracked_where_landmarks_measure_nothing():
    monitor = monitor_in(State.TRACKING)
    assert monitor.update(confidence(verified=False), 0.1) is State.TRACKING
