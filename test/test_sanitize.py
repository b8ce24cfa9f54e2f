"""What Python itself prints of errors: text from outside is escaped in it."""

import subprocess
import sys

import pytest

from kbf_localization.cli import main
from kbf_localization.cli.main import app

OSC_52 = "\x1b]52;c;ZWNobyBoaQ==\x07"
SHOWN = r"\x1b]52;c;ZWNobyBoaQ==\x07"
UNEXPECTED = f"""
import logging, threading
from kbf_localization.sanitize import show_errors

def fail(where):
    raise ValueError(where + {OSC_52!r})

show_errors()
try:
    fail("logged")
except ValueError as error:
    logging.getLogger("a").error("of " + {OSC_52!r}, exc_info=error)
thread = threading.Thread(target=fail, args=("in a thread",))
thread.start()
thread.join()
fail("uncaught")
"""


def test_logged_and_uncaught_errors_show_control_characters() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNEXPECTED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    for text in ("of ", "logged", "in a thread", "uncaught"):
        assert text + SHOWN in done.stderr
    assert done.stderr.count("Traceback") == 3
    assert not set(done.stderr) & set("\x1b\x07")


def test_so_do_usage_errors_of_names_that_the_shell_put_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kbf map info *` in a folder with such a name."""
    monkeypatch.setattr(sys, "argv", ["kbf", "map", "info", "a.kbfmap", f"b{OSC_52}"])
    with pytest.raises(SystemExit, match="2"):
        app(prog_name="kbf")
    said = capsys.readouterr().err
    assert f"b{SHOWN}" in said
    assert "\x07" not in said


def test_so_does_the_traceback_of_an_error_that_no_command_expects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError(f"drive{OSC_52}")

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr(main, "show_errors", lambda: None)
    monkeypatch.setattr(main, "install", lambda *_: None)
    with pytest.raises(SystemExit, match="1"):
        main.main()
    said = capsys.readouterr().err
    assert f"RuntimeError: drive{SHOWN}" in said
    assert not set(said) & set("\x1b\x07")
