"""Ctrl-C at any moment of a command: exit code 130, one line, and nothing left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kbf_localization
from kbf_localization.child_process import python_command
from test.datasets.cold_folders import make_cold_drive

# Sends the signal when the module named first is imported, then runs the command of the rest.
SIGNALLED = """
import os, signal
module, number, *words = sys.argv[1:]

class Signalling:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Signalling())
sys.argv[:] = ["kbf", *words]
from kbf_localization.cli.__main__ import main
main()
"""


def signalled(module: str, number: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*python_command("exec(sys.stdin.read())"), module, str(number), *words]
    return subprocess.run(
        command, input=SIGNALLED, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


BUILD = ("map", "build", "drive", "--output", "new.kbfmap", "--poses", "5", "--words", "20")
MOMENTS = {
    "before the command line is read": ("typer", ("--version",)),
    "while the parser is imported": ("rich", ("--help",)),
    "while a command is imported": ("kbf_localization.cli.map", BUILD),
    "within NumPy": ("numpy.linalg", BUILD),
    "within OpenCV": ("cv2", BUILD),
    "within h5py": ("h5py._hl", BUILD),
    "within SciPy": ("scipy.spatial", BUILD),
    "while an error is drawn": ("rich.panel", ("map", "build")),
    "while help is drawn": ("rich.table", ("map", "--help")),
}


@pytest.mark.parametrize(("module", "words"), MOMENTS.values(), ids=MOMENTS.keys())
def test_ctrl_c_ends_with_130_and_a_line(
    tmp_path: Path, module: str, words: tuple[str, ...]
) -> None:
    make_cold_drive(tmp_path / "drive", 12)
    done = signalled(module, signal.SIGINT, *words, cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1:] == ["Interrupted."]
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["drive"]


@pytest.mark.parametrize("module", ["typer", "numpy.linalg"])
def test_sigterm_while_importing_ends_with_143(tmp_path: Path, module: str) -> None:
    done = signalled(module, signal.SIGTERM, *BUILD, cwd=tmp_path)
    assert done.returncode == 143
    assert "Traceback" not in done.stderr


WITHIN_EXEC = """
import os, signal, sys
from kbf_localization.cli import main
main.load_command = lambda name: exec("os.kill(os.getpid(), signal.SIGINT)")
sys.argv[:] = ["kbf", "cache", "info"]
main.main()
"""


def test_ctrl_c_within_a_text_that_is_executed_ends_with_130_too(tmp_path: Path) -> None:
    """As `dataclass` executes one; Python then ends `python -m` by a signal to itself."""
    (tmp_path / "within_exec.py").write_text(WITHIN_EXEC)
    done = subprocess.run(
        [sys.executable, "-m", "within_exec"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(kbf_localization.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


DROPPED = """
import os, signal, sys, time, weakref
from kbf_localization.cli import main
class Item:
    pass
def dropped(name):
    item = Item()
    reference = weakref.ref(item, lambda _: os.kill(os.getpid(), signal.{name}))
    del item
    time.sleep(60)
main.load_command = dropped
sys.argv[:] = ["kbf", "cache", "info"]
main.main()
"""


@pytest.mark.parametrize(
    ("name", "ended"), [("SIGINT", (130, "Interrupted.\n")), ("SIGTERM", (143, ""))]
)
def test_a_signal_within_a_weak_references_callback_is_not_dropped(
    name: str, ended: tuple[int, str]
) -> None:
    """Python ignores exceptions there, with a traceback, and goes on."""
    done = subprocess.run(
        python_command(DROPPED.format(name=name)),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == ended


AT_EXIT = """
import atexit, os, signal
from kbf_localization.cli.__main__ import main
sys.argv[:] = ["kbf", "--version"]
class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
sys.late = Late()
main()
"""


def test_ctrl_c_after_the_end_does_not_change_the_end(tmp_path: Path) -> None:
    """Python destroys what its modules hold when its own handlers have gone."""
    command = python_command("exec(sys.stdin.read())")
    done = subprocess.run(
        command, input=AT_EXIT, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_command_in_the_background_does_not_hear_ctrl_c(tmp_path: Path) -> None:
    """A shell without job control starts it so, and it is to go on when the shell's user stops
    what is in the foreground."""
    command = [*python_command("exec(sys.stdin.read())"), "typer", str(int(signal.SIGINT))]
    done = subprocess.run(
        [*command, "--version"],
        input=SIGNALLED,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 0, done.stderr
    assert "kbf_localization" in done.stdout


def test_nothing_but_small_modules_is_imported_before_signals_are_handled() -> None:
    """Until then Ctrl-C ends in Python's own traceback."""
    listed = (
        "import sys; before = set(sys.modules); import kbf_localization.cli.__main__;"
        "print(*sorted(set(sys.modules) - before))"
    )
    root = Path(kbf_localization.__file__).parents[1]
    command = [sys.executable, "-S", "-c", listed]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("kbf_localization")}
    assert ours == {
        "kbf_localization",
        "kbf_localization.cli",
        "kbf_localization.cli.__main__",
        "kbf_localization.cli.interruption",
    }
    assert not {"re", "typing", "numpy"} & set(done.stdout.split())
