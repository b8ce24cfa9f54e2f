"""Threads whose standard error leads nowhere.

libpng and libjpeg write what they think of an image to the standard error, past all logging, and
anybody may send images: lines without end. Descriptors are a process's own, so that pointing
number 2 elsewhere would take it from all threads; but on Linux a thread can have its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

_CLONE_FILES = 0x400
"""Of unshare(2): the thread gets a table of descriptors of its own."""
_STDERR = 2

Result = TypeVar("Result")


def silently(function: Callable[..., Result], *arguments: Any) -> Result:
    """What `function` gives, called on such a thread; it must use no file, socket or pipe."""
    return _threads(os.getpid()).submit(function, *arguments).result()


@lru_cache(maxsize=1)
def _threads(_process: int) -> ThreadPoolExecutor:
    """A process that is forked from this one has none of its threads, and makes new ones."""
    return ThreadPoolExecutor(os.cpu_count(), "silent", initializer=_leave_descriptors)


def _leave_descriptors() -> None:
    # A signal may be given to any thread, which then writes to a descriptor (`set_wakeup_fd`) that
    # it must have: without it a Ctrl-C would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if ctypes.CDLL(None).unshare(_CLONE_FILES) != 0:
        return  # some containers forbid it: the lines are seen, and do no harm
    # What other threads close must not stay open here.
    for number in [int(entry.name) for entry in Path("/proc/thread-self/fd").iterdir()]:
        if number > _STDERR:
            with suppress(OSError):  # the one that the list was read from
                os.close(number)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDERR)
    os.close(nowhere)
