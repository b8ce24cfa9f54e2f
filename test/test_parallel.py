"""The same results in the same order, whoever does the work; and no worker is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbf_localization.errors import DatasetError, KbfError
from kbf_localization.parallel import (
    ITEMS_AHEAD,
    Cores,
    DaskCluster,
    Serial,
    in_threads,
    make_workers,
    read_ahead,
)
from test.conftest import PROJECT


def square(value: int) -> int:
    return value * value


def slow_at_first(value: int) -> int:
    time.sleep(0.3 if value == 0 else 0.0)
    return square(value)


def process_group(_: int) -> int:
    return os.getpgrp()


def process_number(_: int) -> int:
    return os.getpid()


def refuse(value: int) -> int:
    if value == 3:
        raise DatasetError("three.lst: not this one")
    return value


def die(value: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return value


EXPECTED = [0, 1, 4, 9, 16, 25, 36]


def running(number: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(numbers: set[int]) -> None:
    end = time.monotonic() + 60
    while any(map(running, numbers)):
        assert time.monotonic() < end, "a worker is left"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cores() -> Cores:
    return Cores(2)


def test_serial_and_cores_agree(cores: Cores) -> None:
    assert list(Serial().map(square, range(7))) == EXPECTED
    assert list(cores.map(square, range(7))) == EXPECTED
    assert list(Cores(3).map(square, [])) == []


def test_results_come_in_order_when_the_first_is_the_last_to_be_done(cores: Cores) -> None:
    assert list(cores.map(slow_at_first, range(40))) == [value**2 for value in range(40)]


def test_items_are_taken_as_they_are_needed(cores: Cores) -> None:
    taken = []
    results = cores.map(square, (taken.append(item) or item for item in range(1000)))
    assert next(results) == 0
    assert len(taken) <= 6


def test_workers_stay_for_the_next_map_and_end_with_their_owner() -> None:
    cores = Cores(2)
    first = set(cores.map(process_number, range(20)))
    second = set(cores.map(process_number, range(20)))
    assert os.getpid() not in first
    assert second <= first
    del cores
    wait_until_gone(first)


def test_an_error_in_a_worker_is_the_callers(cores: Cores) -> None:
    with pytest.raises(DatasetError, match=r"three\.lst: not this one"):
        list(cores.map(refuse, range(9)))
    assert list(cores.map(square, range(7))) == EXPECTED


def test_ctrl_c_at_the_terminal_does_not_reach_workers_even_while_they_start(cores: Cores) -> None:
    """It goes to the processes of the parent's group; a worker has left it before Python begins."""
    assert os.getpgrp() not in set(cores.map(process_group, range(4)))


def test_a_killed_worker_is_one_clear_error() -> None:
    with pytest.raises(KbfError, match="a worker process ended early.*memory"):
        list(Cores(2).map(die, range(9)))


