"""The queue and the thread on which images are described and filtered."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbf_localization.events import Event

MAX_UNCOVERED_IMAGES = 64
"""Images that may wait for odometry; enough for odometry that is late by two seconds."""


@dataclass(frozen=True)
class PendingImage:
    """A serialized image message, its stamp and when it arrived (`time.perf_counter`)."""

    stamp_ns: int
    message: Any
    arrived: float


class ImageWorker:
    """Hand images to `process` one after the other, each as soon as `covers(stamp)`.

    Of the images that could be processed at most `depth` wait; the oldest are dropped. An image
    that gets no odometry within `patience` seconds is dropped. Both are counted in `counts`.
    """

    def __init__(
        self,
        process: Callable[[PendingImage], None],
        covers: Callable[[int], bool],
        failed: Callable[[Exception], None],
        counts: Counter[str],
        depth: int = 1,
        patience: float = 1.0,
    ) -> None:
        self.patience = patience
        self._counts = counts
        self._process, self._covers, self._failed = process, covers, failed
        self._depth = depth
        self._images: deque[PendingImage] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="image worker", daemon=True)
        self._thread.start()

    def submit(self, stamp_ns: int, message: Any) -> None:
        """Queue an image."""
        with self._condition:
            self._images.append(PendingImage(stamp_ns, message, time.perf_counter()))
            self._condition.notify()

    def odometry_arrived(self) -> None:
        """Look again whether an image that waits is covered now."""
        if self._images:
            with self._condition:
                self._condition.notify()

    def clear(self) -> None:
        """Drop the images that wait."""
        with self._condition:
            self._counts[Event.IMAGE_DROPPED] += len(self._images)
            self._images.clear()

    def stop(self) -> None:
        """End the thread after the current image."""
        with self._condition:
            self._stopping = True
            self._images.clear()
            self._condition.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (image := self._wait_for_image()) is not None:
            try:
                self._process(image)
            except Exception as error:  # a thread that dies silently is worse than one bad frame
                self._failed(error)

    def _wait_for_image(self) -> PendingImage | None:
        """Return the next image to process; None when the thread is to end."""
        with self._condition:
            while not self._stopping:
                image = self._next_image()
                if image is not None:
                    return image
                self._condition.wait(timeout=0.1 if self._images else None)
            return None

    def _next_image(self) -> PendingImage | None:
        """Return the image to process now; drop those for which it is too late."""
        covered = [image for image in self._images if self._covers(image.stamp_ns)]
        while len(covered) > self._depth:
            self._images.remove(covered.pop(0))
            self._counts[Event.IMAGE_DROPPED] += 1
        if covered:
            self._images.remove(covered[0])
            return covered[0]
        too_old = time.perf_counter() - self.patience
        while self._images and (
            self._images[0].arrived < too_old
            or len(self._images) > max(self._depth, MAX_UNCOVERED_IMAGES)
        ):
            self._images.popleft()
            self._counts[Event.IMAGE_WITHOUT_ODOMETRY] += 1
        return None
