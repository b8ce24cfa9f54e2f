"""Ctrl-C, SIGTERM and SIGHUP: one exit code for each, at every moment of a command.

A command at work hears them as exceptions, so that its `finally` cleans up. Before and after there
is nothing to clean up, and an exception would end in a traceback: within an import, or while an
error is drawn. There the process ends at once. This module imports nothing that takes time.

Python drops an exception within a destructor or a weak reference's callback, of which imports and
the garbage collector run many. A signal that came there is sent again.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
AGAIN_AFTER_S = 0.01
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
        self.decided = False
        self._raised = 0
        self._report = sys.unraisablehook

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
        self._raised = number
        if code == EXIT_INTERRUPTED:
            self.interrupted = True
            raise KeyboardInterrupt
        sys.exit(code)

    def send_again(self, dropped: sys.UnraisableHookArgs) -> None:
        """Send a signal again whose exception Python has dropped; report what else it drops."""
        if not self._raised or not issubclass(dropped.exc_type, (KeyboardInterrupt, SystemExit)):
            self._report(dropped)
            return
        import threading

        # A signal sent here would be heard within this hook, where it is dropped too.
        number, self._raised = self._raised, 0
        timer = threading.Timer(AGAIN_AFTER_S, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()


_signals = _Signals()


def install() -> None:
    """Handle the signals from now on; again is harmless."""
    # Registered first, it runs last.
    atexit.unregister(_end_as_decided)
    atexit.register(_end_as_decided)
    sys.unraisablehook = _signals.send_again
    for number in EXIT_CODES:
        # Started by nohup or in the background, the command is not to hear of some of them.
        if signal.getsignal(number) not in (signal.SIG_IGN, _signals.hear):
            signal.signal(number, _signals.hear)
            # When Python itself ends, its handlers go; by then the exit code is decided.
            atexit.register(signal.signal, number, signal.SIG_IGN)


def end_interrupted() -> None:
    """Decide that the process ends with EXIT_INTERRUPTED, after all that is done at exit.

    Where a Ctrl-C has passed through `exec` of a text, as those have that make data classes,
    Python overrides the exit code of `python -m` by a SIGINT to itself.
    """
    _signals.decided = True


def _end_as_decided() -> None:
    if _signals.decided:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed, or none
                stream.flush()
        os._exit(EXIT_INTERRUPTED)


def at_work() -> AbstractContextManager[None]:
    """Within it a signal is an exception."""
    return _signals.at_work()


def was_interrupted() -> bool:
    """Return whether a Ctrl-C came: some libraries make another error of it."""
    return _signals.interrupted