def test_no_worker_outlives_a_parent_that_was_killed_in_the_midst_of_work(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "from kbf_localization.parallel import Cores\n"
        "from test.test_parallel import note_and_sleep\n"
        f"list(Cores(2).map(note_and_sleep, [{str(tmp_path)!r}] * 2))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ)
    end = time.monotonic() + 60
    while len(noted := list(tmp_path.glob("*.pid"))) < 2:
        assert time.monotonic() < end, "the workers did not start"
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    wait_until_gone({int(path.stem) for path in noted})


def note_and_sleep(folder: str) -> None:
    (Path(folder) / f"{os.getpid()}.pid").touch()
    time.sleep(600)


def test_no_module_is_taken_from_the_current_directory(tmp_path: Path) -> None:
    """Every module that a worker imports lies in the current directory too, as an impostor."""
    for name in ("numpy", "pickle", "multiprocessing", "kbf_localization", "threading", "test"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\nraise SystemExit(9)\n")
    # A script's own folder comes first, not the current directory: as with `kbf` itself.
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(
        f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "from kbf_localization.parallel import Cores\n"
        "from test.test_parallel import square\n"
        "assert list(Cores(2).map(square, range(4))) == [0, 1, 4, 9]\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()


def test_one_job_runs_in_this_process() -> None:
    assert isinstance(make_workers(jobs=1), Serial)
    assert isinstance(make_workers(jobs=2), Cores)


@pytest.fixture(scope="module")
def cluster() -> Iterator[DaskCluster]:
    distributed = pytest.importorskip("distributed", reason="Dask is optional")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as local:
        pool = DaskCluster(local.scheduler_address)
        yield pool
        pool.close()


def test_a_dask_cluster_of_two_workers_agrees(cluster: DaskCluster) -> None:
    assert list(cluster.map(square, range(7))) == EXPECTED


class EndsJustNow:
    """A future whose result is there a moment after it was waited for in vain."""

    def __init__(self, outcome: int | Exception) -> None:
        self.status, self._outcome = "pending", outcome

    def result(self, timeout: float) -> int:
        if self.status == "pending":
            self.status = "error" if isinstance(self._outcome, Exception) else "finished"
            raise TimeoutError("still at work")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.mark.parametrize("error", [ValueError("three"), TimeoutError("the function's own")])
def test_an_item_that_is_done_just_after_the_wait_is_not_lost(
    cluster: DaskCluster, error: Exception
) -> None:
    assert cluster._result(EndsJustNow(7)) == 7
    with pytest.raises(type(error), match=str(error)):
        cluster._result(EndsJustNow(error))


CONNECT = """
import sys
from kbf_localization.errors import KbfError
from kbf_localization.parallel import DaskCluster
try:
    DaskCluster(sys.argv[1], timeout_s=0.5)
except KbfError as error:
    sys.exit(str(error))
"""


def test_what_listens_but_is_no_scheduler_is_not_waited_for() -> None:
    """Neither when it is asked nor when the process ends."""
    pytest.importorskip("distributed", reason="Dask is optional")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", CONNECT, address], capture_output=True, text=True
        )
    assert done.returncode == 1
    assert (
        done.stderr.strip().splitlines()[-1].startswith(f"no Dask scheduler answers at {address}")
    )


def test_an_address_without_a_scheduler_is_one_clear_error() -> None:
    pytest.importorskip("distributed", reason="Dask is optional")
    with pytest.raises(KbfError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        DaskCluster("tcp://127.0.0.1:9", timeout_s=1.0)


def test_threads_keep_the_order() -> None:
    assert list(in_threads(slow_at_first, range(7))) == EXPECTED


def test_items_are_read_in_one_thread_that_is_not_the_callers() -> None:
    readers = []

    def items() -> Iterator[int]:
        for value in range(40):
            readers.append(threading.get_ident())
            yield value

    assert list(in_threads(square, items())) == [value**2 for value in range(40)]
    assert len(set(readers)) == 1
    assert threading.get_ident() not in readers


def test_threads_read_no_more_items_ahead_than_they_may() -> None:
    read = []

    def items() -> Iterator[int]:
        for value in range(1000):
            read.append(value)
            yield value

    results = in_threads(square, items())
    assert [next(results) for _ in range(3)] == EXPECTED[:3]
    results.close()
    assert len(read) <= 3 + ITEMS_AHEAD * (os.cpu_count() or 1)


def test_reading_ahead_ends_with_the_item_that_is_being_read() -> None:
    reading, going_on = threading.Event(), threading.Event()
    read = []

    def items() -> Iterator[int]:
        for value in range(100):
            if value == 2:
                reading.set()
                going_on.wait()
            read.append(value)
            yield value

    results = read_ahead(items(), 10)
    assert next(results) == 0
    reading.wait()
    threading.Timer(0.1, going_on.set).start()
    results.close()
    assert read == [0, 1, 2]


def test_an_error_of_the_items_or_the_function_comes_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield from (0, 1)
        raise DatasetError("the recording ends here")

    for results, expected in ((in_threads(square, items()), 2), (in_threads(refuse, range(9)), 3)):
        for _ in range(expected):
            next(results)
        with pytest.raises(DatasetError):
            next(results)
