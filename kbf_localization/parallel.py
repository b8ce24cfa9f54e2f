"""The same map over items in this process, on the cores or on a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import subprocess
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from queue import SimpleQueue
from signal import SIGKILL
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from kbf_localization.child_process import python_command
from kbf_localization.errors import KbfError, naming_missing_extras
from kbf_localization.threads import THREAD_VARIABLES

if TYPE_CHECKING:
    from distributed import Client, Future

WORKERS_LOOKED_AFTER_S, WORKERS_AWAITED_S = 2.0, 20.0
"""How often is looked whether a cluster has workers still, and how long it may have none."""

ITEMS_AHEAD = 4
"""Items for each thread that are read before their results are asked for: some steps of a filter
take ten times as long as others."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers(Protocol):
    """Applies a picklable function to items and yields the results in the items' order."""

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]: ...


class Serial:
    """One item after the other, in this process."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return map(function, items)


class TimedWorkers:
    """Workers, and the processor seconds spent since it was made, by them and by this process."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._started, self._elsewhere_s = time.process_time(), 0.0

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        for result, process, seconds in self._workers.map(partial(_timed, function), items):
            if process != _process():
                self._elsewhere_s += seconds
            yield result

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self._started + self._elsewhere_s


def _timed(function: Callable[[Item], Result], item: Item) -> tuple[Result, tuple[str, int], float]:
    """Return the result, the process that made it, and its processor seconds."""
    started = time.process_time()
    result = function(item)
    return result, _process(), time.process_time() - started


def _process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


class Cores:
    """Worker processes on this machine; `jobs` of -1 means one for each core.

    They are kept from one `map` to the next and end with this object, or with this process however
    that ends: a worker whose connection is lost is gone at once.
    """

    def __init__(self, jobs: int = -1) -> None:
        cores = len(os.sched_getaffinity(0))
        self.jobs = jobs if jobs > 0 else cores
        self._threads = max(1, cores // self.jobs)
        self._idle: list[_Worker] = []
        weakref.finalize(self, _end, self._idle)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        numbered = enumerate(items)
        busy: dict[Connection, tuple[_Worker, int]] = {}
        done: dict[int, Result] = {}
        turn = 0
        try:
            while True:
                while turn in done:
                    yield done.pop(turn)
                    turn += 1
                # Results that wait for an earlier result are bounded, and so is memory.
                while len(busy) < self.jobs and len(busy) + len(done) < 3 * self.jobs:
                    following = next(numbered, None)
                    if following is None:
                        break
                    worker = self._idle.pop() if self._idle else _Worker(self._threads)
                    busy[worker.connection] = worker, following[0]
                    worker.give(function, following[1])
                if not busy:
                    return
                for connection in wait(list(busy)):
                    worker, number = busy[cast(Connection, connection)]
                    done[number] = worker.answer()
                    del busy[worker.connection]
                    self._idle.append(worker)
        finally:
            _end([worker for worker, _ in busy.values()])


class _Worker:
    """One process of `Cores`; it is sent a function once, then items."""

    def __init__(self, threads: int) -> None:
        self.connection, theirs = Pipe()
        self._function: object = None
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                python_command(f"from kbf_localization.parallel import serve; serve({number})"),
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env={**dict.fromkeys(THREAD_VARIABLES, str(threads)), **os.environ},
                # A Ctrl-C at the terminal is for the parent, who then ends its workers.
                start_new_session=True,
            )

    def give(self, function: object, item: object) -> None:
        known = self._function is function
        with self._explained():
            self.connection.send((None if known else function, item))
        self._function = function

    def answer(self) -> Any:
        with self._explained():
            result, error, trace = self.connection.recv()
        if error is not None:
            raise error from RuntimeError(f"in a worker process:\n{trace}")
        return result

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            code = self._process.wait()
            why = "it was killed; is there too little memory?" if code == -SIGKILL else "see above"
            raise KbfError(f"a worker process ended early (exit code {code}): {why}") from error


