"""A logger of rclpy that shows control characters instead of sending them to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rclpy.impl.rcutils_logger import RcutilsLogger, _internal_callers

from kbf_localization.foreign_text import shown

LONGEST_LINE = 2000
"""Characters: a frame's name may be as long as a message."""


class ShownLogger(RcutilsLogger):
    """Logs as rclpy does: names and errors from files and from the network are made fit for it."""

    def log(self, message: object, *arguments: Any, **keywords: Any) -> bool:
        text = str(message)
        if len(text) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]}... ({len(text)} characters)"
        return bool(super().log(shown(text), *arguments, **keywords))


# rclpy tells calls apart by where they are made, which is not here.
_internal_callers.append(str(Path(__file__).resolve()))
