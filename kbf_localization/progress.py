"""How long-running work tells its caller how far it is; nothing below the command line prints."""

from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Progress(Protocol):
    """Called now and then with what is done, of how much, and what is being done."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...


def no_progress(done: int, total: int, doing: str) -> None:
    """Ignore progress."""


def tracked(
    items: Iterable[Item], doing: str, progress: Progress, total: int | None = None
) -> Iterator[Item]:
    """Yield the items, with progress before the first and after each.

    `total` is how many there are, where `items` does not have a length.
    """
    count = len(items) if isinstance(items, Sized) else total or 0
    progress(0, count, doing)
    for done, item in enumerate(items, start=1):
        yield item
        progress(done, count, doing)
