"""How long-running work tells its caller how far it is; nothing below the command line prints."""

from typing import Protocol


class Progress(Protocol):
    """Called now and then with what is done, of how much, and what is being done."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...


def no_progress(done: int, total: int, doing: str) -> None:
    """Ignore progress."""
