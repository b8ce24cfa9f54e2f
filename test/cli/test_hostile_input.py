"""Hostile files and machines at the command line: one line of error, exit code 2."""

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbf_localization.cli.console import SafeConsole
from kbf_localization.cli.main import app
from kbf_localization.cli.map_files import read_parameters
from kbf_localization.errors import KbfError
from kbf_localization.limits import check_parameter
from kbf_localization.sanitize import shown
from test.fuzzing import edited, edits, fuzzed, token_edits

runner = CliRunner()

PARAMETER_FILES = {
    "huge integer": b"parameters: {kbf.power: 1" + b"0" * 400 + b"}",
    "integer without a text": b"parameters: {kbf.power: 1" + b"0" * 5000 + b"}",
    "beyond float": b"parameters: {kbf.power: 1.0e+400}",
    "not a number": b"parameters: {kbf.power: .nan}",
    "date": b"parameters: {kbf.power: 2001-01-01}",
    "impossible date": b"parameters: {kbf.power: 2001-99-99}",
    "deep nesting": b"parameters: " + b"[" * 20_000,
    "deep blocks": b"parameters: " + b"{a: " * 900 + b"1" + b"}" * 900,
    "aliases": b"a: &a [1, 2]\nparameters: {kbf.power: *a}",
    "merge": b"parameters: {<<: {kbf.power: 3}}",
    "text": b"parameters: {kbf.power: many}",
    "truth": b"parameters: {kbf.power: true}",
    "memory": b"parameters: {nn.particles: 1.0e+10}",
    "negative": b"parameters: {kbf.bandwidth: -1}",
    "list": b"- parameters",
    "binary": b"\xff\xfe\x00\x01",
    "too long": b"#" * 2_000_000,
}


@pytest.mark.parametrize("name", PARAMETER_FILES)
def test_a_hostile_parameter_file_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "parameters.yaml"
    path.write_bytes(PARAMETER_FILES[name])
    assert_one_line(build(tmp_path, "--parameters", str(path)), "parameters.yaml")


GOOD_FILE = b"parameters:\n  kbf.bandwidth: 1.2\n  kbf.power: 8\n  paper.rule: plain\n"
yaml_edits = token_edits(
    b"&a ", b"*a", b"<<: ", b"[", b"{", b"- ", b": ", b"!!python/object:os.system ",
    b".inf", b".nan",    b"2001-99-99", b"9" * 5000, b"1e400", b"0x", b"\x00", b"\t", b"? ", b"|",
    b"%YAML 9.9\n", b"---\n",    b"1:2:3", b"~", b"=",
)  # fmt: skip


@fuzzed("parameter file", changes=edits | yaml_edits)
def test_parameter_files_with_anything_in_them(
    tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    path = tmp_path / "parameters.yaml"
    path.write_bytes(edited(GOOD_FILE, changes))
    try:
        found = read_parameters(path)
    except KbfError as error:
        assert path.name in str(error)
    else:
        assert found == {name: check_parameter(name, value) for name, value in found.items()}


def test_so_are_a_pipe_a_device_and_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        done = build(tmp_path, "--parameters", str(path))
        assert_one_line(done, "not a regular file")
        assert "whole recording" not in done.output


def test_a_floor_plan_that_cannot_be_read_is_found_before_the_drives_are_opened(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "plan.yaml")
    done = build(tmp_path, "--floor-plan", str(tmp_path / "plan.yaml"))
    assert_one_line(done, "plan.yaml: is not a regular file")
    assert "whole recording" not in done.output


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_pipe_as_output_is_refused_before_the_work(
    tmp_path: Path, force: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "office.kbfmap")
    assert_one_line(build(tmp_path, *force), "office.kbfmap: is not a regular file")
    tuning = ["tune", str(tmp_path), str(tmp_path), "--output", str(tmp_path / "office.kbfmap")]
    assert_one_line(runner.invoke(app, tuning), "office.kbfmap: is not a regular file")


def test_a_folder_that_takes_no_file_is_found_before_the_work(tmp_path: Path) -> None:
    arguments = ["map", "build", str(tmp_path / "nowhere"), "--output", "/proc/office.kbfmap"]
    assert_one_line(runner.invoke(app, arguments), "/proc: cannot be written to")


def build(tmp_path: Path, *more: str):  # type: ignore[no-untyped-def]
    output = str(tmp_path / "office.kbfmap")
    return runner.invoke(app, ["map", "build", str(tmp_path), "--output", output, *more])


def assert_one_line(result, reason: str) -> None:  # type: ignore[no-untyped-def]
    assert result.exit_code == 2, result.output
    assert reason in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line_wherever_it_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code), "results/metrics.json")

    monkeypatch.setattr("kbf_localization.cli.map.check_output", fail)
    assert_one_line(build(tmp_path), f"results/metrics.json: {os.strerror(code)}")


