"""Fixtures of all tests: the recorded data, and a ROS domain that no other run is in."""

import fcntl
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO

import pytest

if TYPE_CHECKING:
    from kbf_localization.training_map import TrainingMap
    from test.evaluation.chromium import Chromium
    from test.filters.synthetic_world import SyntheticDrive, World

PROJECT = Path(__file__).resolve().parents[1]
ROS_FOLDERS = {PROJECT / "test" / "ros", PROJECT / "test" / "faults"}
HAS_ROS = importlib.util.find_spec("rclpy") is not None

# Set before any test module imports NumPy: two suites on two cores must not fight for threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")
# Messages read it when they are imported, which a folder's conftest.py does before any hook.
os.environ["ROS_PYTHON_CHECK_FIELDS"] = "1"
# `kbf` and the node, started as processes by tests, must be this project's own.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# Read where messages are first imported, which conftest.py of test/ros does before any hook.
os.environ["ROS_PYTHON_CHECK_FIELDS"] = "1"

# What commands print must not depend on the terminal that the tests run in.
os.environ["COLUMNS"] = "200"

# Bytecode is kept in the environment's folder, even where the shell wants none beside the sources:
# else each of the hundreds of processes that the tests start compiles SciPy and the rest again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(Path(sys.prefix) / "bytecode")
sys.dont_write_bytecode = False

# The files that take longest come first, so that no worker is left alone with one in the end.
LONGEST = (
    "test_commands", "test_localizer_node_signals", "test_replay", "test_node_inputs",
    "test_report_in_browser", "test_clocks", "test_node_transform", "test_check", "test_wheel",
    "test_demo", "test_bad_images", "test_consistency", "test_live", "test_notebooks",
    "test_hostile_drives", "test_estimate", "test_self_calibration", "test_cross_validation",
    "test_node_soak", "test_map", "test_calibrate", "test_belief_filter_drives",
)  # fmt: skip

collect_ignore = [] if HAS_ROS else ["ros", "faults"]


def _claim_ros_domain() -> tuple[int, TextIO]:
    """A domain held by a lock for as long as this process lives, so that runs never meet."""
    for domain in range(1, 102):
        path = Path(tempfile.gettempdir()) / f"kbf-test-ros-domain-{os.getuid()}-{domain}.lock"
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return domain, lock
    raise RuntimeError("all ROS domains from 1 to 101 are taken by other test runs")


def pytest_configure(config: pytest.Config) -> None:
    from hypothesis import settings  # now that its bytecode is kept

    # How long an example takes is the machine's business.
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")
    # Background jobs start with SIGINT ignored, nohup's with SIGHUP, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    domain, lock = _claim_ros_domain()
    logs = tempfile.TemporaryDirectory(prefix="kbf-test-ros-log-")
    config.add_cleanup(logs.cleanup)
    # Commands under test use descriptions of each other, and of nobody else.
    kept = tempfile.TemporaryDirectory(prefix="kbf-test-cache-")
    config.add_cleanup(kept.cleanup)
    os.environ.setdefault("KBF_CACHE_DIR", kept.name)
    config.add_cleanup(lock.close)
    os.environ.update(
        ROS_DOMAIN_ID=str(domain),
        ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST",
        ROS_LOG_DIR=logs.name,
    )


def pytest_report_header(config: pytest.Config) -> str:
    if HAS_ROS:
        return f"ROS: rclpy found, domain {os.environ['ROS_DOMAIN_ID']}"
    return "ROS: no rclpy, so the tests in test/ros and those marked `ros` are left out"


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let one worker compile what the tests import, where that was never done; the others wait.

    Each of them would compile the same, which takes twice as long as the imports do.
    """
    if session.config.pluginmanager.hasplugin("dsession"):
        yield  # xdist's own process imports no tests
        return
    folder = Path(os.environ["PYTHONPYCACHEPREFIX"])
    folder.mkdir(parents=True, exist_ok=True)
    compiled = folder / "compiled"
    with (folder / "compiled.lock").open("w") as lock:
        if not compiled.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if compiled.exists():
                fcntl.flock(lock, fcntl.LOCK_UN)
        yield
        compiled.touch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ROS_FOLDERS & set(item.path.parents):
            item.add_marker(pytest.mark.ros)
        if not HAS_ROS and item.get_closest_marker("ros"):
            item.add_marker(pytest.mark.skip(reason="rclpy cannot be imported"))
    places = _places(dict.fromkeys(item.path for item in items))
    items.sort(key=lambda item: places[item.path])


def pytest_report_collectionfinish() -> str:
    from test.fuzzing import PARSERS, SECONDS

    return f"fuzzed for {SECONDS:g} s each: {', '.join(sorted(PARSERS))}" if SECONDS else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist hands its counts of inputs to the process that prints them."""
    from test.fuzzing import FILES

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["fuzzed"] = dict(FILES)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    from test.fuzzing import FILES

    FILES.update(getattr(node, "workeroutput", {}).get("fuzzed", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from test.fuzzing import FILES, SECONDS

    if SECONDS:
        terminalreporter.section("inputs given to each parser")
        for name, count in sorted(FILES.items()):
            terminalreporter.write_line(f"{count:>9,}  {name}")
        terminalreporter.write_line(f"{FILES.total():>9,}  in all")


def pytest_collection_finish() -> None:
    # What the test modules have imported stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()


def _places(files: Iterable[Path]) -> dict[Path, float]:
    """Where each file stands from 0 to 1: those that wait for ROS evenly among those that compute.

    So xdist's workers, one more than cores, keep all cores busy.
    """
    waiting, computing = [], []
    for file in sorted(files, key=lambda file: file.stem not in LONGEST):
        (waiting if ROS_FOLDERS & set(file.parents) else computing).append(file)
    return {
        file: (place + 0.5) / len(group)
        for group in (waiting, computing)
        for place, file in enumerate(group)
    }


@pytest.fixture(scope="session")
def cold_data() -> Path:
    """The folder with the recorded COLD trajectories; it is not part of the project."""
    beside_the_project = PROJECT.parent / "shared" / "data" / "cold"
    folder = Path(os.environ.get("KBF_COLD_DATA", beside_the_project))
    if not folder.is_dir():
        pytest.skip(f"no COLD data in {folder}; set KBF_COLD_DATA to where they are")
    return folder


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """made_once(name, make) is a folder that make(folder) filled, shared by all of xdist's workers.

    The first to ask makes it, meanwhile the others wait. Tests must not write into it.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, complete = shared / f"made-{name}", shared / f"made-{name}.complete"
        with (shared / f"made-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                complete.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def warm_nodes() -> Iterator[None]:
    """From the first test that takes it on, this worker's nodes are forked."""
    from kbf_localization.ros import node_process
    from test.ros.warm_nodes import WarmNodes

    nodes = WarmNodes()
    forking = SimpleNamespace(**{**vars(subprocess), "Popen": nodes.popen})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_process, "subprocess", forking)
        yield
    nodes.close()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Chromium]":
    """One page in Chromium, for all tests of a file."""
    from test.evaluation.chromium import chromium, find_chromium

    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium here: install the package chromium to test the pages")
    with chromium(executable) as browser:
        yield browser


