"""A Dask cluster without workers, or one that goes away during the work: one line."""

import time
from collections.abc import Iterator

import pytest

from kbf_localization import parallel
from kbf_localization.errors import KbfError
from kbf_localization.parallel import DaskCluster

distributed = pytest.importorskip("distributed", reason="Dask is optional")


@pytest.fixture
def local_cluster() -> Iterator[object]:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as started:
        yield started


def test_a_scheduler_without_workers_is_one_line() -> None:
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty:
        pool = DaskCluster(empty.scheduler_address)
        with pytest.raises(KbfError, match="has no workers") as raised:
            list(pool.map(str, range(3)))
        assert "\n" not in str(raised.value)
        pool.close()


def test_workers_that_leave_during_the_work_are_one_line(
    local_cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "WORKERS_LOOKED_AFTER_S", 0.2)
    monkeypatch.setattr(parallel, "WORKERS_AWAITED_S", 1.0)
    pool = DaskCluster(local_cluster.scheduler_address)
    results = pool.map(_slow, range(1000))
    assert next(results) == 0
    local_cluster.scale(0)
    with pytest.raises(KbfError, match="gone"):
        list(results)
    pool.close()


def test_an_error_of_the_function_stays_what_it_is(local_cluster) -> None:
    pool = DaskCluster(local_cluster.scheduler_address)
    with pytest.raises(FileNotFoundError, match="nothing there"):
        list(pool.map(_fails, range(3)))
    pool.close()


def _slow(item: int) -> int:
    time.sleep(0.2)
    return item


def _fails(item: int) -> int:
    raise FileNotFoundError(f"nothing there {item}")
