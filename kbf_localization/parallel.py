"""The same map over items in this process, on the cores (joblib) or on a Dask cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from kbf_localization.errors import KbfError, naming_missing_extras

if TYPE_CHECKING:
    from distributed import Future

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


class Cores:
    """Worker processes on this machine; `jobs` of -1 means one for each core."""

    def __init__(self, jobs: int = -1) -> None:
        self.jobs = jobs

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self.jobs, return_as="generator", pre_dispatch="2*n_jobs")
        yield from parallel(delayed(function)(item) for item in items)


class DaskCluster:
    """The workers of the Dask scheduler at `address` (host:port)."""

    def __init__(self, address: str) -> None:
        with naming_missing_extras():
            from distributed import Client
        try:
            self._client = Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise KbfError(f"no Dask scheduler answers at {address}: {error}") from error

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        # Only so many items at a time are on their way, so that memory does not grow with them.
        at_once = 2 * max(1, sum(self._client.nthreads().values()))
        waiting: deque[Future[Result]] = deque()
        # The function may hold a whole map: it travels to each worker once, not with every item.
        shared = self._client.scatter(function, broadcast=True, hash=False)
        for item in items:
            waiting.append(self._client.submit(_apply, shared, item, pure=False))
            if len(waiting) >= at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def close(self) -> None:
        self._client.close()


def _apply(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def workers(jobs: int = -1, dask: str | None = None) -> Workers:
    """The workers that `--jobs` and `--dask` ask for."""
    if dask is not None:
        return DaskCluster(dask)
    return Serial() if jobs == 1 else Cores(jobs)