@contextmanager
def learning_quickly() -> Iterator[None]:
    """Maps learn from a sixth of the images, words from a twentieth of the descriptors.

    And no landmarks are made, which take longest. For tests that do not ask how well they learn.
    """
    from kbf_localization.evaluation.frame_pool import describe_drives
    from kbf_localization.mapping.build import build_map

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbf_localization.mapping.held_out.RUNS", 4)
        patch.setattr("kbf_localization.mapping.build.VOCABULARY_DESCRIPTORS", 5_000)
        for function in (build_map, describe_drives):
            patch.setitem(function.__kwdefaults__, "landmarks", False)
        yield


@pytest.fixture
def quick_learning() -> Iterator[None]:
    with learning_quickly():
        yield


@pytest.fixture(scope="module")
def quick_check() -> Iterator[None]:
    """What a check of a map finds does not depend on how often it is looked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbf_localization.evaluation.map_check.check.LOOK_ALIKE_SAMPLES", 24)
        patch.setattr("kbf_localization.evaluation.map_check.check.STARTS", 4)
        yield


@pytest.fixture(scope="session")
def office_drives(made_once: MadeOnce) -> tuple[Path, Path]:
    """Two short drives of one simulated office in COLD's layout: 150 frames each at 320x240."""
    from kbf_localization.simulator.simulated_drives import simulate

    folder = made_once(
        "office", lambda folder: simulate(folder, runs=2, seed=1, frames=150, size=(320, 240))
    )
    return folder / "seq1_cloudy1", folder / "seq1_cloudy2"


@pytest.fixture(scope="session")
def world() -> "World":
    """A hall whose images are grids of words."""
    from test.filters.synthetic_world import World

    return World()


@pytest.fixture(scope="session")
def world_map(made_once: MadeOnce) -> "TrainingMap":
    """150 poses of two drives round that hall."""
    return _map_of_the_hall(made_once, "world-map", 150)


@pytest.fixture(scope="session")
def tiny_map(made_once: MadeOnce) -> "TrainingMap":
    """12 poses of these drives."""
    with learning_quickly():
        return _map_of_the_hall(made_once, "tiny-map", 12)


def _map_of_the_hall(made_once: MadeOnce, name: str, poses: int) -> "TrainingMap":
    from kbf_localization.mapping import load_map
    from kbf_localization.training_map import save_map
    from test.filters.synthetic_world import World, synthetic_map

    def make(folder: Path) -> None:
        save_map(synthetic_map(World(), poses), folder / "hall.kbfmap")

    return load_map(made_once(name, make) / "hall.kbfmap")


@pytest.fixture(scope="session")
def world_drive(world: "World") -> "SyntheticDrive":
    """A third drive of 220 images, on another path."""
    from test.filters.synthetic_world import drive, loop

    return drive(world, loop(220, wobble=-0.08, phase=1.0), seed=5)


@pytest.fixture(scope="session")
def office_map(office_drives: tuple[Path, Path], made_once: MadeOnce) -> "TrainingMap":
    """100 poses of the first of the office's drives: a map of one drive."""
    from kbf_localization.datasets.cold import ColdDrive
    from kbf_localization.mapping import build_map, load_map
    from kbf_localization.training_map import save_map

    def make(folder: Path) -> None:
        with learning_quickly():
            built = build_map([ColdDrive(office_drives[0])], poses=100, words=50, landmarks=True)
        save_map(built, folder / "office.kbfmap")

    return load_map(made_once("office-map", make) / "office.kbfmap")
