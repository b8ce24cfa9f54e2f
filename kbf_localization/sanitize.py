"""Names and messages from files and from the network, made fit for a terminal."""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from typing import Any

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200e\u200f\u061c"
    "\xad\u180e\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""C0 and C1 but line feeds and tabs; what turns the direction of writing; and what has no width,
so that two names look the same (but the joiners that Persian and Hindi are written with)."""


def shown(text: str) -> str:
    r"""Return the text with control characters escaped as \x1b: no file's name steers a terminal.

    So are the bytes of names that are not UTF-8, which could not be written at all.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown_in_line(text: str) -> str:
    """Return the escaped text on a single line: no name begins a line in a log."""
    return shown(text).replace("\n", "\\n")


def shown_traceback(error: BaseException) -> str:
    """Return what Python prints of an error that nobody expected."""
    return shown("".join(traceback.format_exception(error)))


def show_errors() -> None:
    """Have Python's own logging, and tracebacks of errors that nobody caught, shown so too."""
    handler = logging.StreamHandler()
    handler.setFormatter(_ShownFormatter())
    logging.basicConfig(handlers=[handler])
    sys.excepthook = lambda _kind, error, _traceback: _print_error(error)
    threading.excepthook = lambda failed: _print_error(failed.exc_value)


class _ShownFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def _print_error(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit):
        sys.stderr.write(shown_traceback(error))


MAX_LINE_LENGTH = 2000
"""Characters of a line in the log: a frame's name may be as long as a message."""


class SanitizingLogger:
    """Log by a ROS node's logger what comes from files and from the network: names and errors.

    rclpy distinguishes calls by their place in the source, which is here: its filters (`once`,
    `throttle_duration_sec`) would count all callers as one, so there are none.
    """

    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def info(self, message: object) -> None:
        self._logger.info(_line(message))

    def warning(self, message: object) -> None:
        self._logger.warning(_line(message))

    def error(self, message: object) -> None:
        self._logger.error(_line(message))


def _line(message: object) -> str:
    text = str(message)
    if len(text) > MAX_LINE_LENGTH:
        text = f"{text[:MAX_LINE_LENGTH]}... ({len(text)} characters)"
    return shown_in_line(text)
