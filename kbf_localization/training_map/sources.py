"""The drives that a map was made of, and when and in what light they were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

FIRST_YEAR = 1990
"""Earlier stamps are those of a simulated clock."""

PARTS_OF_DAY = ((6, "night"), (12, "morning"), (18, "afternoon"), (22, "evening"), (24, "night"))
"""The hour at which each part ends, in this computer's time zone."""


@dataclass(frozen=True)
class Source:
    """A mapping drive: `frames` images, of which `chosen` are in the map.

    `stamps_ns` are those of its first and its last image; None in old maps.
    """

    name: str
    kind: str
    condition: str | None
    frames: int
    chosen: int
    stamps_ns: tuple[int, int] | None = None


def recorded(source: Source) -> tuple[datetime, datetime] | None:
    """Return the local times of the first and last image; None where unknown."""
    if source.stamps_ns is None:
        return None
    try:
        first, last = (datetime.fromtimestamp(stamp // 10**9) for stamp in source.stamps_ns)
    except (OverflowError, OSError, ValueError):
        return None
    return None if first.year < FIRST_YEAR else (first, last)


def part_of_day(source: Source) -> str | None:
    """Return such as "afternoon", by the middle of the drive; None where its time is unknown."""
    times = recorded(source)
    if times is None:
        return None
    hour = (times[0] + (times[1] - times[0]) / 2).hour
    return next(name for end, name in PARTS_OF_DAY if hour < end)


def light(source: Source) -> str | None:
    """Return the drive's own lighting condition, else the part of the day."""
    return source.condition or part_of_day(source)


def when(source: Source) -> str | None:
    """Return such as "2006-07-06 19:07 to 19:11 (evening)"; None where it is unknown."""
    times = recorded(source)
    if times is None:
        return None
    first, last = times
    end = last.strftime("%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M")
    return f"{first:%Y-%m-%d %H:%M} to {end} ({part_of_day(source)})"
