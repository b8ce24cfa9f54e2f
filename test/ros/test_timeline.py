"""Stray stamps against clocks that jump; clocks that disagree; images that are missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.ros.timeline import CameraRhythm, RateLimit, StampOffset, Timeline

SECOND = 1_000_000_000


def admitted(timeline: Timeline[int], stamps: list[int]) -> tuple[list[int], int]:
    """The stamps that pass, and how many are stray."""
    results = [timeline.admit(stamp, stamp) for stamp in stamps]
    passed = [stamp for result in results for stamp, _ in result.items]
    return passed, sum(result.strays for result in results)


def test_ordinary_stamps_pass_at_once() -> None:
    stamps = [10 * SECOND + number * 20_000_000 for number in range(50)]
    assert admitted(Timeline(), stamps) == (stamps, 0)


def test_a_stray_stamp_is_dropped_and_changes_nothing() -> None:
    timeline: Timeline[int] = Timeline()
    before = [100 * SECOND, 100 * SECOND + 1]
    after = [100 * SECOND + 2, 100 * SECOND + 3]
    passed, strays = admitted(timeline, [*before, 999 * SECOND, *after, 0, *after])
    assert passed == [*before, *after, *after]
    assert strays == 2


def test_what_is_held_back_when_time_starts_over_is_counted() -> None:
    timeline: Timeline[int] = Timeline()
    admitted(timeline, [100 * SECOND, 999 * SECOND, 999 * SECOND + 1])
    assert timeline.reset() == 2
    assert admitted(timeline, [5]) == ([5], 0)


def test_silence_loses_no_message() -> None:
    timeline: Timeline[int] = Timeline()
    stamps = [SECOND, *(60 * SECOND + number for number in range(10))]
    results = [timeline.admit(stamp, stamp) for stamp in stamps]
    assert [stamp for result in results for stamp, _ in result.items] == stamps
    assert not any(result.jumped_back for result in results)


def test_jump_back_is_reported_once_and_loses_no_message() -> None:
    timeline: Timeline[int] = Timeline()
    first = [50 * SECOND + number for number in range(5)]
    again = [10 * SECOND + number for number in range(8)]
    results = [timeline.admit(stamp, stamp) for stamp in [*first, *again]]
    assert [stamp for result in results for stamp, _ in result.items] == [*first, *again]
    assert sum(result.jumped_back for result in results) == 1


@given(st.lists(st.integers(0, 2**62)))
def test_any_stamps_are_passed_held_or_counted(stamps: list[int]) -> None:
    timeline: Timeline[int] = Timeline()
    passed, strays = admitted(timeline, stamps)
    held = len(stamps) - len(passed) - strays
    assert 0 <= held < timeline.confirmations


@given(st.floats(-30.0, 30.0), st.floats(-50.0, 50.0))
def test_offset_and_drift_of_a_clock_that_runs_at_another_rate(
    offset_s: float, drift_ms_per_minute: float
) -> None:
    """The median of a straight line is its value in the middle."""
    seconds = np.arange(0.0, 10.01, 0.1)
    stamps = StampOffset()
    for at in seconds:
        stamps.add(at, offset_s + drift_ms_per_minute / 60e3 * at)
    assert stamps.drift_ms_per_minute() == pytest.approx(drift_ms_per_minute, abs=1e-6)
    assert stamps.seconds() == pytest.approx(offset_s + drift_ms_per_minute / 60e3 * 5.0)


def test_offset_is_unknown_before_the_first_message_and_after_a_jump() -> None:
    stamps = StampOffset()
    assert math.isnan(stamps.seconds())
    stamps.add(0.0, 1.0)
    assert stamps.seconds() == 1.0
    assert math.isnan(stamps.drift_ms_per_minute())
    stamps.clear()
    assert math.isnan(stamps.seconds())


@pytest.mark.parametrize(
    ("hertz", "lost"), [(5, 0.0), (5, 0.3), (15, 0.1), (15, 0.6), (30, 0.0), (30, 0.6)]
)
def test_missing_images_are_counted_by_the_cameras_rhythm(hertz: int, lost: float) -> None:
    """Between the tenth image that came and the last, as many as were left out, with jitter."""
    random = np.random.default_rng(hertz)
    rhythm, came, left_out, counted = CameraRhythm(), 0, 0, 0
    for number in range(400):
        if random.random() < lost and number < 399:
            left_out += came > 30
            continue
        missing = rhythm.missing(round((number / hertz + random.normal(0.0, 0.05 / hertz)) * 1e9))
        came += 1
        counted += missing if came > 31 else 0
    assert counted == left_out


def test_camera_that_was_off_has_missed_nothing() -> None:
    rhythm = CameraRhythm()
    stamps = [number * 100_000_000 for number in range(20)]
    assert sum(rhythm.missing(stamp) for stamp in [*stamps, 60 * SECOND, 0, 60 * SECOND]) == 0


@pytest.mark.parametrize(
    ("before_hz", "after_hz"), [(30, 15), (30, 20), (30, 7), (10, 30), (15, 5)]
)
def test_camera_that_changes_its_rate_misses_nothing(before_hz: int, after_hz: int) -> None:
    """As for a longer exposure in the dark, with jitter."""
    random = np.random.default_rng(before_hz + after_hz)
    rhythm, now, counted = CameraRhythm(), 0.0, 0
    for hertz in (before_hz, after_hz, before_hz, after_hz):
        for _ in range(60):
            now += 1.0 / hertz
            counted += rhythm.missing(round((now + random.normal(0.0, 0.03 / hertz)) * 1e9))
    assert counted == 0


def test_images_lost_after_a_change_of_the_rate_are_counted() -> None:
    rhythm, now, counted = CameraRhythm(), 0.0, 0
    for hertz, lost in ((30, 0), (15, 0), (15, 1)):
        for number in range(60):
            now += (1 + lost * (number % 3 == 0)) / hertz
            counted += rhythm.missing(round(now * 1e9))
    assert counted == 20


@pytest.mark.parametrize(
    ("camera_hz", "rate_hz"), [(30, 10), (30, 7), (30, 29), (15, 10), (10, 10), (5, 10)]
)
def test_images_come_at_the_rate_that_is_allowed_on_average(camera_hz: int, rate_hz: int) -> None:
    """Over 20 s, with stamps that tremble by a thirtieth of the camera's period."""
    random, limit = np.random.default_rng(rate_hz), RateLimit()
    stamps = (np.arange(20 * camera_hz) + random.normal(0.0, 0.03, 20 * camera_hz)) / camera_hz
    used = sum(limit.admits(round((100.0 + stamp) * 1e9), rate_hz) for stamp in stamps)
    assert used == pytest.approx(20 * min(camera_hz, rate_hz), abs=2)


@given(st.lists(st.integers(-(10**18), 10**18), max_size=50))
def test_no_limit_uses_every_image(stamps: list[int]) -> None:
    limit = RateLimit()
    assert all(limit.admits(stamp, 0.0) for stamp in stamps)


def test_clock_that_jumps_does_not_stop_the_images() -> None:
    limit = RateLimit()
    assert limit.admits(100 * SECOND, 1.0)
    assert not limit.admits(100 * SECOND + SECOND // 2, 1.0)
    assert limit.admits(5 * SECOND, 1.0)
    assert limit.admits(500 * SECOND, 1.0)
    assert not limit.admits(500 * SECOND + SECOND // 2, 1.0)
