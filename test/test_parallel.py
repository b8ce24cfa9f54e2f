"""The same results in the same order, whoever does the work."""

import pytest

from kbf_localization.errors import KbfError
from kbf_localization.parallel import Cores, DaskCluster, Serial, workers


def square(value: int) -> int:
    return value * value


EXPECTED = [0, 1, 4, 9, 16, 25, 36]


def test_serial_and_cores_agree() -> None:
    assert list(Serial().map(square, range(7))) == EXPECTED
    assert list(Cores(2).map(square, range(7))) == EXPECTED


def test_one_job_runs_in_this_process() -> None:
    assert isinstance(workers(jobs=1), Serial)
    assert isinstance(workers(jobs=2), Cores)


def test_a_dask_cluster_of_two_workers_agrees() -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is optional")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        pool = DaskCluster(cluster.scheduler_address)
        assert list(pool.map(square, range(7))) == EXPECTED
        pool.close()


def test_an_address_without_a_scheduler_is_one_clear_error() -> None:
    pytest.importorskip("distributed", reason="Dask is optional")
    with pytest.raises(KbfError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        DaskCluster("tcp://127.0.0.1:9")
