"""What the page shows: the newest of each kind, handed from one thread to the server's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

Content = bytes | Mapping[str, Any]


class Board:
    """The newest content of each channel; older content that nobody has fetched is forgotten.

    Whoever fills it asks `watched` whether that is worth while. All methods are safe on any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int, Content]] = {}
        self._version = 0
        self._watchers: dict[object, Callable[[], object]] = {}

    def put(self, channel: str, content: Content) -> None:
        """Replace a channel's content and wake everybody who watches."""
        with self._lock:
            self._version += 1
            self._newest[channel] = self._version, content
            wake = list(self._watchers.values())
        for callback in wake:
            callback()

    def since(self, version: int) -> tuple[int, dict[str, Content]]:
        """Return the board's version now, and the channels that are newer than `version`."""
        with self._lock:
            newer = {
                name: content
                for name, (put_at, content) in self._newest.items()
                if put_at > version
            }
            return self._version, newer

    def forget(self, *channels: str) -> None:
        """Show newcomers nothing old."""
        with self._lock:
            for channel in channels:
                self._newest.pop(channel, None)

    def watch(self, watcher: object, wake: Callable[[], object]) -> None:
        """Call `wake`, on any thread, for everything new, until `leave`."""
        with self._lock:
            self._watchers[watcher] = wake

    def leave(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    @property
    def watched(self) -> bool:
        with self._lock:
            return bool(self._watchers)
