"""Spinning a node while nothing that it waits for is destroyed.

An rclpy executor makes its wait set of the node's entities without a lock. One that another thread
destroys meanwhile raises InvalidHandle or RCLError there and ends the process; and an executor
that is shut down while it spins loses the guard that it waits for. So entities are destroyed
between two spins, on the thread that spins, and an executor is shut down when it no longer spins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

_PERIOD_S = 0.4
"""How soon a signal is heeded: Python's handlers run between two waits, each of which costs."""


_PAUSE_S = 0.001

_MOST_FAILURES = 100
"""So many errors without a break between them are the executor's own."""


class Disposal:
    """Destroys a node's entities between two spins; where nothing spins, at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._tasks: list[tuple[Callable[[], object], threading.Event]] = []

    def spin(
        self, executor: Executor, until: threading.Event, failed: Callable[[Exception], None]
    ) -> None:
        """Execute callbacks until the event, or until the context is shut down.

        A callback's error is handed to `failed`: it must not end the node.
        """
        failures = 0
        with self._lock:
            self._executor = executor
        try:
            while executor.context.ok() and not until.is_set():
                try:
                    executor.spin_once(timeout_sec=_PERIOD_S)
                    failures = 0
                except ExternalShutdownException:
                    raise
                except Exception as error:
                    failures += 1
                    if failures > _MOST_FAILURES or not executor.context.ok():
                        raise
                    failed(error)
                self._run_tasks()
                # rclpy hands a callback out again and again until a thread has begun with it.
                time.sleep(_PAUSE_S)
        finally:
            with self._lock:
                self._executor = None
            self._run_tasks()

    def destroy(self, destroy: Callable[..., object], *entities: object) -> None:
        """Have `destroy(entity)` called for each entity, by a method of the node; wait for it."""
        done = threading.Event()

        def task() -> None:
            for entity in entities:
                destroy(entity)

        with self._lock:
            spun = self._executor is not None
            if self._executor is not None:
                self._tasks.append((task, done))
                wake(self._executor)
        if spun:
            done.wait()
        else:
            task()

    def _run_tasks(self) -> None:
        with self._lock:
            tasks, self._tasks = self._tasks, []
        for task, done in tasks:
            try:
                task()
            finally:
                done.set()


def wake(executor: Executor) -> None:
    """Make the executor's spin_once return: a plain wake() only makes it wait anew."""
    executor.create_task(lambda: None)


@contextmanager
def spinning(node: Node) -> Iterator[None]:
    """Spin a node on a thread of its own; after the block it can be destroyed."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    over = threading.Event()
    thread = threading.Thread(target=partial(_spin, executor, over), name="spin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        wake(executor)
        thread.join()
        executor.shutdown()


def _spin(executor: Executor, over: threading.Event) -> None:
    with suppress(ExternalShutdownException):
        while executor.context.ok() and not over.is_set():
            executor.spin_once()