def _end(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()


def serve(descriptor: int) -> None:
    """Answer items until the connection ends: the main loop of a worker."""
    connection = Connection(descriptor)
    messages: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    Thread(target=_receive, args=(connection, messages), daemon=True).start()
    function: Any = None
    while True:
        given, item = messages.get()
        function = given or function
        answer: tuple[Any, Exception | None, str]
        try:
            answer = function(item), None, ""
        except Exception as error:
            answer = None, error, traceback.format_exc()
        connection.send(answer)


def _receive(connection: Connection, messages: SimpleQueue[tuple[Any, Any]]) -> None:
    """Pass messages on, in a thread, so that the parent's end is noticed during work too."""
    try:
        while True:
            messages.put(connection.recv())
    except Exception as error:
        if not isinstance(error, (EOFError, ConnectionError)):
            traceback.print_exc()
        os._exit(1)


class DaskCluster:
    """The workers of the Dask scheduler at `address` (host:port)."""

    def __init__(self, address: str, timeout_s: float = 10.0) -> None:
        with naming_missing_extras():
            from distributed import Client
        self._address = address
        made: list[Any] = []

        def connect() -> None:
            try:
                made.append(Client(address, timeout=timeout_s))
            except Exception as error:
                made.append(error)

        # What listens there but is no scheduler would be waited for without end.
        connecting = Thread(target=connect, daemon=True)
        connecting.start()
        connecting.join(2.0 * timeout_s)
        if not made or isinstance(made[0], Exception):
            reason = made[0] if made else "what listens there is silent"
            raise KbfError(f"no Dask scheduler answers at {address}: {reason}")
        self._client: Client = made[0]

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        threads = self._threads()
        if not threads:
            raise KbfError(
                f"the Dask scheduler at {self._address} has no workers; start some with "
                f"'dask worker {self._address}'"
            )
        # Only so many items at a time are sent, so that memory does not grow with them.
        at_once = 2 * threads
        waiting: deque[Future[Result]] = deque()
        with self._explained():
            # The function may hold a whole map: it travels to each worker once, not every time.
            shared = self._client.scatter(function, broadcast=True, hash=False)
        for item in items:
            with self._explained():
                waiting.append(self._client.submit(_apply, shared, item, pure=False))
            if len(waiting) >= at_once:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def close(self) -> None:
        self._client.close()

    def _threads(self) -> int:
        """Of all workers that are there."""
        with self._explained():
            return sum(self._client.nthreads().values())

    def _result(self, future: Future[Result]) -> Result:
        """Wait for as long as there are workers, and a little longer: they may come back."""
        import asyncio

        left_at: float | None = None
        while True:
            failed = future.status == "error"
            with self._explained(future):
                try:
                    return future.result(timeout=WORKERS_LOOKED_AFTER_S)
                except (TimeoutError, asyncio.TimeoutError):
                    # One that ends just now is asked again; a failed one's error is its own.
                    if failed:
                        raise
            if self._threads():
                left_at = None
                continue
            left_at = left_at or time.monotonic()
            if time.monotonic() - left_at >= WORKERS_AWAITED_S:
                raise KbfError(f"all workers of the Dask scheduler at {self._address} are gone")

    @contextmanager
    def _explained(self, future: Future[Result] | None = None) -> Iterator[None]:
        """Within it, a lost scheduler is one line; an error of the function stays what it is."""
        import asyncio

        from distributed import KilledWorker

        cancelled = (asyncio.CancelledError, concurrent.futures.CancelledError)
        try:
            yield
        except KilledWorker as error:
            raise KbfError(
                "the Dask workers died of one item again and again; have they too little memory?"
            ) from error
        except (OSError, TimeoutError, asyncio.TimeoutError, *cancelled) as error:
            if future is not None and future.status == "error":
                raise
            raise KbfError(
                f"the Dask scheduler at {self._address} or its workers are gone "
                f"({type(error).__name__})"
            ) from error


def _apply(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def read_ahead(items: Iterable[Item], count: int) -> Generator[Item, None, None]:
    """Yield the items, of which one thread reads `count` before they are asked for."""
    unread = iter(items)

    def read() -> tuple[Item] | None:
        for item in unread:
            return (item,)
        return None

    reader = concurrent.futures.ThreadPoolExecutor(1)
    try:
        waiting = deque(reader.submit(read) for _ in range(count))
        while (found := waiting.popleft().result()) is not None:
            waiting.append(reader.submit(read))
            yield found[0]
    finally:
        reader.shutdown(cancel_futures=True)


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield results in the items' order, by a thread for each core some items ahead.

    The items are read ahead too, in one more thread: whoever waits for results neither reads nor
    decodes.
    """
    count = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        submitted = (pool.submit(function, item) for item in items)
        with closing(read_ahead(submitted, ITEMS_AHEAD * count)) as futures:
            for future in futures:
                yield future.result()


def make_workers(jobs: int = -1, dask: str | None = None) -> Workers:
    """Return the workers that `--jobs` and `--dask` ask for."""
    if dask is not None:
        return DaskCluster(dask)
    return Serial() if jobs == 1 else Cores(jobs)
