"""A logger of rclpy that shows control characters instead of sending them to the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rclpy.impl.rcutils_logger import RcutilsLogger, _internal_callers

from kbf_localization.foreign_text import shown


class ShownLogger(RcutilsLogger):
    """Logs as rclpy does: names and errors from files and from the network are made fit for it."""

    def log(self, message: object, *arguments: Any, **keywords: Any) -> bool:
        return bool(super().log(shown(str(message)), *arguments, **keywords))


# rclpy tells calls apart by where they are made, which is not here.
_internal_callers.append(str(Path(__file__).resolve()))
