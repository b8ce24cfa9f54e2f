"""Tells a stray stamp from a clock that really jumped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Admitted(Generic[Item]):
    """The items to use now, oldest first; `jumped_back` when time starts anew with the first.

    `strays` items turned out to have wrong stamps and are dropped.
    """

    items: list[tuple[int, Item]]
    jumped_back: bool = False
    strays: int = 0


@dataclass
class Timeline(Generic[Item]):
    """Follows the stamps of one topic.

    A stamp within `tolerance_ns` of the newest one is used at once (whether it is late is the
    localizer's business). One further off is held back: when `confirmations` of them follow each
    other in order, the clock has jumped, or the topic was silent, and all of them are used; when
    the next one is normal again, the odd ones were stray and are dropped and counted. So one
    message from the year 2100 does not make all later ones look old.
    """

    tolerance_ns: int = 500_000_000
    confirmations: int = 4
    _newest_ns: int | None = None
    _held: list[tuple[int, Item]] = field(default_factory=list)

    def admit(self, stamp_ns: int, item: Item) -> Admitted[Item]:
        """What to use, now that this has arrived."""
        if self._newest_ns is None or abs(stamp_ns - self._newest_ns) <= self.tolerance_ns:
            strays = self._drop_held()
            self._newest_ns = max(stamp_ns, self._newest_ns or stamp_ns)
            return Admitted([(stamp_ns, item)], strays=strays)
        if self._held and stamp_ns == self._held[-1][0]:
            return Admitted([], strays=1)
        strays = 0
        if self._held and not 0 < stamp_ns - self._held[-1][0] <= 10 * self.tolerance_ns:
            strays = self._drop_held()
        self._held.append((stamp_ns, item))
        if len(self._held) < self.confirmations:
            return Admitted([], strays=strays)
        items, self._held = self._held, []
        jumped_back = items[0][0] < self._newest_ns
        self._newest_ns = items[-1][0]
        return Admitted(items, jumped_back, strays)

    def reset(self) -> None:
        """Take the next stamp as it comes."""
        self._newest_ns = None
        self._held.clear()

    def _drop_held(self) -> int:
        strays = len(self._held)
        self._held.clear()
        return strays
