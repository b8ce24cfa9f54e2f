"""The queue between the camera and the filter."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from kbf_localization.ros.subscription_reader import ImageWorker, PendingImage

PATIENCE = 60.0


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Bench:
    """A worker whose processing and coverage a test controls."""

    def __init__(self, depth: int = 1, patience: float = PATIENCE) -> None:
        self.covered_to = 10**9
        self.asked: list[int] = []
        self.begun: list[int] = []
        self.processed: list[int] = []
        self.overtaking: list[int] = []
        self.errors: list[Exception] = []
        self.counts: Counter[str] = Counter()
        self.gate = threading.Event()
        self.gate.set()
        self.worker = ImageWorker(
            self._process,
            self._covers,
            self.errors.append,
            lambda event, times: self.counts.update({event: times}),
            depth,
            patience,
        )

    def _covers(self, stamp_ns: int) -> bool:
        self.asked.append(stamp_ns)
        return stamp_ns <= self.covered_to

    def _process(self, image: PendingImage) -> None:
        self.begun.append(image.stamp_ns)
        self.gate.wait(PATIENCE)
        self.processed.append(image.stamp_ns)
        self.overtaking += [image.stamp_ns] if image.overtakes else []
        if image.message == "fail":
            raise RuntimeError("broken image")

    def wait_for(self, stamps: list[int]) -> None:
        wait_until(lambda: len(self.processed) >= len(stamps))
        assert self.processed == stamps


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.gate.set()
    bench.worker.stop()


def test_newest_image_wins_and_the_others_are_counted(bench: Bench) -> None:
    bench.gate.clear()
    bench.worker.submit(1, None)
    wait_until(lambda: bench.begun == [1])
    for stamp in range(2, 8):
        bench.worker.submit(stamp, None)
    bench.gate.set()
    bench.wait_for([1, 7])
    assert bench.counts["image_dropped"] == 5
    assert bench.overtaking == [7]


def test_deep_queue_drops_nothing() -> None:
    bench = Bench(depth=100)
    bench.gate.clear()
    for stamp in range(50):
        bench.worker.submit(stamp, None)
    bench.gate.set()
    bench.wait_for(list(range(50)))
    assert bench.counts["image_dropped"] == 0
    bench.worker.stop()


def test_image_waits_for_its_odometry(bench: Bench) -> None:
    bench.covered_to = 5
    bench.worker.submit(6, None)
    wait_until(lambda: 6 in bench.asked)
    assert bench.processed == []
    bench.covered_to = 6
    bench.worker.odometry_arrived()
    bench.wait_for([6])


def test_images_ahead_of_slow_odometry_do_not_push_out_the_usable_one(bench: Bench) -> None:
    bench.covered_to = 0
    for stamp in range(1, 6):
        bench.worker.submit(stamp, None)
    bench.covered_to = 3
    bench.worker.odometry_arrived()
    bench.wait_for([3])


def test_image_without_odometry_is_given_up() -> None:
    bench = Bench(patience=0.05)
    bench.covered_to = 0
    bench.worker.submit(9, None)
    wait_until(lambda: bool(bench.counts))
    assert bench.counts["image_without_odometry"] == 1
    bench.worker.stop()


def test_a_failing_image_does_not_end_the_worker(bench: Bench) -> None:
    bench.worker.submit(1, "fail")
    bench.wait_for([1])
    bench.worker.submit(2, None)
    bench.wait_for([1, 2])
    assert [str(error) for error in bench.errors] == ["broken image"]
