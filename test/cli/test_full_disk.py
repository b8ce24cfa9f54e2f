"""Commands on a disk that fills up under them: one line, exit code 2, nothing half written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbf_localization.training_map import TrainingMap, save_map
from test.datasets.cold_folders import make_cold_drive

KBF_WITHOUT_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
from kbf_localization.cli.main import main
sys.argv = ["kbf", *sys.argv[1:]]
main()
"""


def kbf_without_room(*words: object) -> subprocess.CompletedProcess[str]:
    """A command that can write no file of more than 3 kB, nor its own coverage."""
    return subprocess.run(
        [sys.executable, "-B", "-c", KBF_WITHOUT_ROOM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("COV")},
    )


def assert_one_line(done: subprocess.CompletedProcess[str], reason: str = "File too large") -> None:
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1, done.stderr
    assert reason in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def short_drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cold_drive(tmp_path_factory.mktemp("short") / "seq1_cloudy1", 20)


def test_map_build_leaves_the_map_that_was_there(
    short_drive: Path, tiny_map: TrainingMap, tmp_path: Path
) -> None:
    path = tmp_path / "office.kbfmap"
    save_map(tiny_map, path)
    before = path.read_bytes()
    done = kbf_without_room(
        *("map", "build", short_drive, "--poses", 10, "--vocabulary-size", 8, "--jobs", 1),
        *("--output", path, "--force"),
    )
    assert_one_line(done)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_evaluate_leaves_no_partial_results(
    short_drive: Path, tiny_map: TrainingMap, tmp_path: Path
) -> None:
    path, output = tmp_path / "office.kbfmap", tmp_path / "results"
    save_map(tiny_map, path)
    done = kbf_without_room(
        "evaluate", short_drive, "--map", path, "--method", "nai", "--output", output
    )
    assert_one_line(done)
    assert str(output) in done.stderr.replace("\n", "")
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")]


@pytest.mark.parametrize(
    ("storage", "reason"), [("mcap", "File too large"), ("sqlite3", "disk I/O error")]
)
def test_convert_leaves_no_part_of_a_bag(
    short_drive: Path, tmp_path: Path, storage: str, reason: str
) -> None:
    bag = tmp_path / "bag"
    done = kbf_without_room("convert", short_drive, bag, "--storage", storage)
    assert_one_line(done, f"bag: cannot be written ({reason})")
    assert list(tmp_path.iterdir()) == []


def test_map_info_leaves_no_part_of_its_plot(tiny_map: TrainingMap, tmp_path: Path) -> None:
    path, output = tmp_path / "office.kbfmap", tmp_path / "results"
    save_map(tiny_map, path)
    assert_one_line(kbf_without_room("map", "info", path, "--output", output))
    assert list(output.iterdir()) == []
