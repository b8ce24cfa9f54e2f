"""Stray stamps against clocks that jump."""

from hypothesis import given
from hypothesis import strategies as st

from kbf_localization.ros.timeline import Timeline

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


def test_silence_loses_no_message() -> None:
    timeline: Timeline[int] = Timeline()
    stamps = [SECOND, *(60 * SECOND + number for number in range(10))]
    results = [timeline.admit(stamp, stamp) for stamp in stamps]
    assert [stamp for result in results for stamp, _ in result.items] == stamps
    assert not any(result.jumped_back for result in results)


def test_jump_back_is_told_once_and_loses_no_message() -> None:
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