def test_so_is_a_disk_without_room_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        def write(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as full:
            full.setattr(tempfile, "tempdir", None)
            full.setattr(os, "open", write)
            tempfile.gettempdir()

    monkeypatch.setattr("kbf_localization.cli.map.check_output", fail)
    assert_one_line(build(tmp_path), "No usable temporary directory")


def test_so_is_a_machine_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("kbf_localization.cli.map.check_output", fail)
    assert_one_line(build(tmp_path), "too little memory")


@pytest.mark.parametrize("megabytes", [400, 600, 900])
def test_so_is_an_address_space_in_which_the_libraries_cannot_be_loaded(
    tmp_path: Path, megabytes: int
) -> None:
    """Below 0.7 GB they crash, hang or fail one by one, by the number of cores."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2)

    done = subprocess.run(
        [sys.executable, "-m", "kbf_localization.cli", "map", "info", "office.kbfmap"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=limit,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"limited to {megabytes} MB" in line


def test_so_is_a_library_that_no_longer_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ImportError("libscipy_openblas.so: failed to map segment from shared object")

    monkeypatch.setattr("kbf_localization.cli.map.check_output", fail)
    assert_one_line(build(tmp_path), "too little memory")


SAY_AN_ARROW = """
import sys
from kbf_localization.cli.main import main
sys.argv = ["kbf", "--version"]
try:
    main()
finally:
    print("\\u2192")
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_few_characters_gets_the_others_spelled_out(encoding: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAY_AN_ARROW],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    ).stdout
    assert said.endswith(b"\\u2192\n")


OSC_52 = "\x1b]52;c;ZWNobyBoaQ==\x07"


def test_control_characters_from_files_are_shown_not_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise KbfError(f"drive{OSC_52}\x9b31m\u202e\udcff: damaged")

    monkeypatch.setattr("kbf_localization.cli.map.check_output", fail)
    output = build(tmp_path).output
    assert r"drive\x1b]52;c;ZWNobyBoaQ==\x07\x9b31m\u202e\udcff: damaged" in output
    assert not set(output) & set("\x1b\x07\x9b\u202e")


def test_so_are_those_in_tables_and_lines(tmp_path: Path) -> None:
    from rich.table import Table

    with (tmp_path / "terminal").open("w+", encoding="utf-8") as terminal:
        console = SafeConsole(file=terminal, force_terminal=True, color_system=None, width=200)
        table = Table(title=OSC_52)
        table.add_column(OSC_52)
        table.add_row(OSC_52)
        console.print(table)
        console.print(f"Note: {OSC_52}", markup=False, highlight=False)
        terminal.seek(0)
        sent = terminal.read()
    assert sent.count(r"\x1b]52") == 4
    assert not set(sent) & set("\x1b\x07")


@pytest.mark.parametrize("unseen", "\u200b\u200e\u200f\u061c\u2060\ufeff\xad\U000e0041")
def test_so_are_characters_without_a_width(unseen: str) -> None:
    """Else two names could look the same, or a name be written from right to left."""
    assert shown(f"drive{unseen}1") == f"drive{unseen.encode('unicode_escape').decode()}1"


def test_plain_texts_are_left_alone() -> None:
    plain = "Über 3 µm: 100 % → ok\n\tnext"
    assert shown(plain) == plain
