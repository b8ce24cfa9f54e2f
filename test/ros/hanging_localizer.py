"""The localizer, hanging within a library, where Python runs no handler of signals."""

from __future__ import annotations

import ctypes
import os

from kbf_localization.ros import localizer_node, startup
from kbf_localization.ros.localizer_node import main as run
from kbf_localization.ros.node import LocalizerNode

LOADING = "HANGS_WHILE_LOADING"
"""The environment's variable that makes it hang in loading the map too."""


def main() -> int:
    """Its shutdown never ends: only a second signal ends the process."""
    localizer_node.MAX_SHUTDOWN_S = 1000.0
    LocalizerNode.close = lambda node: hang("ending")
    if LOADING in os.environ:
        startup.load_map = lambda *_: hang("loading")
    return run()


def hang(where: str) -> None:
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    os.write(1, f"{where}\n".encode())
    lock(mutex)
