"""The log of a node, with control characters escaped."""

from __future__ import annotations

from typing import Any

from kbf_localization.sanitize import shown_in_line

MAX_LINE_LENGTH = 2000
"""Characters of a line in the log: a frame's name may be as long as a message."""


class SanitizingLogger:
    """Log by a node's logger what comes from files and from the network: names and errors.

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
