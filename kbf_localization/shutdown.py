"""The signals that end a process, heeded whatever its main thread is doing."""

from __future__ import annotations

import os
import signal
import threading
import time

LONGEST_SHUTDOWN_S = 1.6
"""Then the process ends as it is: what it writes is on the disk whole or not at all."""

ECHO_S = 0.5
"""A signal so soon after another is its echo."""


class Ending:
    """SIGINT, SIGTERM and SIGHUP, from before the first import to the end of the process.

    The first asks for a shutdown, and before there is anything to shut down ends the process; a
    second one ends it at once. One that comes with the first is the same order repeated: systemd
    tells all processes of a service, and launch then tells its own once more.

    A thread hears of them. Python runs a signal's handler on the main thread, and not before that
    one is back from the library that it waits in: a shutdown that hangs there would hear of none.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._started, self._asked_at = False, 0.0
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(reader,), name="signals", daemon=True).start()
        # Started by nohup, the node is not to hear of the hang-up.
        hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for number in (signal.SIGINT, signal.SIGTERM, *hang_up):
            signal.signal(number, lambda *_: None)

    def start(self) -> threading.Event:
        """From now on there is something to shut down; the event says when."""
        self._started = True
        return self._asked

    def _listen(self, reader: int) -> None:
        while True:
            for number in os.read(reader, 100):
                self._received(number)

    def _received(self, number: int) -> None:
        if not self._started:
            os._exit(0)
        if self._asked.is_set():
            if time.monotonic() - self._asked_at > ECHO_S:
                os._exit(128 + number)
            return
        self._asked_at = time.monotonic()
        self._asked.set()
        last = threading.Timer(LONGEST_SHUTDOWN_S, os._exit, (0,))
        last.daemon = True
        last.start()
