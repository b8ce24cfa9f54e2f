"""Ctrl-C, SIGTERM and SIGHUP: one exit code for each, at every moment of a command.

A command at work hears them as exceptions, so that its `finally` cleans up. Before and after there
is nothing to clean up, and an exception would end in a traceback: within an import, or while an
error is drawn. There the process ends at once. This module imports nothing that takes time.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXIT_CODES = {
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
    signal.SIGHUP: EXIT_TERMINATED,
}


class _Signals:
    """What was heard, and whether a command is at work."""

    def __init__(self) -> None:
        self.working = False
        self.interrupted = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self.working = True
        try:
            yield
        finally:
            self.working = False

    def hear(self, number: int, _frame: FrameType | None) -> None:
        code = EXIT_CODES[signal.Signals(number)]
        if not self.working:
            if code == EXIT_INTERRUPTED:
                os.write(2, b"Interrupted.\n")
            os._exit(code)
        if code == EXIT_INTERRUPTED:
            self.interrupted = True
            raise KeyboardInterrupt
        sys.exit(code)


_signals = _Signals()


def install() -> None:
    """Handle the signals from now on; again is harmless."""
    for number in EXIT_CODES:
        # Started by nohup or in the background, the command is not to hear of some of them.
        if signal.getsignal(number) not in (signal.SIG_IGN, _signals.hear):
            signal.signal(number, _signals.hear)
            # When Python itself ends, its handlers go; by then the exit code is decided.
            atexit.register(signal.signal, number, signal.SIG_IGN)


def at_work() -> AbstractContextManager[None]:
    """Within it a signal is an exception."""
    return _signals.at_work()


def was_interrupted() -> bool:
    """Whether a Ctrl-C came: some libraries make another error of it."""
    return _signals.interrupted
