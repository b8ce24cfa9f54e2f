"""When a map's drives were recorded."""

import time
from collections.abc import Iterator

import pytest

from kbf_localization.training_map import Source
from kbf_localization.training_map.sources import light, part_of_day, when

NOON_NS = 1_750_000_000 // 86_400 * 86_400 * 10**9 + 12 * 3_600 * 10**9
MINUTE_NS = 60 * 10**9


@pytest.fixture(autouse=True)
def greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def source(stamps_ns: tuple[int, int] | None, condition: str | None = None) -> Source:
    return Source("drive", "bag", condition, 30, 4, stamps_ns)


def test_a_drive_at_noon() -> None:
    drive = source((NOON_NS, NOON_NS + 4 * MINUTE_NS))
    assert when(drive) == "2025-06-15 12:00 to 12:04 (afternoon)"
    assert light(drive) == "afternoon"
    assert light(source(drive.stamps_ns, "cloudy")) == "cloudy"


@pytest.mark.parametrize(
    ("hours", "part"),
    [
        (-12, "night"),
        (-6.1, "night"),
        (-6, "morning"),
        (0, "afternoon"),
        (6, "evening"),
        (10, "night"),
    ],
)
def test_the_parts_of_a_day(hours: float, part: str) -> None:
    begin = NOON_NS + round(hours * 60) * MINUTE_NS
    assert part_of_day(source((begin, begin + 1))) == part


def test_a_drive_past_midnight_names_both_days() -> None:
    begin = NOON_NS + 11 * 60 * MINUTE_NS
    text = when(source((begin, begin + 120 * MINUTE_NS)))
    assert text == "2025-06-15 23:00 to 2025-06-16 01:00 (night)"


@pytest.mark.parametrize("stamps_ns", [None, (0, MINUTE_NS)])
def test_simulated_clocks_and_old_maps_say_nothing(stamps_ns: tuple[int, int] | None) -> None:
    assert when(source(stamps_ns)) is None
    assert light(source(stamps_ns)) is None
